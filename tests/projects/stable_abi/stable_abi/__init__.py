"""One module for all Pythons from 3.9 on."""

"""The program that runs on a device; jetship sends it over SSH, and nothing is installed there.

Python 3.6 and later, its standard library alone. The modules are joined when they are sent
(`jetship.fleet.program`), in the order in which they import each other.
"""

"""Waits for something that never comes."""

import time

print("waiting for a licence server", flush=True)
time.sleep(3600)

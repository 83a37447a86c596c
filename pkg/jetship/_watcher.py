"""Ends the programs of a jetship that was killed; runs in a process of its own (see proc.py).

It reads from a pipe that only jetship can write to: "+12" says that the process group 12 runs,
"-12" that it has ended. The pipe is closed when jetship is gone, however it ended, and what still
runs then is stopped as Ctrl-C would stop it.
"""

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable

POLL_SECONDS = 0.02


def running(lines: Iterable[str]) -> set[int]:
    """Return the groups that were said to run, less those that were said to have ended."""
    groups: set[int] = set()
    for line in lines:
        group = int(line[1:])
        if line.startswith("+"):
            groups.add(group)
        else:
            groups.discard(group)
    return groups


def stop(groups: set[int], grace_seconds: float) -> None:
    """Terminate process groups; kill what is left after a grace period."""
    left = _signalled(groups, signal.SIGTERM)
    end = time.monotonic() + grace_seconds
    while left and time.monotonic() < end:
        time.sleep(POLL_SECONDS)
        left = _signalled(left, 0)
    _signalled(left, signal.SIGKILL)


def _signalled(groups: set[int], number: int) -> set[int]:
    """Send a signal; return the groups that there were."""
    there = set()
    for group in groups:
        # Another user's (sudo) cannot be stopped from here.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)
            there.add(group)
    return there


if __name__ == "__main__":
    stop(running(sys.stdin), float(sys.argv[1]))

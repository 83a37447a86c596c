"""Which folders of the cache are in use, and when each was used last.

A process that uses a folder holds a shared lock on its mark until it ends, however it ends; who
wants to delete the folder needs the lock alone. The time of the mark is that of the last use.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path

_held: dict[Path, int] = {}


def hold(mark: Path) -> None:
    """Mark as used now, and as in use until this process ends.

    In a cache that cannot be written to, nothing is marked: nothing is deleted there either.
    """
    with contextlib.suppress(OSError):
        if mark not in _held:
            mark.parent.mkdir(parents=True, exist_ok=True)
            handle = os.open(mark, os.O_RDWR | os.O_CREAT, 0o644)
            fcntl.flock(handle, fcntl.LOCK_SH)
            _held[mark] = handle
        os.utime(_held[mark])


@contextlib.contextmanager
def alone(mark: Path) -> Iterator[bool]:
    """Yield whether nobody else, this process among them, uses what is marked; nobody can begin."""
    mark.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(mark, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(handle)

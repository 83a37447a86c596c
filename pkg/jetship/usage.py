"""Which folders are in use, and when each of the cache was used last.

A process that uses a folder holds a shared lock on its mark until it ends, however it ends; who
wants to delete the folder needs the lock alone. The time of the mark is that of the last use.

A folder of work in progress is its own mark: it is locked itself, by the one who made it.
"""

import contextlib
import fcntl
import os
import shutil
import tempfile
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


@contextlib.contextmanager
def working(parent: Path, prefix: str) -> Iterator[Path]:
    """Yield an empty folder in `parent` that this process holds; it is gone afterwards."""
    folder, handle = _make_held(parent, prefix)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(handle)


def _make_held(parent: Path, prefix: str) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        # Until it is locked, another process may take it for one that was left behind.
        with contextlib.suppress(FileNotFoundError):
            handle = os.open(folder, os.O_RDONLY)
            # Where folders cannot be locked, `nobody_works_in` cannot tell, and nobody deletes it.
            with contextlib.suppress(OSError):
                fcntl.flock(handle, fcntl.LOCK_SH)
            if folder.is_dir():
                return folder, handle
            os.close(handle)


@contextlib.contextmanager
def nobody_works_in(folder: Path) -> Iterator[bool | None]:
    """Yield whether a folder of `working` was left behind by a process that has ended.

    While the body runs, nobody begins to work in it. None where that cannot be told: on some
    network file systems folders cannot be locked.
    """
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:
        yield None
        return
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            left = False
        except OSError:
            left = None
        else:
            left = True
        yield left
    finally:
        os.close(handle)

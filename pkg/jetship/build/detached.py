"""Processes that a build left running, in sessions where no signal to its group reaches them.

They are known by a variable that all processes of a build inherit; one that was started with an
environment of its own is not found.
"""

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from jetship import console
from jetship.proc import STOP_GRACE_SECONDS, STOP_POLL_SECONDS

MARK = "JETSHIP_SOURCES"  # names the copy that is built, which no two builds share


@contextlib.contextmanager
def none_left(sources: Path) -> Iterator[None]:
    """End, with the body, what was started with JETSHIP_SOURCES=`sources` and still runs."""
    try:
        yield
    finally:
        _end(b"%s=%s" % (MARK.encode(), os.fsencode(sources.resolve())))


def _end(mark: bytes) -> None:
    left = dict(_running(mark))
    if not left:
        return
    console.note(f"the build left {', '.join(sorted(set(left.values())))} running; it is ended")
    end = time.monotonic() + STOP_GRACE_SECONDS
    _signal(left, mark, signal.SIGTERM)
    while left and time.monotonic() < end:
        time.sleep(STOP_POLL_SECONDS)
        left = dict(_running(mark))
    _signal(left, mark, signal.SIGKILL)


def _running(mark: bytes) -> Iterator[tuple[int, str]]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdecimal() and _has(folder, mark):
            with contextlib.suppress(OSError):
                yield int(folder.name), (folder / "comm").read_text(errors="replace").strip()


def _has(folder: Path, mark: bytes) -> bool:
    with contextlib.suppress(OSError):  # it has ended, or is another user's
        return mark in (folder / "environ").read_bytes().split(b"\0")
    return False


def _signal(left: dict[int, str], mark: bytes, number: signal.Signals) -> None:
    for pid in left:
        # Looked at once more through its handle: by now the number may be another process's.
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if _has(Path("/proc", str(pid)), mark):
                    signal.pidfd_send_signal(handle, number)
            finally:
                os.close(handle)

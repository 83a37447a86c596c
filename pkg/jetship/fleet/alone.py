"""One deployer at a time for a deploy.yaml on this machine; others are told who it is.

On other machines it is the lock of each device that refuses a second one.
"""

import contextlib
import json
import os
from collections.abc import Iterator
from pathlib import Path

import filelock

from jetship.errors import RolloutError
from jetship.fleet.journal import DISK, now
from jetship.fleet.link import this_user
from jetship.store import disk_errors, write_atomically

_HOLDER = "holder.json"


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Be the only one on this machine who rolls out by the journals of `folder`.

    Raises:
        RolloutError: somebody else is; says who and since when.
        DownloadError, ConfigError: the folder cannot be written to.
    """
    with disk_errors(folder, what="the folder of the journals", **DISK):
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / "lock")
        try:
            lock.acquire(timeout=0)
        except filelock.Timeout as error:
            raise RolloutError(
                "another rollout of this deploy.yaml is under way on this machine",
                why=_told(folder / _HOLDER),
                fix="wait for its end, or end it with Ctrl-C; `invoke status` asks the devices",
            ) from error
    try:
        # Beside the lock: whoever tries to take that empties its file.
        holder = {"who": this_user(), "since": now(), "process": os.getpid()}
        with disk_errors(folder, what="the folder of the journals", **DISK):
            write_atomically(folder / _HOLDER, json.dumps(holder).encode())
        yield
    finally:
        (folder / _HOLDER).unlink(missing_ok=True)
        lock.release()


def _told(path: Path) -> str:
    try:
        holder = json.loads(path.read_text())
        return f"{holder['who']} since {holder['since']} (process {holder['process']})"
    except (OSError, ValueError, KeyError):
        return ""

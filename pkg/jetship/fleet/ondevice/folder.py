"""The state folder of one application on a device: lock, state file, journal, layers."""

import contextlib
import datetime as dt
import fcntl
import json
import os
import time
from typing import Any, Dict, List, Optional, Tuple

State = Dict[str, Any]

SCHEMA = 1
LOCK_POLL_SECONDS = 0.2


class Folder:
    """One application's folder. Only who holds its lock may write into it.

    The state file is replaced as a whole, so that it says one thing or the other wherever the
    power goes. Each line of the journal is on the disk before anything else happens.
    """

    def __init__(self, path: str, app: str) -> None:
        self.path = path
        self.app = app
        self.layers = os.path.join(path, "layers")
        self._lock = -1
        # Until the deployer has told the time, the device's own clock has to do.
        self._ahead = time.time() - time.monotonic()

    def create(self) -> None:
        """Make the folder; nobody but its owner may look into it."""
        os.makedirs(self.layers, mode=0o700, exist_ok=True)

    def set_clock(self, now: float) -> None:
        """Take the deployer's clock, which all lines of a rollout's journals then share."""
        self._ahead = now - time.monotonic()

    def now(self) -> str:
        """Return the time by the deployer's clock."""
        then = dt.datetime.utcfromtimestamp(time.monotonic() + self._ahead)
        return then.strftime("%Y-%m-%dT%H:%M:%SZ")

    def lock(self, holder: Dict[str, str], wait: float) -> Optional[Dict[str, str]]:
        """Take the lock until this process and its children have ended.

        Returns:
            None, or who holds it where it is not free within `wait` seconds.
        """
        handle = os.open(os.path.join(self.path, "lock"), os.O_RDWR | os.O_CREAT, 0o600)
        end = time.monotonic() + wait
        while not _locked(handle):
            if time.monotonic() >= end:
                text = os.pread(handle, 4096, 0)
                os.close(handle)
                return _holder(text)
            time.sleep(LOCK_POLL_SECONDS)
        self._lock = handle
        # The lock holds without its words, for which a full disk has no room.
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, json.dumps(dict(holder, since=self.now())).encode(), 0)
        return None

    def load(self) -> State:
        """Return what the state file says; a damaged one is moved aside."""
        state, damaged = self._read()
        if damaged:
            path = os.path.join(self.path, "state.json")
            os.replace(path, path + ".damaged")
            self.note("state file damaged", kept=path + ".damaged")
            state["note"] = "its state file was damaged (kept as state.json.damaged)"
            self.save(state)
        return state

    def look(self) -> State:
        """Return what the state file says, and leave it as it is."""
        state, damaged = self._read()
        if damaged:
            state["note"] = "its state file is damaged"
        return state

    def _read(self) -> Tuple[State, bool]:
        """Return what the state file says, or nothing where it is missing; and if it is damaged."""
        empty: State = {
            "schema": SCHEMA, "app": self.app, "current": None, "previous": None,
            "swap": None, "last": None, "note": "",
        }  # fmt: skip
        path = os.path.join(self.path, "state.json")
        try:
            with open(path, encoding="utf-8") as stream:
                state = json.load(stream)
            if state["schema"] != SCHEMA:
                raise RefusedError(
                    "state", "%s was written by another version of jetship" % path,
                    "deploy with that version, or newer",
                )  # fmt: skip
            return dict(empty, **state), False
        except FileNotFoundError:
            return empty, False
        except (ValueError, KeyError, TypeError):
            return empty, True

    def save(self, state: State) -> None:
        """Replace the state file; it is on the disk when this returns."""
        path = os.path.join(self.path, "state.json")
        with open(path + ".new", "w", encoding="utf-8") as stream:
            json.dump(state, stream, indent=1, sort_keys=True)
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(path + ".new", path)
        sync_folder(self.path)

    def lines(self) -> List[Dict[str, Any]]:
        """Return the lines of the journal; those that power loss left half are left out."""
        try:
            with open(os.path.join(self.path, "journal.jsonl"), "rb") as stream:
                rows = stream.read().splitlines()
        except OSError:
            return []
        found = []
        for row in rows:
            with contextlib.suppress(ValueError):
                found.append(json.loads(row.decode("utf-8", "replace")))
        return [line for line in found if isinstance(line, dict)]

    def note(self, event: str, **words: Any) -> None:
        """Add a line to the journal. A full disk keeps no change from being ended or taken back."""
        line = json.dumps(dict(words, at=self.now(), clock="deployer", event=event), sort_keys=True)
        with contextlib.suppress(OSError):
            self._append(line.encode() + b"\n")

    def _append(self, line: bytes) -> None:
        path = os.path.join(self.path, "journal.jsonl")
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            size = os.fstat(handle).st_size
            # Power loss may have left half a line.
            torn = size and os.pread(handle, 1, size - 1) != b"\n"
            os.write(handle, b"\n" * bool(torn) + line)
            os.fsync(handle)
        finally:
            os.close(handle)


class RefusedError(Exception):
    """What is asked cannot be done, and nothing was changed.

    Args:
        kind: a word for programs: "full", "image", "engine", ...
        what: a sentence for people.
        fix: what they can do.
    """

    def __init__(self, kind: str, what: str, fix: str = "", **more: Any) -> None:
        super().__init__(what)
        self.kind = kind
        self.what = what
        self.fix = fix
        self.more = more


def sync_folder(path: str) -> None:
    """Bring the names in a folder onto the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _holder(text: bytes) -> Dict[str, str]:
    try:
        return {str(name): str(value) for name, value in json.loads(text.decode()).items()}
    except (ValueError, AttributeError):
        # The holder has just taken it, and not yet written who it is.
        return {}

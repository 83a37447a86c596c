"""The journal of a rollout: one JSON line an event, and the state that the lines add up to.

Lines are only ever appended, and each is on the disk before the next step is taken. So whatever
kills the deployer, the file says what had begun; what has come of it, the devices say. Times are
those of the deployer's clock, in UTC: the clock of a device may be wrong by years.
"""

import contextlib
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeAlias

from jetship.errors import ConfigError, NothingSelectedError
from jetship.store import disk_errors

FOLDER = Path(".jetship") / "rollouts"
SUFFIX = ".jsonl"
_NAME = re.compile(r"[0-9]{8}T[0-9]{6}Z(?:-[0-9])?")
SCHEMA_VERSION = 1
DISK = {
    "fix": "free some space; without its journal a rollout could not be resumed",
    "elsewhere": "let yourself write to it; without its journal a rollout could not be resumed",
}

Result = Literal[
    "committed",  # runs the new image
    "already",  # ran it before
    "refused",  # the gate let nothing happen
    "unreachable",  # no session
    "failed",  # a step before the swap; the old container was not touched
    "rolled-back",  # the swap failed, and the old container runs
    "broken",  # the swap failed, and the old container does not run either
    "unknown",  # the link was lost in the swap, and the device has not been heard of since
    "reverted",  # had the new image, and went back with all others
]
GOOD: frozenset[Result] = frozenset({"committed", "already"})
UNTOUCHED: frozenset[Result] = frozenset({"refused", "unreachable", "failed"})
Event: TypeAlias = Mapping[str, Any]
Listener: TypeAlias = Callable[[Event], None]
Phase = Literal["waiting", "started", "swapping", "returning", "ended"]


def now() -> str:
    """Return the deployer's time as journals have it: 2026-11-30T08:15:00Z."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Standing:
    """Where a device stands in a rollout; `token` is that of the last order that it got."""

    phase: Phase = "waiting"
    result: Result | None = None
    reason: str = ""
    logs: str = ""
    seconds: float = 0.0
    sent_bytes: int = 0
    token: str = ""

    @property
    def ordered(self) -> bool:
        """Whether it was told to change, and what came of that is not known here."""
        return self.phase == "swapping" or self.result == "unknown"

    @property
    def failed(self) -> bool:
        return self.result is not None and self.result not in GOOD | {"reverted"}


@dataclass(frozen=True)
class State:
    """What the lines of a journal add up to.

    Args:
        release: the rollout's name.
        plan: of the rollout, as it was written down.
        by: who began it, and when.
        devices: by name, where each stands.
        wave: the number of the last wave that was begun, or -1.
        stopped: why no further device was started, or "".
        ended: how the rollout ended; "" while it runs, or where its deployer was killed.
        interrupted: whether its deployer ended before it did.
    """

    release: str
    plan: Mapping[str, Any]
    by: str
    at: str
    devices: dict[str, Standing]
    wave: int = -1
    stopped: str = ""
    ended: Literal["", "complete", "partial"] = ""
    interrupted: bool = False

    @property
    def failures(self) -> int:
        """How many devices failed, for the stop rule."""
        return sum(standing.failed for standing in self.devices.values())

    @property
    def unfinished(self) -> bool:
        return not self.ended


class Journal:
    """A journal that is open for writing, and its state so far. Any thread may call `write`."""

    def __init__(self, path: Path, state: State, told: Listener | None = None) -> None:
        self.path = path
        self.state = state
        self._told = told
        self._lock = threading.Lock()

    @classmethod
    def begin(
        cls, folder: Path, plan: Mapping[str, Any], *, by: str, told: Listener | None = None
    ) -> Self:
        """Begin the journal of a new rollout.

        Args:
            folder: of the journals.
            plan: what is rolled out, as JSON has it.
            by: who does it.
            told: called with each event after it was written.

        Raises:
            DownloadError, ConfigError: the disk is full, or is not to be written to.
        """
        with disk_errors(folder, what="the folder of the journals", **DISK):
            folder.mkdir(parents=True, exist_ok=True)
            release = new_release(folder)
            path = folder / f"{release}{SUFFIX}"
            path.touch(exist_ok=False)
            _sync_folder(folder)
        first = {"schema": SCHEMA_VERSION, "release": release, "by": by, "plan": plan}
        event = {"at": now(), "event": "planned", **first}
        _append(path, event)
        if told:
            told(event)
        return cls(path, _begun(event), told)

    @classmethod
    def reopen(cls, path: Path, *, by: str, told: Listener | None = None) -> Self:
        """Go on with the journal of a rollout that did not end.

        Raises:
            ConfigError: it is damaged, or is not to be written to.
            DownloadError: the disk is full.
        """
        with disk_errors(path, what="the journal", **DISK):
            _drop_torn_line(path)
        journal = cls(path, read(path), told)
        journal.write("resumed", by=by)
        return journal

    def write(self, event: str, **values: Any) -> None:
        """Append an event; it is on the disk when this returns.

        Raises:
            DownloadError, ConfigError: the disk is full, or is not to be written to.
        """
        self.write_if(lambda _: True, event, **values)

    def write_if(self, holds: Callable[[State], bool], event: str, **values: Any) -> bool:
        """Append an event if the state allows it, and return whether it did.

        No event comes between the question and the line.

        Raises:
            DownloadError, ConfigError: the disk is full, or is not to be written to.
        """
        row = {"at": now(), "event": event, **values}
        with self._lock:
            if not holds(self.state):
                return False
            _append(self.path, row)
            self.state = _after(self.state, row)
            if self._told:
                self._told(row)
        return True


def _append(path: Path, event: Event) -> None:
    line = json.dumps(event, ensure_ascii=False).encode() + b"\n"
    with disk_errors(path, what="the journal", **DISK):
        # Opened for each line: else one would go on writing into a file that somebody deleted.
        handle = os.open(path, os.O_WRONLY | os.O_APPEND)
        try:
            before = os.fstat(handle).st_size
            try:
                while line:
                    line = line[os.write(handle, line) :]
                os.fsync(handle)
            except OSError:
                # A full disk may have let a part of the line through.
                with contextlib.suppress(OSError):
                    os.ftruncate(handle, before)
                raise
        finally:
            os.close(handle)


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _drop_torn_line(path: Path) -> None:
    """Cut off the line that a killed deployer did not finish: nothing was done upon it yet."""
    data = path.read_bytes()
    whole = data.rfind(b"\n") + 1
    if whole < len(data):
        os.truncate(path, whole)


def events(path: Path) -> Iterator[Event]:
    """Yield the events of a journal; a last line that was not finished is left out.

    Raises:
        ConfigError: it cannot be read, or another line than the last is damaged.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path} cannot be read", why=error.strerror or "") from error
    *lines, _torn = data.split(b"\n")
    for number, line in enumerate(lines, 1):
        try:
            event = json.loads(line)
        except ValueError as error:
            raise ConfigError(
                f"{path}:{number}: not a line of a journal",
                why=str(error),
                fix="it was changed by something else than jetship; ask the devices with "
                "`invoke status`",
            ) from error
        if isinstance(event, dict):
            yield event


def read(path: Path) -> State:
    """Return the state that a journal's events add up to.

    Raises:
        ConfigError: it cannot be read, is damaged, or is of a newer jetship.
    """
    found = iter(events(path))
    first = next(found, {})
    if first.get("event") != "planned" or "plan" not in first:
        raise ConfigError(
            f"{path} does not begin with a plan",
            why="" if first else "its deployer was ended before the rollout began",
            fix="nothing was rolled out by it; delete the file",
        )
    if first.get("schema") != SCHEMA_VERSION:
        raise ConfigError(
            f"{path} is of another jetship: its schema is {first.get('schema')!r}",
            fix="update jetship",
        )
    state = _begun(first)
    for event in found:
        state = _after(state, event)
    return state


def _begun(first: Event) -> State:
    devices = {row["name"]: Standing() for row in first["plan"]["devices"]}
    return State(first["release"], first["plan"], first["by"], first["at"], devices)


def _after(state: State, event: Event) -> State:
    """Return the state after an event; `devices` is the same dict in all of them."""
    match event["event"]:
        case "started" | "sent" | "swapping" | "returning" | "ended" as kind:
            standing = state.devices[event["device"]]
            state.devices[event["device"]] = _STEPS[kind](standing, event)
        case "wave":
            return replace(state, wave=event["number"])
        case "stopped":
            return replace(state, stopped=event["reason"])
        case "interrupted":
            return replace(state, interrupted=True)
        case "resumed":
            return replace(state, interrupted=False)
        case "finished":
            return replace(state, ended=event["outcome"])
    return state  # what a newer jetship notes besides changes nothing


def _started(standing: Standing, _: Event) -> Standing:
    return replace(standing, phase="started", result=None, reason="", logs="")


def _sent(standing: Standing, event: Event) -> Standing:
    return replace(standing, sent_bytes=standing.sent_bytes + event["bytes"])


def _swapping(standing: Standing, event: Event) -> Standing:
    return replace(standing, phase="swapping", token=event["token"])


def _returning(standing: Standing, event: Event) -> Standing:
    # It keeps the result that it has until it is back.
    return replace(standing, phase="returning", token=event["token"])


def _ended(standing: Standing, event: Event) -> Standing:
    return replace(
        standing,
        phase="ended",
        result=event["result"],
        reason=event.get("reason", ""),
        logs=event.get("logs", ""),
        seconds=event.get("seconds", 0.0),
    )


_STEPS = {
    "started": _started,
    "sent": _sent,
    "swapping": _swapping,
    "returning": _returning,
    "ended": _ended,
}


def rollout_named(text: str) -> str:
    """Return the rollout that somebody names, also where it is as devices call their release.

    Raises:
        ConfigError: it does not have the form of one.
    """
    match = _NAME.match(text)
    if match is None or not re.fullmatch(r"(?:\.[0-9a-f]+)?", text[match.end() :]):
        raise ConfigError(
            f"{text!r} is not a release",
            fix="name a rollout such as 20261130T081500Z; `invoke status` shows those that devices "
            "have, and .jetship/rollouts beside deploy.yaml has a file for each",
        )
    return match[0]


def journals(folder: Path) -> list[Path]:
    """Return the journals of a folder, the newest first."""
    found = [path for path in folder.glob(f"*{SUFFIX}") if _release_of(path)]
    return sorted(found, key=_release_of, reverse=True)


def _release_of(path: Path) -> str:
    """Return the release that a file's name says, or "" where the file is no journal."""
    name = path.name.removesuffix(SUFFIX)
    return name if _NAME.fullmatch(name) else ""


def new_release(folder: Path) -> str:
    """Return a name for a rollout that has none yet; names sort by their time: 20261130T081500Z."""
    name = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime())
    taken = {_release_of(path) for path in journals(folder)}
    others = (f"{name}-{number}" for number in range(2, 10))
    return next(one for one in (name, *others) if one not in taken)


def newest_unfinished(folder: Path) -> str:
    """Return the newest rollout if it did not end, else "".

    Raises:
        ConfigError: its journal is damaged.
    """
    found = journals(folder)
    state = read(found[0]) if found else None
    return state.release if state is not None and state.unfinished else ""


def unfinished(folder: Path) -> Path:
    """Return the journal of the newest rollout, which must not have ended.

    Raises:
        NothingSelectedError: there is none, or it has ended.
        ConfigError: its journal is damaged.
    """
    found = journals(folder)
    if not found:
        raise NothingSelectedError(
            "there is no rollout to go on with",
            why=f"{folder} has no journal",
            fix="`invoke deploy` begins one",
        )
    state = read(found[0])
    if not state.unfinished:
        raise NothingSelectedError(
            f"the newest rollout, {state.release}, has ended ({state.ended})",
            why="; ".join(part for part in (state.stopped, _left_behind(found[1:])) if part),
            fix="`invoke deploy` begins a new one; devices that run the image already are left "
            "alone",
        )
    return found[0]


def _left_behind(older: Sequence[Path]) -> str:
    """Say that the rollout before did not end: what came after it may have undone it."""
    state = read(older[0]) if older else None
    if state is None or not state.unfinished:
        return ""
    return f"{state.release} before it did not end, and cannot go on any more"

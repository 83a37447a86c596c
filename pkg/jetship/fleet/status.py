"""What the devices of a fleet run now, as they say themselves."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from jetship.errors import JetshipError
from jetship.fleet.model import Facts, LockedError
from jetship.fleet.plan import PlannedDevice
from jetship.fleet.sessions import Opener

ASKED_AT_ONCE = 32


@dataclass(frozen=True)
class Answer:
    """What a device said, or why it said nothing."""

    device: PlannedDevice
    facts: Facts | None = None
    silence: str = ""

    @property
    def image(self) -> str:
        """The first digits of the image's id, as `docker images` shows them."""
        current = self.facts.state.current if self.facts else None
        return current.image.removeprefix("sha256:")[:12] if current else ""

    @property
    def release(self) -> str:
        current = self.facts.state.current if self.facts else None
        return current.release if current else ""

    @property
    def well(self) -> bool:
        """Whether its container runs, and nothing went wrong with it the last time."""
        return self.facts is not None and self.facts.container == "running" and not self.last

    @property
    def last(self) -> str:
        """How its last change ended, where that was not well."""
        if self.facts is None:
            return self.silence
        state = self.facts.state
        if state.unfinished:
            return f"a change is not ended yet: {state.unfinished}"
        if not self.facts.docker:
            return f"no Docker engine answers there ({self.facts.docker_error})"
        if state.last is None or state.last.outcome in ("committed", "already"):
            return ""
        reason = f": {state.last.reason}" if state.last.reason else ""
        return f"{state.last.release} {state.last.outcome}{reason}"

    def row(self) -> list[str]:
        """Return the cells of a table; see `HEAD`."""
        facts = self.facts
        return [
            self.device.name,
            self.device.address,
            self.device.board,
            (facts.l4t or "-") if facts else "",
            self.release or ("-" if facts else ""),
            self.image,
            (facts.container or "-") if facts else "?",
            f"{facts.disk_free_bytes / 1e9:.1f} GB" if facts else "",
            self.last,
        ]

    def to_json(self) -> dict[str, Any]:
        """Return the answer as machines read it."""
        device = self.device
        document: dict[str, Any] = {
            "name": device.name,
            "address": device.address,
            "board": device.board,
            "target": device.target,
            "reached": self.facts is not None,
        }
        if self.facts is None:
            return {**document, "why": self.silence}
        state = self.facts.state
        return {
            **document,
            "machine": self.facts.machine,
            "l4t": self.facts.l4t or None,
            "cuda": self.facts.cuda or None,
            "model": self.facts.model or None,
            "docker": self.facts.docker or None,
            "disk_free_bytes": self.facts.disk_free_bytes,
            "clock": self.facts.clock,
            "container": self.facts.container or None,
            "current": vars(state.current) if state.current else None,
            "previous": vars(state.previous) if state.previous else None,
            "unfinished": state.unfinished or None,
            "last": vars(state.last) if state.last else None,
        }


HEAD = ["device", "address", "board", "L4T", "release", "image", "container", "free", ""]


def ask_all(devices: Sequence[PlannedDevice], opener: Opener) -> list[Answer]:
    """Ask all devices, many at a time, and return their answers in the given order."""
    with ThreadPoolExecutor(max_workers=max(1, min(ASKED_AT_ONCE, len(devices)))) as pool:
        return list(pool.map(lambda device: _ask(device, opener), devices))


def _ask(device: PlannedDevice, opener: Opener) -> Answer:
    try:
        link = opener(device)
    except LockedError as error:
        release = f" for {error.release}" if error.release else ""
        return Answer(device, silence=f"{error.holder} works on it{release} since {error.since}")
    except JetshipError as error:
        why = f": {error.why}" if error.why else ""
        return Answer(device, silence=f"{error.what}{why}")
    try:
        return Answer(device, link.facts)
    finally:
        link.close()

"""What the devices of a fleet run now, as they say themselves."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from typing import Any

from jetship.errors import JetshipError, RolloutError
from jetship.fleet.model import Facts, Installed, LockedError
from jetship.fleet.plan import PlannedDevice, count_of
from jetship.fleet.sessions import Opener

ASKED_AT_ONCE = 32


@dataclass(frozen=True)
class Answer:
    """What a device said, or why it said nothing; with neither it is being asked.

    Args:
        device: that is asked.
        facts: what it said.
        silence: why it said nothing.
        held: it said nothing since another session has it.
        name: repository:tag of its image, where this machine rolled that out; "" elsewhere.
    """

    device: PlannedDevice
    facts: Facts | None = None
    silence: str = ""
    held: bool = False
    name: str = ""

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
    def fault(self) -> str:
        """Why a device does not run what it should, or cannot tell; empty where neither is so.

        One that went back to its old container runs, and one that somebody works on will.
        """
        facts = self.facts
        if facts is None:
            return "" if self.held else self.silence
        if facts.state.unfinished or not facts.docker:
            return self.last
        if facts.state.current and facts.container != "running":
            said = f"its container is {facts.container or 'not known'}"
            return f"{said}; {self.last}" if self.last else said
        # It had something, and nothing says what.
        return "" if facts.state.current else facts.state.note

    @property
    def last(self) -> str:
        """How its last change ended, where that was not well."""
        if self.facts is None:
            return self.silence or "asking"
        state = self.facts.state
        if state.unfinished:
            reason = f" ({state.last.reason})" if state.last and state.last.reason else ""
            return (
                f"a change is not ended yet: {state.unfinished}{reason}; the next deploy or "
                "rollback ends it"
            )
        if not self.facts.docker:
            return f"no Docker engine answers there ({self.facts.docker_error})"
        if state.last is None or state.last.outcome in ("committed", "already"):
            return state.note
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
            self.name or self.image,
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
            "image_name": self.name or None,
            "current": vars(state.current) if state.current else None,
            "previous": vars(state.previous) if state.previous else None,
            "unfinished": state.unfinished or None,
            "last": vars(state.last) if state.last else None,
            "note": state.note or None,
        }


HEAD = ["device", "address", "board", "L4T", "release", "image", "container", "free", ""]


def ask_all(
    devices: Sequence[PlannedDevice],
    opener: Opener,
    told: Callable[[Answer], None] = lambda _: None,
    *,
    name_of: Callable[[Installed], str] = lambda _: "",
) -> list[Answer]:
    """Ask all devices, many at a time, and return their answers in the given order.

    Args:
        devices: that are asked.
        opener: opens sessions with them.
        told: is given each answer when it comes.
        name_of: returns how people call the image of a release, or "".
    """
    with ThreadPoolExecutor(max_workers=max(1, min(ASKED_AT_ONCE, len(devices)))) as pool:
        coming = [pool.submit(_ask, device, opener, name_of) for device in devices]
        for one in as_completed(coming):
            told(one.result())
        return [one.result() for one in coming]


def failure(answers: Sequence[Answer]) -> RolloutError | None:
    """Return the error that lists the devices which do not run what they should, if any."""
    wrong = [one for one in answers if one.fault]
    if not wrong:
        return None
    return RolloutError(
        f"{len(wrong)} of {count_of(len(answers))} "
        f"{'does' if len(wrong) == 1 else 'do'} not run what was rolled out, or cannot tell",
        why="\n       ".join(f"{one.device.name}: {one.fault}" for one in wrong),
        fix="docs/rollout.md says what to do where a device says broken or unfinished",
    )


def _ask(device: PlannedDevice, opener: Opener, name_of: Callable[[Installed], str]) -> Answer:
    try:
        link = opener(device)
    except LockedError as error:
        release = f" for {error.release}" if error.release else ""
        said = f"{error.holder} works on it{release} since {error.since}"
        return Answer(device, silence=said, held=True)
    except JetshipError as error:
        why = f": {error.why}" if error.why else ""
        return Answer(device, silence=" ".join(f"{error.what}{why}".split()))
    try:
        current = link.facts.state.current
        return Answer(device, link.facts, name=name_of(current) if current else "")
    finally:
        link.close()

"""What a rollout does with one device: ask it, bring it the image, let it change, let it go back.

The first step that fails is the last one. Each returns how it ended and raises nothing but an
interruption: what goes wrong with a device is a result of the rollout.
"""

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias, TypeVar

from jetship.errors import JetshipError
from jetship.fleet.gate import Room, Wanted, judge
from jetship.fleet.journal import Journal, Result, Standing
from jetship.fleet.layers import LayeredImage
from jetship.fleet.model import (
    DeviceState,
    Facts,
    Link,
    LockedError,
    LostError,
    Outcome,
    RefusedError,
    RollbackOrder,
    UnreachableError,
)
from jetship.fleet.plan import Plan, PlannedDevice, rollout_of, same_config
from jetship.fleet.sessions import Sessions, SilentError
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve_id

TRIES = 5
FIRST_WAIT_SECONDS = 2.0
# Beyond what an order allows the device: stopping a container, writing its state, a slow engine.
ORDER_SPARE_SECONDS = 60.0
Layers: TypeAlias = Callable[[str], LayeredImage]
_T = TypeVar("_T")


class View(Protocol):
    """Who watches; called by any thread. What the journal says comes from there."""

    def doing(self, device: str, what: str) -> None:
        """Say what a device does now."""

    def sent(self, device: str, done: int, total: int) -> None:
        """Say how many bytes of how many are there."""

    def note(self, device: str, what: str) -> None:
        """Say what is worth knowing of a device."""


@dataclass(frozen=True)
class Ended:
    """How something with a device ended."""

    result: Result
    reason: str = ""
    logs: str = ""
    seconds: float = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return it as the journal has it: what is empty is left out."""
        rows = {"reason": self.reason, "logs": self.logs, "seconds": round(self.seconds, 1)}
        return {"result": self.result, **{name: value for name, value in rows.items() if value}}


@dataclass(frozen=True)
class OneDevice:
    """The steps of a rollout with any of its devices.

    Args:
        plan: what is rolled out.
        journal: where it is written down.
        sessions: with the devices.
        layers: returns an image's layers by its id, made when they are first asked for.
        catalog: the known boards and platforms.
        view: who watches.
    """

    plan: Plan
    journal: Journal
    sessions: Sessions
    layers: Layers
    catalog: Catalog
    view: View
    clock: Callable[[], float] = field(default=time.time)

    def ask(self, device: PlannedDevice, standing: Standing) -> Ended | None:
        """Ask a device whether it can get the image; None means that it can.

        A device that had been given an order before its deployer was killed tells what came of it.
        """
        self.view.doing(device.name, "asking")
        return _guarded(lambda: self._ask(device, standing))

    def change(self, device: PlannedDevice) -> Ended:
        """Bring a device to the new image."""
        return _guarded(lambda: self._change(device))

    def back(self, device: PlannedDevice, standing: Standing) -> Ended:
        """Bring a device back to what it had before."""
        self.view.doing(device.name, "going back")
        return _guarded(lambda: self._back(device, standing))

    def _ask(self, device: PlannedDevice, standing: Standing) -> Ended | None:
        if standing.ordered:
            outcome = self.sessions.outcome(device, standing.token, self._order_seconds)
            if outcome is not None:
                return _of(outcome)
            if standing.result == "unknown":
                return Ended("failed", "the device never got the order")
        with self.sessions.session(device) as link:
            return self._before(device, link.facts)

    def _before(self, device: PlannedDevice, facts: Facts) -> Ended | None:
        """Return why nothing has to be done, or nothing may be; None where neither is so."""
        release = self.plan.release_of(device, self.journal.state.release)
        current = facts.state.current
        if (
            current is not None
            and current.image == self.plan.image_of(device).id
            and same_config(current.release, release)
            and facts.container == "running"
        ):
            return Ended("already")
        if facts.state.note:
            self.view.note(device.name, facts.state.note)
        verdict = judge(facts, self._wanted(device, facts), self.catalog, now=self.clock())
        for note in verdict.notes:
            self.view.note(device.name, note)
        return Ended("refused", "; ".join(verdict.refusals)) if verdict.refusals else None

    def _wanted(self, device: PlannedDevice, facts: Facts) -> Wanted:
        strategy = self.plan.strategy
        return Wanted(
            target=resolve_id(self.catalog, device.target),
            board=self.catalog.board(device.board),
            runtime=self.plan.setup_of(device).runtime,
            room=self._room(device, facts),
            transfer=strategy.transfer,
            max_clock_skew=strategy.max_clock_skew,
        )

    def _room(self, device: PlannedDevice, facts: Facts) -> Room:
        """Return how much of the device's disks the image takes while it comes."""
        image = self.plan.image_of(device)
        if image.id in facts.images:
            return Room()
        # An engine that keeps images in containerd has to be given all layers.
        chains = () if facts.containerd_store else facts.chains
        if self.plan.strategy.transfer == "registry":
            # Of layers in a registry only the sum is known; with some of them there, no bound is.
            shared = any(chain[:1] == image.diff_ids[:1] for chain in chains)
            return Room(engine_bytes=0 if shared else image.size_bytes)
        missing = self.layers(image.id).missing(chains)
        # The engine unpacks an archive to a folder of its own before it takes the layers.
        unpacked = 2 * sum(layer.unpacked for layer in missing)
        return Room(engine_bytes=unpacked, state_bytes=sum(layer.size for layer in missing))

    def _change(self, device: PlannedDevice) -> Ended:
        wait, why = FIRST_WAIT_SECONDS, "the device did not take the order"
        for tries in range(TRIES):
            if tries:
                self.view.doing(device.name, "waiting for the link")
                self.sessions.pause(wait)
                wait *= 2
            try:
                ended = self._try_to_change(device, again=tries > 0)
                if ended is not None:
                    return ended
            except LostError as error:
                why = _said(error)
            except RefusedError as error:
                # It may only be starting again.
                if error.kind != "engine":
                    raise
                why = _said(error)
            except (UnreachableError, LockedError) as error:
                # After a cut: it is not back yet, or its end of the old session is not gone yet.
                if not tries:
                    raise
                why = _said(error)
        return Ended("failed", f"tried {TRIES} times: {why}")

    def _try_to_change(self, device: PlannedDevice, *, again: bool) -> Ended | None:
        """Return how it ended; None where the order did not get to the device.

        Raises:
            LinkError: the device had not been given the order yet.
        """
        order = self.plan.order(device, self.journal.state.release)
        begin = time.monotonic()
        self.view.doing(device.name, "connecting")
        with self.sessions.session(device) as link:
            if again and not link.facts.docker:
                raise RefusedError(link.facts.docker_error, kind="engine")
            # What was true when all were asked may be hours ago.
            ended = self._before(device, link.facts)
            if ended is not None:
                return ended
            self._bring(device, link)
            self.sessions.require_going_on()
            self.journal.write("swapping", device=device.name, token=order.token)
            try:
                outcome: Outcome | None = link.swap(order, self._phases(device))
            except LostError:
                outcome = None
        if outcome is None:
            self.view.doing(device.name, "waiting for the link")
            outcome = self.sessions.outcome(device, order.token, self._order_seconds)
        return _of(outcome, time.monotonic() - begin) if outcome is not None else None

    def _bring(self, device: PlannedDevice, link: Link) -> None:
        """Give a device the image, unless it has it."""
        image = self.plan.image_of(device)
        if image.id in link.facts.images:
            return
        if self.plan.strategy.transfer == "registry":
            self.view.doing(device.name, "pulling")
            link.pull(image.reference, image.id)
            return
        self.view.doing(device.name, "sending")
        sent = link.send_image(
            self.layers(image.id), lambda done, total: self.view.sent(device.name, done, total)
        )
        self.journal.write("sent", device=device.name, bytes=sent.bytes, layers=sent.layers)

    def _phases(self, device: PlannedDevice) -> Callable[[str], None]:
        return functools.partial(self.view.doing, device.name)

    def _back(self, device: PlannedDevice, standing: Standing) -> Ended:
        if standing.phase == "returning":
            outcome = self.sessions.outcome(device, standing.token, self._order_seconds)
            if outcome is not None:
                return _of_return(outcome)
        strategy = self.plan.strategy
        with self.sessions.session(device) as link:
            ended = self._before_return(device, link.facts)
            if ended is not None:
                return ended
            previous = link.facts.state.previous
            order = RollbackOrder(
                to=previous.release if previous else "",
                mode=strategy.swap,
                patience=strategy.patience,
            )
            self.journal.write("returning", device=device.name, token=order.token)
            try:
                outcome = link.rollback(order, self._phases(device))
            except LostError:
                outcome = None
            except RefusedError as error:
                if previous is None or error.kind != "image":
                    raise
                return Ended("refused", _sent_again(error, previous.release, device))
        if outcome is None:
            outcome = self.sessions.outcome(device, order.token, self._order_seconds)
        if outcome is None:
            return Ended("failed", "the link was cut before the device took the order")
        return _of_return(outcome)

    def _before_return(self, device: PlannedDevice, facts: Facts) -> Ended | None:
        """Return why a device does not go back; None where it does."""
        state = facts.state
        if self.plan.action == "rollback":
            ended = _gone_back(state, self.plan.to)
            if ended is not None and ended.result == "already" and facts.container != "running":
                return Ended("broken", _stands_still(facts))
        else:
            ended = self._not_ours(device, state)
        if ended is None and state.previous is None:
            return Ended("refused", _nothing_before(facts))
        return ended

    def _not_ours(self, device: PlannedDevice, state: DeviceState) -> Ended | None:
        """Return that somebody else has changed a device since this rollout did."""
        running = state.current.release if state.current else "nothing"
        if running == self.plan.release_of(device, self.journal.state.release):
            return None
        return Ended("refused", f"it runs {running} by now, which is not of this rollout")

    @property
    def _order_seconds(self) -> float:
        """How long a device may take for an order, whatever happens."""
        health, strategy = self.plan.health, self.plan.strategy
        return 2 * health.timeout + health.settle + strategy.patience + ORDER_SPARE_SECONDS


def _guarded(work: Callable[[], _T]) -> _T | Ended:
    """Do some work, and make a result of what goes wrong with the device or its image."""
    begin = time.monotonic()
    try:
        return work()
    except SilentError as error:
        result: Result = "unknown"
        said = _said(error)
    except (UnreachableError, LockedError, LostError) as error:
        result, said = "unreachable", _said(error)
    except JetshipError as error:
        result, said = "failed", _said(error)
    return Ended(result, said, seconds=time.monotonic() - begin)


def _gone_back(state: DeviceState, to: str) -> Ended | None:
    """Return that a device is where it is to go, or cannot go there; None where it can."""
    current, previous = (
        rollout_of(one.release) if one else "" for one in (state.current, state.previous)
    )
    if to:
        if current == to:
            return Ended("already")
        wrong = bool(previous) and previous != to
        return Ended("refused", f"its previous release is {previous}") if wrong else None
    # Names of rollouts sort by their time. Once more would be forward again, to what somebody has
    # fled from.
    if current and previous > current:
        return Ended("already", f"it went back before, from {previous}")
    return None


def _stands_still(facts: Facts) -> str:
    """Return what is to be said of a device that is where it is to go, and does not run."""
    state = facts.state
    if not facts.docker:
        return f"no Docker engine answers there ({facts.docker_error})"
    release = state.current.release if state.current else "nothing"
    last = state.last
    reason = f"; its last change: {last.reason}" if last and last.reason else ""
    return (
        f"it has {release} already, but the container is {facts.container or 'not there'}{reason}; "
        "`invoke deploy` makes it anew"
    )


def _nothing_before(facts: Facts) -> str:
    """Return why a device has nothing to go back to."""
    if not facts.state.note:
        return "it had nothing before"
    return f"{facts.state.note}; `invoke rollback --to RELEASE` brings what that rollout brought"


def _sent_again(error: RefusedError, release: str, device: PlannedDevice) -> str:
    """Return what is to be said where the device no longer has the image it is to go back to."""
    return (
        f"{error.what}; `invoke rollback --to {rollout_of(release)} --device {device.name}` sends "
        "it again"
    )


def _said(error: JetshipError) -> str:
    """Return an error as one line, as a row of a table and a line of the journal is."""
    parts = (" ".join(part.split()) for part in (error.what, error.why, error.fix))
    return "; ".join(part for part in parts if part)


def _of(outcome: Outcome, seconds: float = 0.0) -> Ended:
    return Ended(outcome.status, outcome.reason, outcome.logs, seconds or outcome.seconds)


def _of_return(outcome: Outcome) -> Ended:
    """Return how going back ended; there, what is committed is the previous one."""
    result: Result = "reverted" if outcome.status in ("committed", "already") else outcome.status
    return Ended(result, outcome.reason, outcome.logs, outcome.seconds)

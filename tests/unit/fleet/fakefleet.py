"""Devices without a network: they keep state and lock as real ones do, and fail as told."""

import dataclasses
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from jetship.fleet.journal import Journal
from jetship.fleet.layers import LayeredImage, LayerFile
from jetship.fleet.model import (
    DeviceState,
    Facts,
    Health,
    Installed,
    Last,
    LockedError,
    LostError,
    Outcome,
    RefusedError,
    Sent,
    UnreachableError,
)
from jetship.fleet.onedevice import OneDevice
from jetship.fleet.plan import PinnedImage, Plan, PlannedDevice, Setup, make_plan, plan_back
from jetship.fleet.rollout import Rollout
from jetship.fleet.sessions import Sessions
from jetship.targets.catalog import Catalog
from jetship.targets.device import Address, Device
from jetship.targets.resolve import resolve_id
from jetship.targets.strategy import Strategy

CATALOG = Catalog.load()
TARGET = resolve_id(CATALOG, "sm87-jetpack-6.2")
OLD, NEW = "sha256:" + "0" * 64, "sha256:" + "1" * 64
DIFF_IDS = ("sha256:base", "sha256:wheel")
LAYERS = LayeredImage(
    NEW,
    b"{}",
    tuple(LayerFile(one, Path(one), "0" * 64, 100, 300) for one in DIFF_IDS),
)
IMAGE = PinnedImage("sm87-jetpack-6.2", "acme/ops:2", NEW, "2", DIFF_IDS, 600)
SETUP = Setup("sm87-jetpack-6.2", "orin", ("--runtime", "nvidia"))
FACTS = Facts(
    machine="aarch64",
    l4t="r36.4.3",
    cuda="12.6",
    model="NVIDIA Jetson AGX Orin Developer Kit",
    docker="27.1.1",
    docker_error="",
    runtimes=("runc", "nvidia"),
    containerd_store=False,
    disk_free_bytes=8 << 30,
    state_free_bytes=8 << 30,
    one_disk=True,
    memory_bytes=8 << 30,
    clock=time.time(),
    images=(OLD,),
    chains=(("sha256:base", "sha256:old"),),
    container="running",
    state=DeviceState(current=Installed(OLD, "ops-0", "20250101T000000Z.00000000")),
)


@dataclass
class FakeDevice:
    """A device.

    `fails` says how a swap ends, by default well; `cuts` in which step the link is cut, once each.
    """

    name: str
    facts: Facts = FACTS
    fails: str = ""
    unreachable: bool = False
    holder: str = ""
    cuts: list[str] = field(default_factory=list)
    engine_away: int = 0
    """How many times its engine starts again just when it is to take the image."""
    image_lost: bool = False
    """It has lost the image that it would go back to."""
    seconds: float = 0.0
    sessions: int = 0
    swaps: int = 0
    locked: bool = False
    ran: Callable[["FakeDevice", str], None] = lambda *_: None

    def open(self) -> "FakeLink":
        if self.unreachable:
            raise UnreachableError(f"{self.name} cannot be reached")
        if self.holder:
            raise LockedError(
                f"{self.name} is held by {self.holder}",
                holder=self.holder,
                release="20260101T000000Z",
                since="2026-01-01T00:00:00Z",
            )
        assert not self.locked, f"{self.name} has two sessions at once"
        self.locked = True
        self.sessions += 1
        return FakeLink(self)

    def change(self, state: DeviceState) -> None:
        self.facts = dataclasses.replace(self.facts, state=state)

    def cut(self, step: str) -> None:
        if step in self.cuts:
            self.cuts.remove(step)
            raise LostError(f"the link to {self.name} was cut")


@dataclass
class FakeLink:
    device: FakeDevice

    @property
    def facts(self) -> Facts:
        return self.device.facts

    def send_image(self, image, progress=None) -> Sent:
        self.device.ran(self.device, "sending")
        self.device.cut("sending")
        if self.device.engine_away:
            self.device.engine_away -= 1
            raise RefusedError("Cannot connect to the Docker daemon", kind="engine")
        if self.device.fails == "load":
            raise RefusedError("the engine refuses the image")
        images = (*self.device.facts.images, image.id)
        self.device.facts = dataclasses.replace(self.device.facts, images=images)
        if progress:
            progress(100, 100)
        return Sent(1, 100)

    def pull(self, reference, image) -> None:  # noqa: ARG002
        images = (*self.device.facts.images, image)
        self.device.facts = dataclasses.replace(self.device.facts, images=images)

    def swap(self, order, phases=None) -> Outcome:  # noqa: ARG002
        device = self.device
        device.ran(device, "swapping")
        device.cut("ordering")
        assert order.image in device.facts.images
        device.swaps += 1
        if device.seconds:
            time.sleep(device.seconds)
        status = {"": "committed"}.get(device.fails, device.fails)
        state = device.facts.state
        installed = Installed(order.image, f"ops-{device.swaps}", order.release)
        last = Last(order.token, "swap", order.release, status, device.fails, "now")
        if status == "committed":
            device.change(DeviceState(installed, state.current, "", last))
        else:
            device.change(dataclasses.replace(state, last=last))
        device.cut("swapping")
        return Outcome(status, device.fails, "log" if device.fails else "", 1.0, order.release)

    def rollback(self, order, phases=None) -> Outcome:  # noqa: ARG002
        device, state = self.device, self.device.facts.state
        device.ran(device, "returning")
        if device.image_lost:
            raise RefusedError("the image of its previous release is not there", kind="image")
        assert state.previous is not None
        assert order.to in ("", state.previous.release)
        last = Last(order.token, "rollback", state.previous.release, "committed", "", "now")
        device.change(DeviceState(state.previous, state.current, "", last))
        device.cut("returning")
        return Outcome("committed", "", "", 1.0, state.previous.release)

    def close(self) -> None:
        self.device.locked = False


class Silence:
    """Nobody watches."""

    def doing(self, device: str, what: str) -> None: ...
    def sent(self, device: str, done: int, total: int) -> None: ...
    def note(self, device: str, what: str) -> None: ...


def devices(names: Sequence[str]) -> list[Device]:
    board = CATALOG.board("orin")
    return [Device(name, Address("ops", name), board, TARGET, {}, ()) for name in names]


@dataclass
class FakeFleet:
    """Devices, and rollouts to them with journals in `folder`."""

    folder: Path
    members: dict[str, FakeDevice]
    says: bool = True
    asked: list[str] = field(default_factory=list)
    waited: list[float] = field(default_factory=list)

    @classmethod
    def of(cls, folder: Path, count: int, **changes: FakeDevice) -> "FakeFleet":
        names = [f"d{number}" for number in range(count)]
        return cls(folder, {name: changes.get(name, FakeDevice(name)) for name in names})

    def plan(self, **strategy: object) -> Plan:
        return make_plan(
            app="ops",
            devices=devices(list(self.members)),
            images=[IMAGE],
            setups=[SETUP],
            health=Health(),
            strategy=Strategy.model_validate(strategy),
        )

    def plan_back(self, to: str = "") -> Plan:
        members = devices(list(self.members))
        return plan_back(app="ops", devices=members, health=Health(), strategy=Strategy(), to=to)

    def begin(self, plan: Plan) -> Journal:
        return Journal.begin(self.folder, plan.to_json(), by="me@here")

    def rollout(self, journal: Journal) -> Rollout:
        """Return a rollout as its journal has it, as a resumed one is made."""
        plan = Plan.from_json(journal.state.plan)

        def wait(_event: threading.Event, seconds: float) -> None:
            self.waited.append(seconds)

        def confirm(told: str) -> str:
            self.asked.append(told)
            return "" if self.says else "the answer was no"

        sessions = Sessions(
            lambda device: self.members[device.name].open(),
            lambda device: plan.release_of(device, journal.state.release),
            wait,
        )
        work = OneDevice(plan, journal, sessions, lambda _: LAYERS, CATALOG, Silence())
        return Rollout(plan, journal, sessions, work, confirm)

    def deploy(self, **strategy: object) -> Journal:
        """Roll out, and return the journal."""
        journal = self.begin(self.plan(**strategy))
        self.rollout(journal).run()
        return journal

    def images(self) -> dict[str, str]:
        """Return which image each device runs: old or new."""
        return {
            name: {OLD: "old", NEW: "new"}[device.facts.state.current.image]
            for name, device in self.members.items()
        }


def results(journal: Journal) -> dict[str, str | None]:
    return {name: standing.result for name, standing in journal.state.devices.items()}


def planned(name: str) -> PlannedDevice:
    return PlannedDevice(name, f"ops@{name}", "orin", "sm87-jetpack-6.2")

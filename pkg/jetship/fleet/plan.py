"""From deploy.yaml and images to a plan: which device gets which image, when, and how it is run.

A plan is whole: a rollout that is resumed needs neither deploy.yaml nor the names of images, which
may both have changed since.
"""

import functools
import hashlib
import itertools
import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import TypeAdapter, ValidationError

from jetship.errors import ConfigError
from jetship.fleet.journal import GOOD, Result
from jetship.fleet.model import Health, SwapOrder
from jetship.targets.device import Device
from jetship.targets.strategy import Strategy

CONFIG_DIGITS = 8
SHOWN_NAMES = 5


@dataclass(frozen=True)
class PinnedImage:
    """The image of a target, by its id: a tag may be given to another image at any time.

    Args:
        target: id of the target that it was built for.
        name: repository:tag, for people.
        id: "sha256:...", the digest of its config.
        version: of the wheel that is in it.
        diff_ids: digests of its layers, from the bottom up.
        size_bytes: of all its layers, unpacked.
        reference: repository@sha256:..., by which a registry gives it; "" where none has it.
    """

    target: str
    name: str
    id: str
    version: str
    diff_ids: tuple[str, ...]
    size_bytes: int
    reference: str = ""


@dataclass(frozen=True)
class Setup:
    """How containers of a target are made on a board.

    Args:
        target: id of the target.
        board: name of the board.
        create: words for `docker create` before the image.
        command: what follows the image; empty: its own command.
    """

    target: str
    board: str
    create: tuple[str, ...]
    command: tuple[str, ...] = ()

    @property
    def runtime(self) -> str:
        """The container runtime that the words ask for, or ""."""
        words = [*self.create, ""]
        for one, other in itertools.pairwise(words):
            if one == "--runtime":
                return other
            if one.startswith("--runtime="):
                return one.removeprefix("--runtime=")
        return ""

    @property
    def digest(self) -> str:
        """Digits that are others where the containers are made otherwise."""
        words = json.dumps([self.create, self.command]).encode()
        return hashlib.sha256(words).hexdigest()[:CONFIG_DIGITS]


@dataclass(frozen=True)
class PlannedDevice:
    """A device of a plan, with all that is needed to reach it."""

    name: str
    address: str
    board: str
    target: str
    identity: str = ""
    known_hosts: str = ""
    python: str = "python3"
    state: str = ""


@dataclass(frozen=True)
class Wave:
    """Devices of which `parallel` are worked on at once, by their names."""

    kind: Literal["canary", "wave"]
    devices: tuple[str, ...]
    parallel: int


@dataclass(frozen=True)
class Plan:
    """A whole rollout, before it has a name.

    Args:
        app: names the containers and the folder of the state on the devices.
        devices: in the order of deploy.yaml.
        waves: what comes after what.
        images: one a target.
        setups: one for each target and board that occur.
        health: when a new container is taken for well.
        strategy: how the rollout goes.
        action: "rollback" brings devices back to what they had before; it needs no images, and
            its waves say only how many go at once.
        to: the rollout that is gone back to; "": whichever was before.
    """

    app: str
    devices: tuple[PlannedDevice, ...]
    waves: tuple[Wave, ...]
    images: tuple[PinnedImage, ...]
    setups: tuple[Setup, ...]
    health: Health
    strategy: Strategy
    action: Literal["deploy", "rollback"] = "deploy"
    to: str = ""

    @property
    def good(self) -> frozenset[Result]:
        """The results that the plan wants."""
        return GOOD if self.action == "deploy" else frozenset({"reverted", "already"})

    def wave_number(self, index: int) -> int:
        """Return what people call the wave at that place: the first behind the canaries is 1."""
        return index + (0 if self.waves[0].kind == "canary" else 1)

    @functools.cached_property
    def by_name(self) -> Mapping[str, PlannedDevice]:
        return {device.name: device for device in self.devices}

    @functools.cached_property
    def _images(self) -> Mapping[str, PinnedImage]:
        return {image.target: image for image in self.images}

    @functools.cached_property
    def _setups(self) -> Mapping[tuple[str, str], Setup]:
        return {(setup.target, setup.board): setup for setup in self.setups}

    def image_of(self, device: PlannedDevice) -> PinnedImage:
        return self._images[device.target]

    def setup_of(self, device: PlannedDevice) -> Setup:
        return self._setups[device.target, device.board]

    def release_of(self, device: PlannedDevice, rollout: str) -> str:
        """Return what a device calls the state that a rollout brings it to.

        Its end are digits of how containers are made: the same image with another environment
        is another release.
        """
        return f"{rollout}.{self.setup_of(device).digest}"

    def order(self, device: PlannedDevice, rollout: str) -> SwapOrder:
        """Return what a device is told to do."""
        setup = self.setup_of(device)
        return SwapOrder(
            release=self.release_of(device, rollout),
            image=self.image_of(device).id,
            create=setup.create,
            command=setup.command,
            mode=self.strategy.swap,
            health=self.health,
            patience=self.strategy.patience,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the plan as JSON has it."""
        document: dict[str, Any] = _PLAN.dump_python(self, mode="json")
        return document

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> "Plan":
        """Read a plan that was written down.

        Raises:
            ConfigError: it is not one, or of another jetship.
        """
        try:
            return _PLAN.validate_python(document)
        except ValidationError as error:
            first = error.errors()[0]
            raise ConfigError(
                "the plan of that rollout cannot be read by this jetship",
                why=f"{'.'.join(map(str, first['loc']))}: {first['msg']}",
                fix="finish it with the jetship that began it, or begin a new one",
            ) from error


_PLAN = TypeAdapter(Plan)


def rollout_of(release: str) -> str:
    """Return the rollout that brought a device to a release."""
    return release.rpartition(".")[0]


def same_config(release: str, other: str) -> bool:
    """Return whether two releases of devices were made by the same words."""
    return bool(release) and release.rpartition(".")[2] == other.rpartition(".")[2]


def count_of(devices: int) -> str:
    """Return a number of devices for people."""
    return f"{devices} device{'' if devices == 1 else 's'}"


def shortened(names: Sequence[str], most: int = SHOWN_NAMES) -> str:
    """Return the first of some names, and how many more there are."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def waves_of(devices: Sequence[Device], strategy: Strategy) -> Iterator[Wave]:
    """Yield the waves of a rollout to these devices: the canaries, then all others."""
    canaries, sizes = strategy.split(len(devices))
    order = _canaries_first(devices, canaries)
    names = [device.name for device in order]
    if canaries:
        yield Wave("canary", tuple(names[:canaries]), 1)
    at = canaries
    for size in sizes:
        yield Wave("wave", tuple(names[at : at + size]), strategy.parallel)
        at += size


def _canaries_first(devices: Sequence[Device], canaries: int) -> list[Device]:
    """Return the devices so that the canaries are of as many targets as there can be.

    Each target has an image of its own, and a TX2 that is well says nothing of an Orin's.
    """
    by_target: dict[str, list[Device]] = defaultdict(list)
    for device in devices:
        by_target[device.target.id].append(device)
    turns = [(turn, device) for rows in by_target.values() for turn, device in enumerate(rows)]
    turns.sort(key=lambda row: row[0])
    first = [device for _, device in turns[:canaries]]
    chosen = {device.name for device in first}
    return [*first, *(device for device in devices if device.name not in chosen)]


def planned(device: Device) -> PlannedDevice:
    """Return a device as a plan has it."""
    return PlannedDevice(
        name=device.name,
        address=str(device.address),
        board=device.board.name,
        target=device.target.id,
        identity=str(device.identity.resolve()) if device.identity else "",
        known_hosts=str(device.known_hosts.resolve()) if device.known_hosts else "",
        python=device.python,
        state=device.state,
    )


def make_plan(
    *,
    app: str,
    devices: Sequence[Device],
    images: Sequence[PinnedImage],
    setups: Sequence[Setup],
    health: Health,
    strategy: Strategy,
) -> Plan:
    """Return the plan of a rollout to these devices."""
    return Plan(
        app=app,
        devices=tuple(map(planned, devices)),
        waves=tuple(waves_of(devices, strategy)),
        images=tuple(images),
        setups=tuple(setups),
        health=health,
        strategy=strategy,
    )


def plan_back(
    *, app: str, devices: Sequence[Device], health: Health, strategy: Strategy, to: str = ""
) -> Plan:
    """Return the plan by which devices go back to what they had, all of them at once."""
    everybody = Wave("wave", tuple(device.name for device in devices), strategy.parallel)
    return Plan(
        app=app,
        devices=tuple(map(planned, devices)),
        waves=(everybody,),
        images=(),
        setups=(),
        health=health,
        strategy=strategy,
        action="rollback",
        to=to,
    )

"""The `health:` and `strategy:` of a deploy.yaml: when a device is well, and how a rollout goes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainSerializer,
    PlainValidator,
    ValidatorFunctionWrapHandler,
    WithJsonSchema,
    WrapValidator,
)

from jetship.targets.words import Word
from jetship.yamlfile import Strict

Seconds = Annotated[float, Field(gt=0, lt=1e9, allow_inf_nan=False)]
SecondsOrNone = Annotated[float, Field(ge=0, lt=1e9, allow_inf_nan=False)]


@dataclass(frozen=True)
class Share:
    """A number of devices, or a percentage of a fleet."""

    amount: int
    percent: bool = False

    def of(self, total: int) -> int:
        """Return how many of `total` devices these are; a part of a device is a whole one."""
        return -(-total * self.amount // 100) if self.percent else min(self.amount, total)

    def __str__(self) -> str:
        return f"{self.amount}%" if self.percent else str(self.amount)


def _share(value: object, least: int) -> Share:
    match = re.fullmatch(r"([0-9]{1,9})(%?)", str(value))
    if isinstance(value, bool) or match is None:
        raise ValueError(f"{value!r} is neither a number of devices nor a percentage (3 or 10%)")
    found = Share(int(match[1]), percent=bool(match[2]))
    if found.amount < least or (found.percent and found.amount > 100):
        raise ValueError(f"{value!r} is not between {least} and 100%")
    return found


def _waves(value: object, validate: ValidatorFunctionWrapHandler) -> tuple[Share, ...]:
    if not isinstance(value, list | tuple):
        return (_share(value, 1),)
    if not value:
        raise ValueError("a list of waves has at least one size")
    sizes: tuple[Share, ...] = validate(value)
    return sizes


def _pause(value: object) -> float | Literal["confirm"]:
    if value == "confirm":
        return "confirm"
    try:
        seconds = float(str(value))
    except ValueError:
        seconds = -1.0
    if isinstance(value, bool) or not 0 <= seconds < 1e9:
        raise ValueError(f"{value!r} is neither a number of seconds nor `confirm`")
    return seconds


def _size_schema(least: int) -> dict[str, Any]:
    return {
        "anyOf": [
            {"type": "integer", "minimum": least},
            {"type": "string", "pattern": f"^(?:[{least}-9]|[1-9][0-9]|100)%$"},
        ]
    }


_CanarySize = Annotated[
    Share,
    PlainValidator(lambda value: _share(value, 0)),
    PlainSerializer(str),
    WithJsonSchema(_size_schema(0)),
]
_WaveSizes = Annotated[
    tuple[Annotated[Share, PlainValidator(lambda value: _share(value, 1))], ...],
    WrapValidator(_waves),
    PlainSerializer(lambda shares: [str(share) for share in shares]),
    WithJsonSchema(
        {
            "anyOf": [
                *_size_schema(1)["anyOf"],
                {"type": "array", "minItems": 1, "items": _size_schema(1)},
            ]
        }
    ),
]
_Pause = Annotated[
    float | Literal["confirm"],
    PlainValidator(_pause),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"const": "confirm"}]}),
]


class Health(Strict):
    """When a new container is taken for well; until then the old image stays on the device."""

    selftest: bool = True
    """Whether `image.smoke` is run in the new container, on the device's own GPU."""
    command: tuple[Word, ...] = ()
    """A program with its arguments that is run in the container until it exits with 0."""
    timeout: Seconds = 120
    """Seconds that the self-test may take, and again `command` with all its repetitions."""
    interval: Seconds = 2
    """Seconds between two runs of `command`."""
    settle: SecondsOrNone = 10
    """Seconds in which the container must then keep running, without a restart."""


class Strategy(Strict):
    """How a rollout goes: `canary` devices one by one, then waves, until too many fail."""

    canary: _CanarySize = Share(1)
    """How many devices get the image first, one after another: a number, or "10%" of the fleet."""
    wave: _WaveSizes = (Share(1),)
    """How many devices then get it at a time: a number, "25%" of the fleet, or a list of these;
    the last one of a list is repeated until all devices have the image."""
    max_failures: Annotated[int, Field(ge=0)] = 0
    """The rollout stops when more devices than this have failed, counted over the whole fleet."""
    pause: _Pause = 0.0
    """Seconds between two waves, or `confirm`: wait until somebody says yes."""
    parallel: Annotated[int, Field(ge=1, le=256)] = 8
    """How many devices of a wave are worked on at once."""
    swap: Literal["replace", "beside"] = "replace"
    """`replace`: stop the old container, then start the new one (a camera has one user).
    `beside`: start the new one first, and stop the old one when the new one is well."""
    transfer: Literal["layers", "registry"] = "layers"
    """`layers`: send the layers that a device lacks over SSH. `registry`: the device pulls the
    image by its digest from `image.registry`."""
    rollback: Literal["device", "all"] = "device"
    """What goes back when a rollout stops: only the devices that failed, or all that it changed."""
    max_clock_skew: Seconds = 300
    """Seconds by which a device's clock may be wrong; TLS to a registry fails beyond."""
    patience: Seconds = 120
    """Seconds in which going back is tried again while the device's engine does not answer."""

    def split(self, devices: int) -> tuple[int, tuple[int, ...]]:
        """Return how many devices are canaries, and the size of each wave after them.

        Args:
            devices: how many the rollout goes to; percentages are of these.
        """
        canaries = self.canary.of(devices)
        return canaries, tuple(self._sizes(devices, devices - canaries))

    def _sizes(self, devices: int, left: int) -> Iterator[int]:
        number = 0
        while left:
            size = min(left, self.wave[min(number, len(self.wave) - 1)].of(devices))
            yield size
            left -= size
            number += 1

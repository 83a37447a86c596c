"""Parts that the user provides in place of the pinned ones: which were named, and where."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from jetship.targets.model import Target

PATHS = ("cuda_home", "sysroot", "torch_wheel", "python_dev", "libraries")


@dataclass(frozen=True)
class OwnParts:
    """Paths that the user gave: each takes the place of the platform's own part.

    Args:
        cuda_home: a CUDA toolkit with bin/nvcc.
        sysroot: a root folder of the target: its libc, libstdc++, headers.
        image: a container image of the target that the engine has: sysroot, torch and CUDA
            libraries in one.
        torch_wheel: a wheel of the target's torch.
        python_dev: a folder with include/pythonX.Y of the target's Python.
        libraries: what `probe` has read of a device, for checks alone.
        places: where a part was named, by its name above, where not by its option.
    """

    cuda_home: Path | None = None
    sysroot: Path | None = None
    image: str | None = None
    torch_wheel: Path | None = None
    python_dev: Path | None = None
    libraries: Path | None = None
    places: Mapping[str, str] = field(default_factory=dict, compare=False)

    def said(self, name: str) -> str:
        """Return a part as the user named it: "--cuda-home /usr/local/cuda"."""
        place = self.places.get(name) or f"--{name.replace('_', '-')}"
        return f"{place} {getattr(self, name)}"

    @property
    def named(self) -> dict[str, str]:
        """What was given, by name."""
        values = {name: getattr(self, name) for name in (*PATHS, "image")}
        return {name: str(value) for name, value in values.items() if value}

    def over(self, other: "OwnParts") -> "OwnParts":
        """Return these parts, and of `other` what they leave open.

        An image gives sysroot and torch, so it leaves neither open; and what stands in
        for a device's libraries does not give way to them.
        """
        closed = set(self.named)
        if self.image:
            closed |= {"sysroot", "torch_wheel"}
        if self.sysroot:
            closed.add("image")
        if self.image or self.sysroot or self.torch_wheel:
            closed.add("libraries")
        taken = {name: getattr(other, name) for name in other.named if name not in closed}
        places = {name: other.places[name] for name in taken if name in other.places}
        return replace(self, **taken, places={**self.places, **places})


NOTHING_OWN = OwnParts()


@dataclass(frozen=True)
class OwnSupply:
    """The user's parts for any platform: those given for all, before those of one platform."""

    given: OwnParts = NOTHING_OWN
    by_platform: Mapping[str, OwnParts] = field(default_factory=dict)

    def of(self, target: Target) -> OwnParts:
        """Return the parts for a target; one without device code needs no CUDA."""
        row = self.by_platform.get(target.platform.name, NOTHING_OWN)
        return self.given.over(row if target.code else replace(row, cuda_home=None))


NO_SUPPLY = OwnSupply()

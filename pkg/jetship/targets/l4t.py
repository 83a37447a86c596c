"""Which L4T releases run each other's images: toolchains/l4t.yaml."""

import functools
from collections.abc import Iterable
from typing import Self

from pydantic import model_validator

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.targets.releases import numbers
from jetship.yamlfile import Strict


class Line(Strict):
    """The releases from `first` on, and before `before`."""

    name: str
    first: str
    before: str

    @model_validator(mode="after")
    def _are_releases(self) -> Self:
        if not numbers(self.first) < numbers(self.before):
            raise ValueError(f"no release is from {self.first!r} on and before {self.before!r}")
        return self

    def has(self, release: str) -> bool:
        return numbers(self.first) <= numbers(release) < numbers(self.before)


class Lines(Strict):
    """The file toolchains/l4t.yaml."""

    lines: tuple[Line, ...]
    cuda_of_the_device_before: str

    def line_of(self, release: str) -> str:
        """Return the name of a release's line; a release of no line is a line of its own."""
        return next((line.name for line in self.lines if line.has(release)), release)

    def runs(self, release: str, images: Iterable[str]) -> bool:
        """Return whether a device with this release runs images for (any of) those releases."""
        own = self.line_of(release)
        return any(release == image or self.line_of(image) == own for image in images)

    def gives_cuda(self, release: str) -> bool:
        """Return whether containers have the CUDA of the device, and not one of their image."""
        return numbers(release) < numbers(self.cuda_of_the_device_before)


@functools.cache
def l4t_lines() -> Lines:
    """Return the lines that ship with jetship.

    Raises:
        ConfigError: the file is wrong.
    """
    return yamlfile.load(data_dir("toolchains") / "l4t.yaml", Lines)

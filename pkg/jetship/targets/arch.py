"""Compute capabilities, and the device code that is made for them."""

import re
from dataclasses import dataclass
from functools import total_ordering
from typing import Annotated, Self

from pydantic import AfterValidator, BeforeValidator


@total_ordering
@dataclass(frozen=True)
class Arch:
    """A CUDA compute capability, such as 6.2."""

    major: int
    minor: int

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "6.2" or "sm_62".

        Raises:
            ValueError: the text is neither.
        """
        match = re.fullmatch(r"([0-9]{1,2})\.([0-9])", text) or re.fullmatch(
            r"sm_([0-9]{1,2})([0-9])", text
        )
        if match is None:
            raise ValueError(f"{text!r} is not a compute capability such as 6.2")
        return cls(int(match[1]), int(match[2]))

    def __str__(self) -> str:
        return f"{self.major}.{self.minor}"

    def __lt__(self, other: "Arch") -> bool:
        return (self.major, self.minor) < (other.major, other.minor)

    @property
    def number(self) -> str:
        """The digits that nvcc uses: "62" in sm_62 and compute_62."""
        return f"{self.major}{self.minor}"


@dataclass(frozen=True)
class DeviceCode:
    """What to compile for one arch: SASS (sm_XY), and PTX (compute_XY) where asked for."""

    arch: Arch
    ptx: bool = False

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read "6.2" or "6.2+PTX".

        Raises:
            ValueError: the text is neither.
        """
        plain = text.removesuffix("+PTX")
        return cls(Arch.parse(plain), ptx=plain != text)

    def __str__(self) -> str:
        return f"{self.arch}+PTX" if self.ptx else str(self.arch)


def _as_text(value: object) -> object:
    """Return a whole number as text: YAML has one where somebody wrote 7 for an arch."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def _parses(text: str) -> str:
    Arch.parse(text)
    return text


ArchText = Annotated[str, BeforeValidator(_as_text), AfterValidator(_parses)]
"""A compute capability in a YAML file; what is none is an error of the file."""

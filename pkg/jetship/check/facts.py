"""What the rules look at: a wheel, its target, and the libraries that are there."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from jetship.check.findings import Finding
from jetship.check.libraries import TargetLibraries
from jetship.check.wheel import Member, Wheel
from jetship.elf import ElfFile
from jetship.targets.model import Platform, Target


@dataclass(frozen=True)
class Facts:
    """All that a rule may know; `libraries` includes those that the wheel itself brings."""

    wheel: Wheel
    target: Target
    libraries: TargetLibraries

    @property
    def platform(self) -> Platform:
        return self.target.platform

    @property
    def loadable(self) -> Iterator[tuple[Member, ElfFile]]:
        """The files that the target's loader would take; of all others rule `elf` fails."""
        for member, elf in self.wheel.readable:
            if elf.machine == self.platform.machine:
                yield member, elf


Rule: TypeAlias = Callable[[Facts], Iterable[Finding]]

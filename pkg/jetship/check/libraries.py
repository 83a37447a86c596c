"""What the libraries on the target export, and how its loader would find a symbol in them.

There is no cache on disk: the tables of a whole sysroot and torch are read in about a second.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from jetship.check.findings import Grade
from jetship.elf import MAGIC, ElfError, ElfFile, Undefined, read_elf
from jetship.errors import CheckError
from jetship.toolchain.model import Toolchain


@dataclass(frozen=True)
class Library:
    """One library that is on the target, under a name by which others need it.

    `grade` says how near this copy is to the target's own.
    """

    name: str
    elf: ElfFile
    grade: Grade = "exact"

    def answers(self, symbol: Undefined) -> bool:
        """Return whether the loader takes this library's definition for `symbol`."""
        versions = self.elf.exports.get(symbol.name)
        if versions is None:
            return False
        if symbol.version is None:
            return "" in versions
        # A library without version records answers any version, unless it is the named one.
        unversioned = not self.elf.version_definitions and symbol.library != self.name
        return symbol.version in versions or unversioned


@dataclass(frozen=True)
class Scope:
    """Where the loader looks for a file's symbols, and the libraries missing from there."""

    libraries: tuple[Library, ...]
    untabled: tuple[str, ...]

    @property
    def names(self) -> Set[str]:
        return {library.name for library in self.libraries}

    def find(self, symbol: Undefined) -> Library | None:
        """Return the first library that defines the symbol."""
        return next((library for library in self.libraries if library.answers(symbol)), None)


@dataclass(frozen=True)
class TargetLibraries:
    """The libraries of a target by soname.

    `stubs` names those that only look like libraries, `own` those that only the wheel brings.
    `interpreter` is the soname (or file name) under which the table of Python itself stands:
    extension modules take its symbols from the running program. `demangler` is the program
    that turns mangled names into C++ ones, for the report.
    """

    libraries: Mapping[str, Library] = field(default_factory=dict)
    stubs: frozenset[str] = frozenset()
    interpreter: str | None = None
    own: Set[str] = frozenset()
    demangler: Path | None = None

    @classmethod
    def of(cls, toolchain: Toolchain) -> Self:
        """Read the libraries of a toolchain's sysroot and torch.

        Raises:
            CheckError: a library of the toolchain is damaged.
        """
        found: dict[str, Library] = {}
        for folder in _folders(toolchain):
            for path in _elf_files(folder, toolchain.root):
                elf = _read(path)
                if elf.machine == toolchain.platform.machine and elf.dynamic:
                    name = elf.soname or path.name
                    found.setdefault(name, Library(name, elf))
        stubs = frozenset(path.name for path in toolchain.stubs.glob("*.so*"))
        version = toolchain.platform.python.version
        names = (f"libpython{version}.so.1.0", f"python{version}")
        return cls(
            found,
            stubs,
            next((name for name in names if name in found), None),
            demangler=toolchain.bin / f"{toolchain.multiarch}-c++filt",
        )

    def with_wheel(self, members: Iterable[tuple[str, ElfFile]]) -> Self:
        """Return these libraries and those that the wheel itself brings, by file name.

        The loader opens a file by its name, and takes a soname for one that is loaded already.
        """
        found = dict(self.libraries)
        for name, elf in members:
            found[name] = Library(name, elf)
            if elf.soname:
                found.setdefault(elf.soname, Library(elf.soname, elf))
        return replace(self, libraries=found, own=found.keys() - self.libraries.keys())

    def scope(self, elf: ElfFile) -> Scope:
        """Return all that is loaded with `elf`: what it needs, what that needs, and Python."""
        found: dict[str, Library] = {}
        untabled: list[str] = []
        first = [*elf.needed, self.interpreter] if self.interpreter else list(elf.needed)
        waiting = [*first]
        for name in waiting:
            if name in found or name in untabled:
                continue
            library = self.libraries.get(name)
            if library is None:
                untabled.append(name)
            else:
                found[name] = library
                waiting += library.elf.needed  # grows while it is walked: breadth first
        return Scope((Library(elf.soname or "itself", elf), *found.values()), tuple(untabled))


def _folders(toolchain: Toolchain) -> Iterator[Path]:
    for base in (toolchain.sysroot / "lib", toolchain.sysroot / "usr/lib"):
        yield base / toolchain.multiarch
        yield base
    yield toolchain.sysroot / "usr/bin"
    yield toolchain.torch / "lib"
    yield from sorted(toolchain.site_packages.glob("*.libs"))


def _elf_files(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the ELF files that lie right in `folder`.

    Links are left out: an absolute one would lead to a library of the build machine.
    """
    if not folder.is_dir() or not folder.resolve().is_relative_to(root.resolve()):
        return
    with os.scandir(folder) as entries:
        paths = sorted(entry.path for entry in entries if entry.is_file(follow_symlinks=False))
    for path in map(Path, paths):
        wanted = ".so" in path.name or path.name.startswith("python")
        if wanted and _starts_as_elf(path):
            yield path


def _starts_as_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _read(path: Path) -> ElfFile:
    try:
        return read_elf(path)
    except ElfError as error:
        raise CheckError(
            f"{path} of the toolchain is damaged",
            why=str(error),
            fix="delete this toolchain's folder and run `invoke toolchain` again",
        ) from error

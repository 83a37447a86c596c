"""What the libraries on the target export, and how its loader would find a symbol in them.

There is no cache on disk: the tables of a whole sysroot and torch are read in about a second.
"""

import os
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from jetship.check import mangled
from jetship.check.findings import Grade
from jetship.check.symboltables import symbol_table
from jetship.elf import MAGIC, ElfError, ElfFile, Undefined, read_elf
from jetship.errors import CheckError
from jetship.targets.model import Platform
from jetship.toolchain.model import SITE_PACKAGES, Toolchain


@dataclass(frozen=True)
class Library:
    """One library that is on the target, under a name by which others need it.

    `grade` says how near this copy is to the target's own. `other_abi` is set where this build
    has the other C++ ABI of std::string than the target's, and says which: then names are
    compared without it, and those of that ABI itself mean nothing. `partial` says that only some
    of its names are known, so that a missing one means nothing.
    """

    name: str
    elf: ElfFile
    grade: Grade = "exact"
    other_abi: str | None = None
    partial: bool = False

    def answers(self, symbol: Undefined) -> bool:
        """Return whether the loader takes this library's definition for `symbol`."""
        versions = self.elf.exports.get(symbol.name)
        if versions is None or self.has_only_as_twin(symbol):
            return False
        if symbol.version is None:
            return "" in versions
        # A library without version records answers any version, unless it is the named one.
        unversioned = not self.elf.version_definitions and symbol.library != self.name
        return symbol.version in versions or unversioned

    def has_only_as_twin(self, symbol: Undefined) -> bool:
        """Return whether the target's own build cannot have this name: it is of the other ABI."""
        return self.other_abi is not None and mangled.string_abi(symbol.name) == self.other_abi


@dataclass(frozen=True)
class Scope:
    """Where the loader looks for a file's symbols, and the libraries missing from there."""

    libraries: tuple[Library, ...]
    untabled: tuple[str, ...]
    demangler: Path | None = None

    @property
    def names(self) -> Set[str]:
        return {library.name for library in self.libraries}

    def find(self, symbol: Undefined) -> Library | None:
        """Return the first library that defines the symbol."""
        exact = next((library for library in self.libraries if library.answers(symbol)), None)
        return exact or self._find_in_other_abi(symbol)

    def _find_in_other_abi(self, symbol: Undefined) -> Library | None:
        """Return the library whose build for the other C++ ABI has the same C++ name."""
        qualified = mangled.qualified_name(symbol.name)
        if qualified is None or self.demangler is None or symbol.version is not None:
            return None
        for library in self.libraries:
            if library.other_abi is None or library.has_only_as_twin(symbol):
                continue
            near = [name for name in library.elf.exports if qualified in name]
            known = mangled.demangle([symbol.name, *near], self.demangler)
            wanted = mangled.without_string_abi(known.get(symbol.name, symbol.name))
            if any(mangled.without_string_abi(known.get(name, name)) == wanted for name in near):
                return library
        return None


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
        platform = toolchain.platform
        found: dict[str, Library] = {}
        for folder in _folders(toolchain):
            link = folder.relative_to(toolchain.root).parts[0]
            grade = toolchain.evidence(link)
            for path in _elf_files(folder, toolchain.root / link):
                elf = _read(path)
                if elf.machine == platform.machine and elf.dynamic:
                    name = elf.soname or path.name
                    found.setdefault(name, _graded(name, elf, platform, grade))
        stubs = frozenset(path.name for path in toolchain.stubs.glob("*.so*"))
        derived = toolchain.evidence(SITE_PACKAGES) == "derived"
        for name in stubs - set(found):
            table = symbol_table(toolchain, name) if derived else None
            if table is not None:
                elf = _elf_of(name, table.names, platform)
                library = _graded(name, elf, platform, "derived")
                found[name] = replace(library, partial=table.partial)
        version = platform.python.version
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
        return Scope(
            (Library(elf.soname or "itself", elf), *found.values()), tuple(untabled), self.demangler
        )


def _graded(name: str, elf: ElfFile, platform: Platform, grade: Grade) -> Library:
    if grade == "exact":
        return Library(name, elf)
    wanted = "cxx11" if platform.torch.cxx11_abi else "pre-cxx11"
    other = "pre-cxx11" if platform.torch.cxx11_abi else "cxx11"
    abis = {mangled.string_abi(export) for export in elf.exports if mangled.in_torch(export)}
    other_abi = other if other in abis and wanted not in abis else None
    return Library(name, elf, "derived", other_abi=other_abi)


def _elf_of(name: str, exports: frozenset[str], platform: Platform) -> ElfFile:
    return ElfFile(
        machine=platform.machine,
        bits=64,
        little_endian=True,
        type="shared",
        dynamic=True,
        soname=name,
        exports=dict.fromkeys(exports, ("",)),
    )


def _folders(toolchain: Toolchain) -> Iterator[Path]:
    """Yield every folder with libraries: below a link of the toolchain, or that link itself."""
    sysroot = toolchain.sysroot
    for base in (sysroot / "lib", sysroot / "usr/lib"):
        yield base / toolchain.multiarch
        yield base
    yield sysroot / "usr/bin"
    yield toolchain.torch / "lib"
    yield from sorted(toolchain.site_packages.glob("*.libs"))
    yield from toolchain.cuda_libraries


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
            fix="delete its folder in the cache and run the same command again",
        ) from error

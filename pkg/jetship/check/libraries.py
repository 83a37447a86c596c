"""What the libraries on the target export, and how its loader would find a symbol in them."""

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Self

from jetship.check import mangled, symboltables
from jetship.check.findings import Grade
from jetship.check.libraryfolders import table_of
from jetship.check.symboltables import WrittenTable
from jetship.check.tablefile import SymbolTable, TabledExports, TabledLibrary
from jetship.elf import ElfFile, Undefined, version_key
from jetship.targets.model import Platform
from jetship.toolchain.model import CUDA, CUDA_TARGET, SITE_PACKAGES, SYSROOT, Toolchain

LINKS = (SYSROOT, SITE_PACKAGES, CUDA_TARGET, CUDA)
_LIBC = "libc.so.6"
# What glibc 2.34 took into libc.so.6 (its NEWS): a stand-in that is older has it in files of its
# own. And before that release, what every CPython is linked to, whose modules find it there.
_MERGED_SINCE = (2, 34)
_MERGED = ("libpthread.so.0", "libdl.so.2", "libutil.so.1", "libanl.so.1", "librt.so.1")
_PYTHON_NEEDS = (_LIBC, "libm.so.6", "libdl.so.2", "libpthread.so.0")


@dataclass(frozen=True)
class Library:
    """One library that is on the target, under a name by which others need it.

    `grade` says how near this copy is to the target's own. `other_abi` is set where this build
    has the other C++ ABI of std::string than the target's, and says which: then names are
    compared without it, and those of that ABI itself mean nothing. `partial` says that only some
    of its names are known; `may_have` whether one that is missing means nothing.
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

    def may_have(self, symbol: Undefined) -> bool:
        """Return whether this library may define a symbol of which its table says nothing."""
        if not self.partial:
            return False
        if self.name.startswith("python"):
            return symbol.library is None and mangled.is_pythons(symbol.name)
        if self.name in symboltables.TORCH_LIBRARIES:
            return mangled.in_torch(symbol.name) and symboltables.is_of_kernels(symbol.name)
        if symbol.library is not None:
            return symbol.library == self.name
        # What was linked against an import stub asks for no version, so only the name can tell.
        if self.name.startswith(("libcu", "libnv")):
            return symbol.name.startswith(("cu", "nv", "__cu", "__nv"))
        return mangled.in_torch(symbol.name)

    def is_older_than(self, version: str) -> bool:
        """Return whether this copy stands in for the target's own, and lacks a version of it."""
        return self.grade == "derived" and version not in self.elf.version_definitions

    def spelled(self, qualified: str) -> Iterable[str]:
        """Return the exported names that share a C++ name (`mangled.qualified_name`)."""
        exports = self.elf.exports
        if isinstance(exports, TabledExports):
            return exports.spelled(qualified)
        if qualified not in self._all_names:
            return []
        near = (name for name in exports if qualified in name)
        return [name for name in near if mangled.qualified_name(name) == qualified]

    @functools.cached_property
    def _all_names(self) -> str:
        """All exported names as one text, which is searched ten times as fast as one by one."""
        return "\n".join(self.elf.exports)

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
            near = [*library.spelled(qualified)]
            if not near:
                continue
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
        """Read the libraries of a toolchain's sysroot, torch and CUDA.

        Raises:
            CheckError: a library of the toolchain is damaged.
        """
        places = [
            Place(link, table_of(toolchain.root / link, link, toolchain.platform.machine),
                  toolchain.evidence(link))
            for link in LINKS
        ]  # fmt: skip
        stubs = {path.name for path in toolchain.stubs.glob("*.so*")}
        demangler = toolchain.bin / f"{toolchain.multiarch}-c++filt"
        own_cuda = CUDA_TARGET in toolchain.own
        written = written_down(toolchain.platform, places, own_cuda=own_cuda)
        return cls.assembled(toolchain.platform, [*places], written, stubs, demangler)

    @classmethod
    def assembled(
        cls,
        platform: Platform,
        places: Sequence["Place"],
        written: Iterable[Library],
        stubs: Iterable[str],
        demangler: Path,
    ) -> Self:
        """Put together the libraries of several places, the first of a name before others.

        Args:
            platform: whose they are.
            places: where they lie, in the loader's order.
            written: those that stand for what no place has.
            stubs: names of import stubs.
            demangler: see above.
        """
        found: dict[str, Library] = {}
        for place in places:
            for index, row in enumerate(place.table.libraries):
                if row.machine == platform.machine:
                    exports = TabledExports(place.table, index)
                    library = _graded(row, _elf_of(row, exports), platform, place.grade)
                    found.setdefault(row.name, library)
        for library in written:
            found.setdefault(library.name, library)
        if version_key(platform.abi.glibc) >= _MERGED_SINCE and _LIBC in found:
            found[_LIBC] = _merged(found[_LIBC])
        version = platform.python.version
        names = (f"libpython{version}.so.1.0", f"python{version}")
        interpreter = next((name for name in names if name in found), None)
        return cls(found, frozenset(stubs), interpreter, demangler=demangler)

    def grade_of(self, names: Iterable[str]) -> Grade:
        """Return how near to the target's own those of the libraries are that have these names."""
        grades = {self.libraries[name].grade for name in names if name in self.libraries}
        if not grades:
            return "none"
        return "exact" if grades == {"exact"} else "derived"

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
        waiting = [*elf.needed, *([self.interpreter] if self.interpreter else [])]
        if self.interpreter is None or self.libraries[self.interpreter].partial:
            waiting += [name for name in _PYTHON_NEEDS if name in self.libraries]
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


@dataclass(frozen=True)
class Place:
    """Where some of a target's libraries lie: a link of its toolchain, and the table of that."""

    link: str
    table: SymbolTable
    grade: Grade


def written_down(
    platform: Platform,
    places: Sequence[Place],
    *,
    own_cuda: bool,
    pinned: Set[str] = frozenset(),
) -> Iterator[Library]:
    """Yield what was written down of libraries, where it is evidence for a platform's.

    Args:
        platform: the one that is asked about.
        places: where its libraries lie; those in them come before what was written down.
        own_cuda: whether the target's own CUDA is among them: then nothing else speaks for it.
        pinned: digests of what the platform's CUDA is made of. A table that was read from one of
            these is of the platform's very own library.
    """
    for path in symboltables.tables_of(f"python-{platform.python.version}"):
        yield _written(symboltables.read_table(path), platform, "derived")
    for place in places:
        version = place.table.facts.get("torch", "")
        if place.link == SITE_PACKAGES and place.grade == "derived" and version:
            for path in symboltables.tables_of(f"torch-{version.partition('+')[0]}"):
                yield _written(symboltables.read_table(path), platform, "derived")
    release = None if own_cuda else symboltables.cuda_release(platform)
    if release is None:
        return
    runtime = f"{platform.cuda.runtime_soname}.txt"
    for path in symboltables.tables_of(f"cuda-{release}"):
        # Where torch has no CUDA there is the runtime, if anything: see accept_unknown.
        if platform.torch.cuda is None and path.name != runtime:
            continue
        table = symboltables.read_table(path)
        own = bool(table.sources & pinned) and platform.evidence == "exact"
        library = _written(table, platform, "exact" if own else "derived")
        yield replace(library, partial=release != platform.cuda.version)


def _written(table: WrittenTable, platform: Platform, grade: Grade) -> Library:
    elf = table.elf(platform.machine)
    other_abi = _other_abi(table.string_abis, platform) if grade == "derived" else None
    return Library(table.name, elf, grade, other_abi=other_abi, partial=table.partial)


def _merged(libc: Library) -> Library:
    """Return the C library with what is in it on the target, but beside it where it stands in."""
    if not libc.is_older_than("GLIBC_2.34"):
        return libc
    return replace(libc, elf=replace(libc.elf, needed=(*libc.elf.needed, *_MERGED)))


def _graded(row: TabledLibrary, elf: ElfFile, platform: Platform, grade: Grade) -> Library:
    if grade == "exact":
        return Library(row.name, elf)
    return Library(row.name, elf, "derived", other_abi=_other_abi(row.string_abis, platform))


def _other_abi(abis: Iterable[str], platform: Platform) -> str | None:
    """Return the C++ ABI of torch's names where it is not the target's."""
    wanted = "cxx11" if platform.torch.cxx11_abi else "pre-cxx11"
    other = "pre-cxx11" if platform.torch.cxx11_abi else "cxx11"
    found = {*abis}
    return other if other in found and wanted not in found else None


def _elf_of(row: TabledLibrary, exports: TabledExports) -> ElfFile:
    return ElfFile.tabled(
        row.machine,
        soname=row.soname,
        needed=row.needed,
        version_definitions=row.version_definitions,
        exports=exports,
    )

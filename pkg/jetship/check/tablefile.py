"""The symbol tables of many libraries in one compact file, in which single names are looked up.

    magic, CRC-32 of all that follows, length of the head     one struct
    head       zlib'd JSON: the libraries, sets of versions, and the first name of each block
    blocks     64 lines each, zlib'd; sorted by name: "name library.versions library.versions"

A check asks for some hundred names of a wheel among tens of thousands, so only the blocks that
have them are unpacked. Measured for torch 2.5.1 (52,000 names, 500 questions): 0.5 MB and 20 ms,
where SQLite takes 6 MB and 10 ms and JSON 0.9 MB and 50 ms; and the whole file is small enough to
be verified each time it is opened.
"""

import bisect
import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby, product
from pathlib import Path
from typing import Any, Self, TypeAlias

from jetship.check import mangled
from jetship.elf import ElfFile

_MAGIC = b"JETSYM01"  # the last two digits are the format's version
_START = struct.Struct("<8sII")
_LINES = 64
_SEPARATORS = {" ", "\n"}  # no compiler makes names with these

# All beginnings that `mangled.qualified_name` reads a name from.
_QUALIFIERS = tuple("".join(one) for one in product(("", "r"), ("", "V"), ("", "K")))
_BEGINNINGS = tuple(
    f"_Z{special}{nested}"
    for special in ("", "TV", "TI", "TS", "TT")
    for nested in ("", *(f"N{qualifiers}" for qualifiers in _QUALIFIERS))
)

Owners: TypeAlias = Mapping[int, tuple[str, ...]]
_NOBODY: Owners = {}


class DamagedTableError(Exception):
    """The bytes are no table of this version, or were changed or cut off."""


@dataclass(frozen=True)
class TabledLibrary:
    """What is known of one library apart from its names.

    `name` is by which others need it, `folder` where it lay; `string_abis` are those of which
    its names in torch's namespaces speak ("cxx11", "pre-cxx11").
    """

    name: str
    folder: str
    machine: str
    soname: str | None
    needed: tuple[str, ...]
    version_definitions: tuple[str, ...]
    string_abis: tuple[str, ...]
    names: int


@dataclass(frozen=True)
class SymbolTable:
    """A table that is open; `libraries` are in the order in which they were found.

    `facts` is what else was read where the libraries lay: "torch", its version.
    """

    libraries: tuple[TabledLibrary, ...]
    facts: Mapping[str, str]
    _sets: tuple[tuple[str, ...], ...] = field(repr=False)
    _firsts: tuple[str, ...] = field(repr=False)
    _ends: tuple[int, ...] = field(repr=False)
    _blocks: bytes = field(repr=False)
    _open: dict[int, Mapping[str, str]] = field(default_factory=dict, repr=False, compare=False)
    _found: dict[str, Owners] = field(default_factory=dict, repr=False, compare=False)
    _near: dict[str, Mapping[str, Owners]] = field(default_factory=dict, repr=False, compare=False)

    @classmethod
    def load(cls, data: bytes) -> Self:
        """Open a table.

        Raises:
            DamagedTableError: it is none of this version, or is damaged.
        """
        if len(data) < _START.size or data[: len(_MAGIC)] != _MAGIC:
            raise DamagedTableError("it is no symbol table of this version")
        _, checksum, size = _START.unpack_from(data)
        if zlib.crc32(data[_START.size - 4 :]) != checksum:
            raise DamagedTableError("its content is not what was written")
        head = json.loads(zlib.decompress(data[_START.size : _START.size + size]))
        return cls(
            libraries=tuple(_library(row) for row in head["libraries"]),
            facts=head["facts"],
            _sets=tuple(tuple(one) for one in head["sets"]),
            _firsts=tuple(head["firsts"]),
            _ends=tuple(head["ends"]),
            _blocks=data[_START.size + size :],
        )

    @classmethod
    def read(cls, path: Path) -> Self:
        """Open a table's file; raises as `load`, or OSError."""
        return cls.load(path.read_bytes())

    def find(self, name: str) -> Owners:
        """Return the libraries that export a name, by index, with the versions it answers to."""
        found = self._found.get(name)
        if found is None:
            place = bisect.bisect_right(self._firsts, name) - 1
            line = self._block(place).get(name) if place >= 0 else None
            found = self._found[name] = self._owners(line) if line else _NOBODY
        return found

    def spelled(self, qualified: str) -> Mapping[str, Owners]:
        """Return the exported names that share a C++ name, and the libraries that have each."""
        if qualified not in self._near:
            self._near[qualified] = {
                name: self._owners(line)
                for beginning in _BEGINNINGS
                for name, line in self._beginning(f"{beginning}{qualified}")
                if mangled.qualified_name(name) == qualified
            }
        return self._near[qualified]

    def names(self) -> Iterator[tuple[str, Owners]]:
        """Yield all names in order; nothing of them is kept in memory."""
        for place in range(len(self._firsts)):
            for name, line in self._unpacked(place):
                yield name, self._owners(line)

    def _beginning(self, prefix: str) -> Iterator[tuple[str, str]]:
        place = max(bisect.bisect_left(self._firsts, prefix) - 1, 0)
        while place < len(self._firsts) and (
            self._firsts[place] <= prefix or self._firsts[place].startswith(prefix)
        ):
            block = self._block(place)
            names = [*block]  # sorted, as all of the table
            for name in names[bisect.bisect_left(names, prefix) :]:
                if not name.startswith(prefix):
                    return
                yield name, block[name]
            place += 1

    def _block(self, place: int) -> Mapping[str, str]:
        if place not in self._open:
            self._open[place] = dict(self._unpacked(place))
        return self._open[place]

    def _unpacked(self, place: int) -> Iterator[tuple[str, str]]:
        start = self._ends[place - 1] if place else 0
        text = zlib.decompress(self._blocks[start : self._ends[place]]).decode()
        for line in text.split("\n"):
            name, _, owners = line.partition(" ")
            yield name, owners

    def _owners(self, line: str) -> dict[int, tuple[str, ...]]:
        pairs = (owner.split(".") for owner in line.split(" "))
        return {int(library): self._sets[int(versions)] for library, versions in pairs}


def pack(libraries: Iterable[tuple[str, str, ElfFile]], facts: Mapping[str, str]) -> bytes:
    """Return the table of libraries, each with its folder, its name and what it exports.

    The first of a name is the one that the loader finds, so later ones are left out.
    """
    rows: list[TabledLibrary] = []
    sets: dict[tuple[str, ...], int] = {}
    lines: list[str] = []
    seen: set[str] = set()
    for folder, name, elf in libraries:
        if name in seen:
            continue
        seen.add(name)
        lines += (
            f"{export} {len(rows)}.{sets.setdefault(versions, len(sets))}"
            for export, versions in elf.exports.items()
            if not _SEPARATORS & {*export}
        )
        rows.append(_row(folder, name, elf))
    lines.sort(key=_name_of)
    merged = [_merged(name, same) for name, same in groupby(lines, _name_of)]
    blocks = [
        zlib.compress("\n".join(merged[start : start + _LINES]).encode(), 6)
        for start in range(0, len(merged), _LINES)
    ]
    ends, end = [], 0
    for block in blocks:
        end += len(block)
        ends.append(end)
    head = {
        "libraries": [vars(row) for row in rows],
        "facts": dict(facts),
        "sets": list(sets),
        "firsts": [_name_of(line) for line in merged[::_LINES]],
        "ends": ends,
    }
    packed = zlib.compress(json.dumps(head).encode(), 6)
    body = b"".join([struct.pack("<I", len(packed)), packed, *blocks])
    return _MAGIC + struct.pack("<I", zlib.crc32(body)) + body


def _name_of(line: str) -> str:
    return line.partition(" ")[0]


def _merged(name: str, lines: Iterable[str]) -> str:
    return " ".join([name, *(line.partition(" ")[2] for line in lines)])


def _row(folder: str, name: str, elf: ElfFile) -> TabledLibrary:
    abis = {mangled.string_abi(export) for export in elf.exports if mangled.in_torch(export)}
    return TabledLibrary(
        name=name,
        folder=folder,
        machine=elf.machine,
        soname=elf.soname,
        needed=elf.needed,
        version_definitions=elf.version_definitions,
        string_abis=tuple(sorted(abi for abi in abis if abi)),
        names=len(elf.exports),
    )


def _library(row: Mapping[str, object]) -> TabledLibrary:
    return TabledLibrary(
        **{key: tuple(value) if isinstance(value, list) else value for key, value in row.items()}  # type: ignore[arg-type]
    )


@dataclass(frozen=True)
class TabledExports(Mapping[str, tuple[str, ...]]):
    """The exports of one library of a table, looked up as they are asked for."""

    table: SymbolTable = field(repr=False)
    library: int

    def __getitem__(self, name: str) -> tuple[str, ...]:
        return self.table.find(name)[self.library]

    def get(self, name: str, default: Any = None) -> Any:
        """Return the versions, or the default, without the exception that is Mapping's way."""
        return self.table.find(name).get(self.library, default)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and self.library in self.table.find(name)

    def spelled(self, qualified: str) -> list[str]:
        """Return those that share a C++ name."""
        near = self.table.spelled(qualified)
        return [name for name, owners in near.items() if self.library in owners]

    def __iter__(self) -> Iterator[str]:
        return (name for name, owners in self.table.names() if self.library in owners)

    def __len__(self) -> int:
        return self.table.libraries[self.library].names

"""The tables of an ELF file, read the way the dynamic loader reads them.

The loader goes by the dynamic segment, so a file whose section headers were stripped or lie
gives the same answer here. Not by pyelftools: libtorch_cpu.so has some 200,000 dynamic
symbols, which take it long, and damaged bytes have to end in one class of error.
"""

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from jetship._elfbytes import Data, ElfError, Section, Undefined, cut, text, unpack

# Tags of the dynamic segment.
_NULL, _NEEDED, _PLTRELSZ, _HASH, _STRTAB, _SYMTAB, _RELA, _RELASZ = 0, 1, 2, 4, 5, 6, 7, 8
_STRSZ, _SONAME, _RPATH, _TEXTREL, _JMPREL, _RUNPATH, _FLAGS = 10, 14, 15, 22, 23, 29, 30
_GNU_HASH, _VERSYM, _VERDEF, _VERDEFNUM = 0x6FFFFEF5, 0x6FFFFFF0, 0x6FFFFFFC, 0x6FFFFFFD
_VERNEED, _VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF

_KINDS = {0: "notype", 1: "object", 2: "func", 6: "tls", 10: "ifunc"}
_BINDINGS = {1: "global", 2: "weak", 10: "unique"}
_HIDDEN = 0x8000
_NO_VERSION: tuple[None, None] = (None, None)
_MAX_VERSION_RECORDS = 1 << 16
# The smallest page that Linux has on the machines here: a loader takes no smaller alignment.
_PAGE = 4096
_PT_GNU_STACK = 0x6474E551


@dataclass(frozen=True)
class Versions:
    """The version records; `by_index` gives the name, and the library for a needed one."""

    needs: Mapping[str, tuple[str, ...]]
    definitions: tuple[str, ...]
    by_index: Mapping[int, tuple[str, str | None]]


@dataclass(frozen=True)
class Tables:
    """The dynamic segment of a 64-bit little-endian file."""

    data: Data
    loads: tuple[tuple[int, int, int], ...]  # address, file offset, size in the file
    entries: tuple[tuple[int, int], ...]  # tag, value
    dynsym: Section | None
    executable_stack: bool | None

    @classmethod
    def find(cls, data: Data, sections: tuple[Section, ...]) -> "Tables | None":
        """Return the dynamic segment, or None where the file has none."""
        (start,) = unpack("<Q", data, 32)
        size, count = unpack("<HH", data, 54)
        if count and size != 56:
            raise ElfError("its program header table is damaged")
        # Type, flags, offset, address, physical address, size in the file, in memory, alignment.
        rows = list(struct.iter_unpack("<IIQQQQQQ", cut(data, start, 56 * count)))
        dynamic = next((row for row in rows if row[0] == 2), None)
        if dynamic is None:
            return None
        loads = tuple((row[3], row[2], row[5]) for row in rows if row[0] == 1)
        if any(offset + size > len(data) for _, offset, size in loads):
            raise ElfError("it is cut off: a segment that the loader maps lies outside of it")
        _refuse_unmappable(rows)
        body = cut(data, dynamic[2], dynamic[5] // 16 * 16)
        entries = []
        for tag, value in struct.iter_unpack("<QQ", body):
            if tag == _NULL:
                break
            entries.append((tag, value))
        dynsym = next((section for section in sections if section.name == ".dynsym"), None)
        stack = next((bool(row[1] & 1) for row in rows if row[0] == _PT_GNU_STACK), None)
        return cls(data, loads, tuple(entries), dynsym, stack)

    @property
    def soname(self) -> str | None:
        return next(iter(self._names(_SONAME)), None)

    @property
    def needed(self) -> tuple[str, ...]:
        return self._names(_NEEDED)

    @property
    def rpath(self) -> str | None:
        return next(iter(self._names(_RPATH)), None)

    @property
    def runpath(self) -> str | None:
        return next(iter(self._names(_RUNPATH)), None)

    @property
    def text_relocations(self) -> bool:
        """Whether the loader has to write into the code (DT_TEXTREL, or DF_TEXTREL)."""
        return any(tag == _TEXTREL for tag, _ in self.entries) or bool(self._value(_FLAGS) & 4)

    def versions(self) -> Versions:
        """Return the version records that this file needs and defines."""
        strings = self._strings()
        needs: dict[str, list[str]] = {}
        by_index: dict[int, tuple[str, str | None]] = {}
        for library, version, index in self._needs(strings):
            needs.setdefault(library, []).append(version)
            by_index[index] = (version, library)
        definitions = []
        for version, index, base in self._definitions(strings):
            by_index[index] = (version, None)
            if not base:
                definitions.append(version)
        frozen = {library: tuple(asked) for library, asked in needs.items()}
        return Versions(frozen, tuple(definitions), by_index)

    def undefined(self, versions: Versions) -> tuple[Undefined, ...]:
        """Return the symbols that another library must define."""
        strings, found = self._strings(), []
        referenced = self._referenced(_RELA, _RELASZ) | self._referenced(_JMPREL, _PLTRELSZ)
        for index, (name, info, _, section, version) in enumerate(self._symbols()):
            binding = _BINDINGS.get(info >> 4)
            if section != 0 or binding is None:
                continue
            # Indices 0 and 1 mean no version; 1 may also be the name of the file itself.
            number = version & ~_HIDDEN
            asked = versions.by_index.get(number, _NO_VERSION) if number > 1 else _NO_VERSION
            symbol = Undefined(
                name=text(strings, name),
                version=asked[0],
                library=asked[1],
                weak=binding == "weak",
                kind=_KINDS.get(info & 15, "other"),
                referenced=index in referenced,
            )
            found.append(symbol)
        return tuple(found)

    def exports(self, versions: Versions) -> dict[str, tuple[str, ...]]:
        """Return the symbols that other libraries find here, with the versions they answer to."""
        strings, by_index = self._strings(), versions.by_index
        found: dict[str, tuple[str, ...]] = {}
        for at, info, other, section, version in self._symbols():
            # Visibility 1 and 2, internal and hidden, are for the file itself.
            if section == 0 or info >> 4 not in _BINDINGS or other & 3 in (1, 2):
                continue
            index = version & ~_HIDDEN
            if index == 0:  # made local by the linker's version script
                continue
            answers = (by_index[index][0],) if index > 1 and index in by_index else ()
            # As in the loader: a plain reference takes the base version or the default one.
            if index <= 2 or not version & _HIDDEN:
                answers = (*answers, "")
            name = text(strings, at)
            found[name] = found[name] + answers if name in found else answers
        return found

    def _value(self, tag: int) -> int:
        return next((value for found, value in self.entries if found == tag), 0)

    def _at(self, tag: int) -> int:
        address = self._value(tag)
        for start, offset, size in self.loads:
            if start <= address < start + size:
                return offset + address - start
        raise ElfError(f"its dynamic table {tag:#x} lies in no loaded segment")

    def _strings(self) -> bytes:
        return cut(self.data, self._at(_STRTAB), self._value(_STRSZ))

    def _names(self, tag: int) -> tuple[str, ...]:
        places = [value for found, value in self.entries if found == tag]
        strings = self._strings() if places else b""
        return tuple(text(strings, place) for place in places)

    def _needs(self, strings: bytes) -> Iterator[tuple[str, str, int]]:
        """Yield library, version, index."""
        seen = 0
        for at, (_, count, file, first, _) in self._chain(_VERNEED, _VERNEEDNUM, "<HHIII"):
            place = at + first
            # Damaged counts multiply; a file of 2 bytes a record would keep us for hours.
            seen += count
            if seen > _MAX_VERSION_RECORDS:
                raise ElfError(f"it claims more than {_MAX_VERSION_RECORDS} needed versions")
            for _ in range(count):
                _, _, index, name, following = unpack("<IHHII", self.data, place)
                yield text(strings, file), text(strings, name), index & ~_HIDDEN
                if following == 0:
                    break
                place += following

    def _definitions(self, strings: bytes) -> Iterator[tuple[str, int, bool]]:
        """Yield version, index, and whether it is the library's own name."""
        for at, row in self._chain(_VERDEF, _VERDEFNUM, "<HHHHIII"):
            (name,) = unpack("<I", self.data, at + row[5])
            yield text(strings, name), row[2] & ~_HIDDEN, bool(row[1] & 1)

    def _chain(
        self, tag: int, count_tag: int, layout: str
    ) -> Iterator[tuple[int, tuple[Any, ...]]]:
        """Yield the records of a chain, each with its place; the last field leads to the next."""
        count = self._value(count_tag)
        if count > _MAX_VERSION_RECORDS:
            raise ElfError(f"it claims {count} version records")
        place = self._at(tag) if count else 0
        for _ in range(count):
            row = unpack(layout, self.data, place)
            yield place, row
            if row[-1] == 0:
                break
            place += row[-1]

    def _symbols(self) -> Iterator[tuple[int, int, int, int, int]]:
        """Yield name, info, visibility, section, version index of the dynamic symbols."""
        count = self._count()
        rows = struct.iter_unpack("<IBBHQQ", cut(self.data, self._at(_SYMTAB), 24 * count))
        if self._value(_VERSYM):
            raw = cut(self.data, self._at(_VERSYM), 2 * count)
            versions: tuple[int, ...] = struct.unpack(f"<{count}H", raw)
        else:
            versions = (1,) * count
        for (name, info, other, section, _, _), version in zip(rows, versions, strict=True):
            yield name, info, other, section, version

    def _count(self) -> int:
        """Return how many dynamic symbols there are, which the dynamic segment does not say.

        The hash tables tell it, except that a GNU hash table leaves out the undefined symbols
        of a library that exports nothing; there the section table helps, or the relocations.
        """
        counts = [0]
        if self._value(_HASH):
            counts.append(unpack("<II", self.data, self._at(_HASH))[1])
        if self._value(_GNU_HASH):
            counts.append(self._gnu_hash_count())
        if self.dynsym is not None:
            counts.append(self.dynsym.size // 24)
        elif not self._value(_HASH):
            used = self._referenced(_RELA, _RELASZ) | self._referenced(_JMPREL, _PLTRELSZ)
            counts.append(max(used, default=-1) + 1)
        return max(counts)

    def _gnu_hash_count(self) -> int:
        place = self._at(_GNU_HASH)
        buckets, first, words, _ = unpack("<IIII", self.data, place)
        place += 16 + 8 * words
        heads = cut(self.data, place, 4 * buckets)
        last = max((head for (head,) in struct.iter_unpack("<I", heads)), default=0)
        if last < first:
            return int(first)
        place += 4 * buckets
        # The last chain ends where the low bit of a hash is set.
        while not unpack("<I", self.data, place + 4 * (last - first))[0] & 1:
            last += 1
        return int(last) + 1

    def _referenced(self, tag: int, size_tag: int) -> set[int]:
        """Return the indices of the symbols that the relocations of one table name."""
        size = self._value(size_tag) // 24 * 24
        if size == 0:
            return set()
        # The upper half of the second field; most relocations name no symbol, which is 0.
        rows = struct.iter_unpack("<12xI8x", cut(self.data, self._at(tag), size))
        return {index for (index,) in rows} - {0}


def _refuse_unmappable(rows: list[tuple[int, ...]]) -> None:
    """Refuse segments that glibc's loader refuses (_dl_map_object_from_fd).

    Sizes that are damaged would be an endless or empty mapping, so they are refused as well.
    """
    loads = [row for row in rows if row[0] == 1]
    if not loads:
        raise ElfError("it has no segment that the loader would map")
    for _, _, offset, address, _, size, in_memory, alignment in loads:
        # A power of two, and pages at least.
        if alignment < _PAGE or alignment & (alignment - 1):
            raise ElfError(f"a segment is aligned to {alignment} bytes, less than a page")
        if (address - offset) % alignment:
            raise ElfError("the address of a segment does not fit its place in the file")
        if in_memory < size:
            raise ElfError("a segment is smaller in memory than in the file")

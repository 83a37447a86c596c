"""Reading an ELF file's bytes within their bounds: sections, and the records of the tables."""

import mmap
import struct
from dataclasses import dataclass
from typing import Any, TypeAlias

from jetship.errors import CheckError

Data: TypeAlias = bytes | mmap.mmap


class ElfError(CheckError):
    """The bytes are not an ELF file, or are a damaged one."""


@dataclass(frozen=True)
class Section:
    """Where a section's bytes lie in the file, and whether the machine may run them."""

    name: str
    offset: int
    size: int
    executable: bool = False


@dataclass(frozen=True)
class Undefined:
    """A symbol that another library must define; `library` is who defined it at link time.

    The loader never looks for a symbol that is not `referenced` by a relocation, such as the
    one with which the headers of GCC 13 ask the linker for a new enough libstdc++.
    """

    name: str
    version: str | None
    library: str | None
    weak: bool
    kind: str
    referenced: bool = True


def unpack(layout: str, data: Data, offset: int) -> tuple[Any, ...]:
    """Return the values at `offset`, or raise ElfError where the data ends before."""
    if not 0 <= offset <= len(data) - struct.calcsize(layout):
        raise ElfError(f"it is cut off: it ends before byte {offset}, where a table should be")
    return struct.unpack_from(layout, data, offset)


def cut(data: Data, offset: int, size: int) -> bytes:
    """Return `size` bytes at `offset`, or raise ElfError where the data ends before."""
    if offset < 0 or size < 0 or offset + size > len(data):
        raise ElfError(f"it is cut off: a table of {size} bytes at {offset} lies outside of it")
    return data[offset : offset + size]


def sections_of(data: Data) -> tuple[Section, ...]:
    """Return the sections that have bytes in the file; none where the table was stripped."""
    (start,) = unpack("<Q", data, 40)
    size, count, names_at = unpack("<HHH", data, 58)
    if start == 0 or count == 0:
        return ()
    if size != 64 or names_at >= count:
        raise ElfError("its section table is damaged")
    # Name, type, flags, address, offset, size; types 0 and 8 have no bytes in the file.
    rows = list(struct.iter_unpack("<IIQQQQ24x", cut(data, start, 64 * count)))
    names = cut(data, rows[names_at][4], rows[names_at][5])
    rows = [row for row in rows if row[1] not in (0, 8)]
    sections = tuple(
        Section(text(names, row[0]), row[4], row[5], executable=bool(row[2] & 4)) for row in rows
    )
    for section in sections:
        if section.offset + section.size > len(data):
            raise ElfError(f"it is cut off: section {section.name} lies outside of it")
    return sections


def text(strings: bytes, offset: int) -> str:
    """Return the string at `offset` of a string table, or raise ElfError where it has no end."""
    end = strings.find(b"\0", offset)
    if end < 0:
        raise ElfError(f"the string at byte {offset} of a string table has no end")
    return strings[offset:end].decode("utf-8", "backslashreplace")

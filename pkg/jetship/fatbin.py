"""Which GPUs the device code of a library is for, read from its fat binaries.

nvcc puts one container a translation unit into the section .nv_fatbin, one behind the other
with zeros between them. A container is a header and entries, one an image:

    container   u32 magic, u16 version, u16 header size, u64 size of all entries
    entry       u16 kind (1 PTX, 2 cubin), u16 version, u32 header size, u64 payload size;
                u32 at 28: the arch's number; u64 at 40: flags

The layout is not published; it was read from what nvcc 11.8 and 13.0 write, and compared with
what cuobjdump lists.
"""

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jetship.elf import Data, Section, mapped, parse_elf
from jetship.errors import CheckError
from jetship.targets.arch import Arch

MAGIC = 0xBA55ED50
FINAL_SECTION = ".nv_fatbin"
UNLINKED_SECTION = "__nv_relfatbin"

_KINDS: dict[int, Literal["ptx", "sass"]] = {1: "ptx", 2: "sass"}
_NOT_ZERO = re.compile(rb"[^\0]")
_COMPRESSED = 0x2000 | 0x8000  # LZ4 up to CUDA 12, Zstandard since
_ARCH_ONLY, _FAMILY_ONLY = 0x100000, 0x200000
_SMALLEST_ENTRY_HEADER = 48


class FatbinError(CheckError):
    """The device code of a library cannot be read."""


@dataclass(frozen=True)
class DeviceImage:
    """One image: machine code ("sass") or PTX for one arch; other kinds run nowhere as such.

    `variant` is "a" for sm_90a and its like, whose PTX no other arch takes, "f" for code of a
    family. `linked` is False where relocatable device code still lacks its device link, so
    that the driver cannot load it.
    """

    kind: Literal["sass", "ptx", "other"]
    arch: Arch
    variant: Literal["", "a", "f"]
    compressed: bool
    size: int
    linked: bool

    def __str__(self) -> str:
        prefix = {"sass": "sm_", "ptx": "compute_", "other": "kind unknown, "}[self.kind]
        return f"{prefix}{self.arch.number}{self.variant}{'' if self.linked else ' (not linked)'}"


def read_images(path: Path) -> tuple[DeviceImage, ...]:
    """Return the device code of an ELF file, in the order in which it lies there.

    Raises:
        ElfError: it is not ELF, or is damaged.
        FatbinError: its device code is damaged, or it has no section table to find it by.
    """
    with mapped(path) as data:
        return images_in(data, parse_elf(data).sections)


def images_in(data: Data, sections: tuple[Section, ...]) -> tuple[DeviceImage, ...]:
    """Return the device code in the sections of an ELF file.

    Raises:
        FatbinError: it is damaged, or there is no section table to find it by.
    """
    if not sections:
        raise FatbinError(
            "whether it has device code cannot be told",
            why="its section table was stripped",
            fix="strip it with `strip --strip-unneeded`, which keeps the section table",
        )
    found: list[DeviceImage] = []
    for section in sections:
        if section.name in (FINAL_SECTION, UNLINKED_SECTION):
            body = data[section.offset : section.offset + section.size]
            found += parse_fatbins(body, linked=section.name == FINAL_SECTION)
    return tuple(found)


def parse_fatbins(body: bytes, *, linked: bool = True) -> tuple[DeviceImage, ...]:
    """Return the images of all containers in the bytes of one section.

    Raises:
        FatbinError: the bytes are not containers with zeros between them.
    """
    found: list[DeviceImage] = []
    place = 0
    while (place := _next_container(body, place)) < len(body):
        magic, _, header, size = _unpack("<IHHQ", body, place)
        if magic != MAGIC or header < 16:
            raise FatbinError(f"no device code container at byte {place} of its section")
        start, place = place + header, place + header + size
        if place > len(body):
            raise FatbinError("its device code is cut off")
        found += _entries(body, start, place, linked=linked)
    return tuple(found)


def _next_container(body: bytes, place: int) -> int:
    match = _NOT_ZERO.search(body, place)
    return match.start() if match else len(body)


def _entries(body: bytes, place: int, end: int, *, linked: bool) -> Iterator[DeviceImage]:
    while place < end:
        kind, _, header, size = _unpack("<HHIQ", body, place)
        if header < _SMALLEST_ENTRY_HEADER or place + header + size > end:
            raise FatbinError(f"a damaged device code entry at byte {place} of its section")
        (number,) = _unpack("<I", body, place + 28)
        (flags,) = _unpack("<Q", body, place + 40)
        yield DeviceImage(
            kind=_KINDS.get(kind, "other"),
            arch=Arch(number // 10, number % 10),
            variant="a" if flags & _ARCH_ONLY else "f" if flags & _FAMILY_ONLY else "",
            compressed=bool(flags & _COMPRESSED),
            size=size,
            linked=linked,
        )
        place += header + size


def _unpack(layout: str, body: bytes, place: int) -> tuple[int, ...]:
    try:
        return struct.unpack_from(layout, body, place)
    except struct.error as error:
        raise FatbinError("its device code is cut off") from error

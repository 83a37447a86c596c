"""Which GPUs the device code of a library is for, read from its fat binaries.

nvcc puts one container a translation unit into the section .nv_fatbin, one behind the other
with zeros between them. A container is a header and entries, one an image:

    container   u32 magic, u16 version, u16 header size, u64 size of all entries
    entry       u16 kind (1 PTX, 2 cubin), u16 version, u32 header size, u64 payload size,
                u32 bytes of it that are packed (0: it is not), u32 where options for ptxas are,
                u16 minor and u16 major: a PTX's ISA version, or a cubin's ELF ABI version,
                u32 the arch's number, u64 where a name is, u64 flags, u64 zero,
                u64 size when unpacked; from CUDA 12 on options of the tools behind it
    flags       0x2000 LZ4 block, 0x8000 Zstandard frame, 0x10000 scrambled,
                0x100000 sm_XYa, 0x200000 sm_XYf

The layout is not published; it was read from what nvcc 11.2, 11.8, 12.4 and 13.0 write, and is
compared in the tests with what their cuobjdump lists. nvcc packs PTX and leaves cubins as they are,
unless it is asked to pack all (-Xfatbin -compress-all, -compress-mode=size) or a cubin is to be
linked again. It takes all comments out of PTX, so that nothing there names the release of nvcc.
"""

import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from jetship._devicepayload import (
    FatbinError,
    Packing,
    Payload,
    forget,
    kernels_of_cubin,
    kernels_of_ptx,
    ptx_isa,
    release,
)
from jetship.elf import Data, Section, mapped, parse_elf
from jetship.targets.arch import Arch

__all__ = [
    "KERNEL_BUDGET",
    "DeviceImage",
    "FatbinError",
    "containers",
    "images_in",
    "parse_fatbins",
    "read_images",
]

MAGIC = 0xBA55ED50
FINAL_SECTION = ".nv_fatbin"
UNLINKED_SECTION = "__nv_relfatbin"

KERNEL_BUDGET = 8 << 20
"""Bytes of LZ4 that are unpacked of one library to read kernel names: some 0.2 s of work."""

_KINDS: dict[int, Literal["ptx", "sass"]] = {1: "ptx", 2: "sass"}
_NOT_ZERO = re.compile(rb"[^\0]")
_LZ4, _ZSTD, _SCRAMBLED = 0x2000, 0x8000, 0x10000
_ARCH_ONLY, _FAMILY_ONLY = 0x100000, 0x200000
_ENTRY = "<HHIQIIHHI8xQ8xQ"
_SMALLEST_ENTRY_HEADER = struct.calcsize(_ENTRY)
# How much more of Zstandard, which a library in C unpacks, is done in the same time.
_ZSTD_SPEED = 16


@dataclass(frozen=True)
class DeviceImage:
    """One image: machine code ("sass") or PTX for one arch; other kinds run nowhere as such.

    Args:
        kind: what it is.
        arch: the arch that it was compiled for.
        variant: "a" for sm_90a and its like, which no other arch takes, "f" for code of a family.
        compressed: whether it is packed.
        size: its bytes as they lie in the file.
        linked: False where relocatable device code still lacks its device link, so that the
            driver cannot load it.
        container: which of the library's containers it lies in, counted from 0. CUDA finds a
            kernel's code in its own container alone, which is that of its .cu file.
        unpacked_size: its bytes when unpacked.
        ptx_isa: the version of the PTX language that it is written in, as "8.5".
        cuda: the CUDA release of the tools that made it, as "11.8"; None where it does not say,
            as no PTX does.
        kernels: the kernels in it by the linker's names; None where they were not read.
    """

    kind: Literal["sass", "ptx", "other"]
    arch: Arch
    variant: Literal["", "a", "f"]
    compressed: bool
    size: int
    linked: bool
    container: int = 0
    unpacked_size: int = 0
    ptx_isa: str | None = None
    cuda: str | None = None
    kernels: tuple[str, ...] | None = None

    def __str__(self) -> str:
        prefix = {"sass": "sm_", "ptx": "compute_", "other": "kind unknown, "}[self.kind]
        return f"{prefix}{self.arch.number}{self.variant}{'' if self.linked else ' (not linked)'}"


@dataclass(frozen=True)
class _Entry:
    """An image and where its bytes are; None where they are scrambled, or nothing is known of."""

    image: DeviceImage
    payload: Payload | None

    @property
    def cost(self) -> int:
        """What it costs to read its kernels, in bytes of LZ4."""
        if self.payload is None or not self.payload.packing:
            return 0
        return self.payload.unpacked // (_ZSTD_SPEED if self.payload.packing == "zstd" else 1)

    def with_kernels(self) -> DeviceImage:
        if self.payload is None:
            return self.image
        read = kernels_of_cubin if self.image.kind == "sass" else kernels_of_ptx
        image = replace(self.image, kernels=read(self.payload))
        forget(self.payload.data, self.payload.offset, self.payload.offset + self.payload.size)
        return image


def containers(images: Iterable[DeviceImage]) -> tuple[tuple[DeviceImage, ...], ...]:
    """Return the images by container, in the order in which they lie in the library."""
    found: dict[int, list[DeviceImage]] = {}
    for image in images:
        found.setdefault(image.container, []).append(image)
    return tuple(tuple(group) for group in found.values())


def read_images(path: Path, *, budget: int | None = KERNEL_BUDGET) -> tuple[DeviceImage, ...]:
    """Return the device code of an ELF file, in the order in which it lies there.

    Args:
        path: the file.
        budget: see `images_in`.

    Raises:
        ElfError: it is not ELF, or is damaged.
        FatbinError: its device code is damaged, or it has no section table to find it by.
    """
    with mapped(path) as data:
        return images_in(data, parse_elf(data).sections, budget=budget)


def images_in(
    data: Data, sections: tuple[Section, ...], *, budget: int | None = KERNEL_BUDGET
) -> tuple[DeviceImage, ...]:
    """Return the device code in the sections of an ELF file.

    Args:
        data: the bytes of the file.
        sections: where its sections are.
        budget: how many bytes may be unpacked to read kernel names, None for no limit. Names in
            cubins that are not packed cost nothing. Of packed images those come first that stand
            for a container without code that others have, for these are what a check has to name;
            where the budget is spent, `kernels` is None.

    Raises:
        FatbinError: it is damaged, or there is no section table to find it by.
    """
    if not sections:
        raise FatbinError(
            "whether it has device code cannot be told",
            why="its section table was stripped",
            fix="strip it with `strip --strip-unneeded`, which keeps the section table",
        )
    found: list[_Entry] = []
    for section in sections:
        if section.name in (FINAL_SECTION, UNLINKED_SECTION):
            end = section.offset + section.size
            linked = section.name == FINAL_SECTION
            first = found[-1].image.container + 1 if found else 0
            found += _parse(data, section.offset, end, linked=linked, first=first)
    return _with_kernels(found, budget)


def parse_fatbins(body: bytes, *, linked: bool = True) -> tuple[DeviceImage, ...]:
    """Return the images of all containers in the bytes of one section.

    Raises:
        FatbinError: the bytes are not containers with zeros between them.
    """
    found = list(_parse(body, 0, len(body), linked=linked, first=0))
    return _with_kernels(found, KERNEL_BUDGET)


def _parse(data: Data, start: int, end: int, *, linked: bool, first: int) -> Iterator[_Entry]:
    place, number = start, first
    while (place := _next_container(data, place, end)) < end:
        magic, _, header, size = _unpack("<IHHQ", data, place, end)
        if magic != MAGIC or header < 16:
            raise FatbinError(f"no device code container at byte {place - start} of its section")
        begin, place = place + header, place + header + size
        if place > end:
            raise FatbinError("its device code is cut off")
        yield from _entries(data, begin, place, linked=linked, container=number)
        forget(data, begin, place)
        number += 1


def _next_container(data: Data, place: int, end: int) -> int:
    match = _NOT_ZERO.search(data, place, end)
    return match.start() if match else end


def _entries(data: Data, place: int, end: int, *, linked: bool, container: int) -> Iterator[_Entry]:
    begin = place
    while place < end:
        kind, _, header, size, packed, _, minor, major, number, flags, unpacked = _unpack(
            _ENTRY, data, place, end
        )
        if header < _SMALLEST_ENTRY_HEADER or place + header + size > end or packed > size:
            raise FatbinError(f"a damaged device code entry at byte {place - begin} of a container")
        packing = _packing(flags)
        image = DeviceImage(
            kind=_KINDS.get(kind, "other"),
            arch=Arch(number // 10, number % 10),
            variant="a" if flags & _ARCH_ONLY else "f" if flags & _FAMILY_ONLY else "",
            compressed=bool(packing),
            size=size,
            linked=linked,
            container=container,
            unpacked_size=unpacked if packing else size,
            ptx_isa=f"{major}.{minor}" if kind == 1 and major else None,
        )
        readable = image.kind != "other" and not flags & _SCRAMBLED
        payload = Payload(data, place + header, packed or size, image.unpacked_size, packing)
        yield _described(_Entry(image, payload if readable else None))
        place += header + size


def _packing(flags: int) -> Packing:
    return "zstd" if flags & _ZSTD else "lz4" if flags & _LZ4 else ""


def _described(entry: _Entry) -> _Entry:
    if entry.payload is None:
        return entry
    if entry.image.kind == "ptx":  # the driver goes by the text, not by the entry
        return replace(entry, image=replace(entry.image, ptx_isa=ptx_isa(entry.payload)))
    return replace(entry, image=replace(entry.image, cuda=release(entry.payload)))


def _with_kernels(entries: Sequence[_Entry], budget: int | None) -> tuple[DeviceImage, ...]:
    images = [entry.image for entry in entries]
    for index in _order(entries):
        cost = entries[index].cost
        if budget is not None and cost > budget:
            continue
        images[index] = entries[index].with_kernels()
        budget = None if budget is None else budget - cost
    return tuple(images)


def _order(entries: Sequence[_Entry]) -> list[int]:
    """Return in which order the images' kernels are read: what stands for an odd container first.

    All images of a container come from one .cu file and so have the same kernels, save for some
    that the source compiles for certain archs only; the cheapest can speak for all.
    """
    groups: dict[int, list[int]] = {}
    for index, entry in enumerate(entries):
        if entry.payload is not None:
            groups.setdefault(entry.image.container, []).append(index)
    codes = {number: {str(entries[i].image) for i in group} for number, group in groups.items()}
    most = set().union(*codes.values())

    def cost(index: int) -> int:
        return entries[index].cost

    odd = [min(group, key=cost) for number, group in groups.items() if codes[number] != most]
    return list(dict.fromkeys([*sorted(odd, key=cost), *sorted(range(len(entries)), key=cost)]))


def _unpack(layout: str, data: Data, place: int, end: int) -> tuple[int, ...]:
    if place + struct.calcsize(layout) > end:
        raise FatbinError("its device code is cut off")
    return struct.unpack_from(layout, data, place)

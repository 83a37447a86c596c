"""What one image of device code says about itself: cubins and PTX, packed or not.

A cubin is an ELF file for NVIDIA's machine 190. Up to CUDA 12 (ABI version 7) the version field
of its header is ten times the release of the tools that made it: 0x76, 118, is 11.8. Since CUDA
13 (ABI version 8) the release stands in words in the note .note.nv.tkinfo. Neither is published;
both were seen in cubins of 11.2, 11.8 and all of 12.0 to 13.2 that ptxas is to be had of.
"""

import mmap
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any, Literal, cast

import zstandard

from jetship import _lz4
from jetship._elfbytes import Data
from jetship.errors import CheckError

Packing = Literal["", "lz4", "zstd"]

MAX_UNPACKED_BYTES = 64 << 20
"""The largest image that is unpacked as a whole; libtorch_cuda.so's largest has 39 MB."""

_CHUNK = 256 << 10
_PIECE = 16 << 10
_MAX_WINDOW = MAX_UNPACKED_BYTES
_ELF_HEADER = 64
_MACHINE = 190
_RELEASE_IN_HEADER, _RELEASE_IN_NOTE = 7, 8
_NOTE = re.compile(rb"\0Cuda compilation tools, release (\d+\.\d+), V\d")
_LONGEST_NOTE = 64
_SYMTAB, _FUNC, _ENTRY = 2, 2, 0x10
_PTX_HEAD = 4096
_PTX_VERSION = re.compile(rb"\.version\s+([1-9]\d*\.\d+)")
_ENTRY_NAME = re.compile(rb"\.entry\s+([\w$%]+)")


class FatbinError(CheckError):
    """The device code of a library cannot be read."""


@dataclass(frozen=True)
class Payload:
    """The bytes of one image within `data`; `size` of them, which are `unpacked` when unpacked."""

    data: Data
    offset: int
    size: int
    unpacked: int
    packing: Packing

    def head(self, size: int) -> bytes:
        """Return the first bytes of the unpacked image.

        Raises:
            FatbinError: the packed bytes are damaged.
        """
        return next(self.chunks(min(size, _CHUNK)), b"")[:size]

    def chunks(self, size: int = _CHUNK) -> Iterator[bytes]:
        """Yield the unpacked image piece by piece, without having the whole of it in memory.

        Raises:
            FatbinError: the packed bytes are damaged.
        """
        if self.packing == "zstd":
            yield from self._zstd(size)
        elif self.packing == "lz4":
            # A piece needs all that is before it, so the first is unpacked alone and then the rest.
            head = self._lz4(size)
            yield head
            if len(head) == size < self.unpacked <= MAX_UNPACKED_BYTES:
                yield self._lz4(self.unpacked)[size:]
        else:
            for place in range(0, self.size, size):
                start = self.offset + place
                yield self.data[start : start + min(size, self.size - place)]

    def whole(self) -> "View | None":
        """Return the unpacked image, or None where it is larger than MAX_UNPACKED_BYTES.

        Raises:
            FatbinError: the packed bytes are damaged, or not as many as its header says.
        """
        if not self.packing:
            return View(self.data, self.offset, self.size)
        if self.unpacked > MAX_UNPACKED_BYTES:
            return None
        data = self._lz4(self.unpacked) if self.packing == "lz4" else self._zstd_whole()
        if len(data) != self.unpacked:
            raise FatbinError("its device code is damaged: a packed image is too short")
        return View(data, 0, len(data))

    def _lz4(self, limit: int) -> bytes:
        end = self.offset + self.size
        try:
            if limit < self.unpacked:
                return _lz4.unpack(self.data, limit, self.offset, end)
            return _lz4.unpack(self.data[self.offset : end], limit)  # bytes are faster than a map
        except _lz4.LZ4Error as error:
            raise FatbinError("its device code is damaged", why=f"LZ4: {error}") from error

    def _zstd(self, size: int) -> Iterator[bytes]:
        unpacker = zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW)
        try:
            # All that the reader does with its source is to read from it.
            source = cast("IO[bytes]", _Source(self.data, self.offset, self.offset + self.size))
            with unpacker.stream_reader(source, read_size=_PIECE) as stream:
                while chunk := stream.read(size):
                    yield chunk
        except zstandard.ZstdError as error:
            raise FatbinError("its device code is damaged", why=f"Zstandard: {error}") from error

    def _zstd_whole(self) -> bytes:
        data = bytearray()
        for chunk in self._zstd(_CHUNK):
            data += chunk
            if len(data) > self.unpacked:
                raise FatbinError("its device code is damaged: a packed image is too long")
        return bytes(data)


class _Source:
    """A stretch of bytes as a file, of which no more is read than is unpacked."""

    def __init__(self, data: Data, start: int, end: int) -> None:
        self._data, self._place, self._end = data, start, end

    def read(self, size: int) -> bytes:
        start, self._place = self._place, min(self._place + size, self._end)
        return self._data[start : self._place]


@dataclass(frozen=True)
class View:
    """A stretch of bytes that is read within its bounds."""

    data: Data
    start: int
    size: int

    def unpack(self, layout: str, place: int) -> tuple[Any, ...]:
        self._require(place, struct.calcsize(layout))
        return struct.unpack_from(layout, self.data, self.start + place)

    def cut(self, place: int, size: int) -> bytes:
        self._require(place, size)
        return self.data[self.start + place : self.start + place + size]

    def _require(self, place: int, size: int) -> None:
        if place + size > self.size:
            raise FatbinError("its device code is damaged: a table lies outside of its image")


def forget(data: Data, start: int, end: int) -> None:
    """Tell the kernel that a mapped file's pages are not needed any more.

    It maps the neighbours of each page that is read, and all of them count as memory of the
    process: 300 MB for the headers in a library of 400 MB.
    """
    if isinstance(data, mmap.mmap):
        first, last = start // mmap.PAGESIZE * mmap.PAGESIZE, min(end, len(data))
        if first < last:
            data.madvise(mmap.MADV_DONTNEED, first, last - first)


def release(cubin: Payload) -> str | None:
    """Return the CUDA release of the tools that made a cubin, as "11.8", or None if it is silent.

    Raises:
        FatbinError: it is no cubin, or damaged.
    """
    head = cubin.head(_ELF_HEADER)
    _require_cubin(head)
    if head[8] == _RELEASE_IN_HEADER:
        (version,) = struct.unpack_from("<I", head, 20)
        return f"{version // 10}.{version % 10}" if version >= 50 else None
    return _release_in_note(cubin) if head[8] == _RELEASE_IN_NOTE else None


def _release_in_note(cubin: Payload) -> str | None:
    """Search for the note, which comes before all code; the section table is at the far end."""
    rest = b""
    for chunk in cubin.chunks():
        rest = rest[-_LONGEST_NOTE:] + chunk
        if match := _NOTE.search(rest):
            return match[1].decode()
    return None


def ptx_isa(ptx: Payload) -> str | None:
    """Return the version of the PTX language that a text says it is in, as "8.5", or None.

    Nothing but comments may come before it (PTX ISA, the directive .version).

    Raises:
        FatbinError: the packed bytes are damaged.
    """
    match = _PTX_VERSION.search(ptx.head(_PTX_HEAD))
    return match[1].decode() if match else None


def kernels_of_cubin(cubin: Payload) -> tuple[str, ...] | None:
    """Return the names of the kernels, as the linker knows them; None where it is too large.

    Raises:
        FatbinError: it is no cubin, or damaged.
    """
    view = cubin.whole()
    if view is None:
        return None
    _require_cubin(view.cut(0, min(_ELF_HEADER, view.size)))
    (start,) = view.unpack("<Q", 40)
    size, count = view.unpack("<HH", 58)
    if count and size != 64:
        raise FatbinError("its device code is damaged: an image's section table")
    # Type, offset, size, link.
    rows = list(struct.iter_unpack("<4xI16xQQI20x", view.cut(start, 64 * count)))
    found: list[str] = []
    for kind, offset, length, link in rows:
        if kind == _SYMTAB:
            if link >= count:
                raise FatbinError("its device code is damaged: a symbol table without names")
            strings = view.cut(rows[link][1], rows[link][2])
            found += _entries(view.cut(offset, length // 24 * 24), strings)
    return tuple(found)


def _entries(symbols: bytes, strings: bytes) -> Iterator[str]:
    for name, info, other, section in struct.iter_unpack("<IBBH16x", symbols):
        if info & 15 == _FUNC and other & _ENTRY and section != 0:
            yield _name(strings[name : strings.find(b"\0", name)])


def kernels_of_ptx(ptx: Payload) -> tuple[str, ...] | None:
    """Return the names of the kernels of a PTX text; None where it is too large.

    Raises:
        FatbinError: its packed bytes are damaged.
    """
    view = ptx.whole()
    if view is None or view.size > MAX_UNPACKED_BYTES:
        return None
    return tuple(_name(name) for name in _ENTRY_NAME.findall(view.cut(0, view.size)))


def _require_cubin(head: bytes) -> None:
    if len(head) < _ELF_HEADER or head[:6] != b"\x7fELF\x02\x01":
        raise FatbinError("its device code is damaged: an image is no cubin")
    if struct.unpack_from("<H", head, 18) != (_MACHINE,):
        raise FatbinError("its device code is damaged: an image is for no GPU of NVIDIA's")


def _name(text: bytes) -> str:
    return text.decode("utf-8", "backslashreplace")

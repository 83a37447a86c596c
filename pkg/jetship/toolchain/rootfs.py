"""Of a root file system's archive, what a toolchain needs, as a folder that leads nowhere else."""

import io
import os
import posixpath
import re
import shutil
import tarfile
from collections.abc import Iterable
from pathlib import Path

from jetship.store import CHUNK_BYTES

# What a toolchain or a check reads, and the links that lead there.
_KEPT = re.compile(
    r"lib(32|64)?(/.*)?"
    r"|usr/(lib(32|64)?|include)(/.*)?"
    r"|usr/bin/python3[^/]*"
    r"|usr/local/lib/python3[^/]*(/.*)?"
    r"|usr/local/cuda[^/]*(/targets/[^/]+/(lib|include)(/.*)?)?"
)
_LINKS_KEPT = re.compile(r"etc/alternatives/[^/]+|usr/local/cuda[^/]*/(lib64|include)")


def unpack(chunks: Iterable[bytes], root: Path) -> None:
    """Unpack what is kept of a root file system's archive, with relative links only.

    Raises:
        tarfile.TarError: the archive is damaged or ends early.
    """
    root = root.resolve()
    raw = _Chunks(chunks)
    source = io.BufferedReader(raw, CHUNK_BYTES)
    with tarfile.open(fileobj=source, mode="r|", bufsize=CHUNK_BYTES) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            kept = _KEPT.fullmatch(name) or (member.issym() and _LINKS_KEPT.fullmatch(name))
            if kept and ".." not in name.split("/"):
                _place(archive, member, name, root)
    while source.read(CHUNK_BYTES):
        pass
    # tarfile takes an archive that ends between two files for a whole one.
    if raw.tail != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("it ends early")


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, root: Path) -> None:
    """Write one member; devices and the like are left out."""
    place = root / name
    if member.isdir():
        _folder(place, root)
        return
    _folder(place.parent, root)
    if member.issym():
        place.symlink_to(inner_link(name, member.linkname))
    elif member.islnk():
        # To a file that came before; one that was not kept has no use here either.
        first = root / posixpath.normpath(member.linkname.lstrip("/"))
        if first.is_file() and first.resolve().is_relative_to(root):
            os.link(first, place)
    elif member.isfile():
        content = archive.extractfile(member)
        if content is not None:
            with content, place.open("xb") as out:
                shutil.copyfileobj(content, out, CHUNK_BYTES)
            place.chmod(0o755 if member.mode & 0o100 else 0o644)


def _folder(folder: Path, root: Path) -> None:
    # A file system has no folder below a link to one; an archive that was made up may.
    if folder.resolve() != folder:
        raise tarfile.ReadError(f"{folder.relative_to(root)} is a link and a folder")
    folder.mkdir(parents=True, exist_ok=True)


def inner_link(name: str, target: str) -> str:
    """Return a relative link for one that is meant within the image's own root."""
    folder = posixpath.dirname(name)
    if not target.startswith("/") and not posixpath.normpath(
        posixpath.join(folder, target)
    ).startswith(".."):
        return target
    inside = posixpath.normpath(posixpath.join("/", folder, target))
    return posixpath.relpath(inside, f"/{folder}")


class _Chunks(io.RawIOBase):
    """A file out of the chunks in which the engine sends it."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")
        self.tail = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray", /) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
            self.tail = (self.tail + chunk[-tarfile.BLOCKSIZE :])[-tarfile.BLOCKSIZE :]
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

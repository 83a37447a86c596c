"""A wheel's archive, read without trusting it: where all that looks into a wheel begins."""

import contextlib
import hashlib
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from email.message import Message
from email.parser import BytesParser
from pathlib import Path, PurePosixPath

from jetship.errors import CheckError
from jetship.nofile import why_no_file
from jetship.pin import PIN_FILE, Pin
from jetship.recorded import recorded
from jetship.store import CHUNK_BYTES

MAX_MEMBERS = 100_000
_ENCRYPTED = 0x1  # general purpose bit 0; APPNOTE.TXT 4.4.4
MAX_UNPACKED_BYTES = 16 << 30

# What zipfile raises for bytes that are no archive, or a damaged one.
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    EOFError,
    NotImplementedError,  # an unknown compression method or zip version
    RuntimeError,  # encrypted
    OSError,
    ValueError,
    OverflowError,
    struct.error,
)


@dataclass(frozen=True)
class WheelArchive:
    """A wheel that is open; `info` is the name of its .dist-info folder."""

    path: Path
    info: str
    _zip: zipfile.ZipFile = field(repr=False)

    @property
    def members(self) -> list[zipfile.ZipInfo]:
        """Its files, in the order of the archive."""
        return [info for info in self._zip.infolist() if not info.is_dir()]

    def read(self, name: str) -> bytes:
        """Return a member's bytes.

        Raises:
            CheckError: the member is missing or damaged.
        """
        try:
            return self._zip.read(name)
        except KeyError as error:
            raise CheckError(f"{self.path} has no {name}", fix="build it again") from error
        except DAMAGED as error:
            raise CheckError(
                f"{name} in {self.path} is damaged", why=str(error), fix="copy or build it again"
            ) from error

    def copy(self, member: zipfile.ZipInfo, to: Path) -> str:
        """Unpack a member into the file `to` and return its digest as RECORD writes it.

        Raises:
            CheckError: the member is damaged.
        """
        digest = hashlib.sha256()
        try:
            with self._zip.open(member) as source, to.open("wb") as sink:
                while chunk := source.read(CHUNK_BYTES):
                    digest.update(chunk)
                    sink.write(chunk)
        except DAMAGED as error:
            raise CheckError(f"{member.filename} is damaged", why=str(error)) from error
        return recorded(digest.digest())

    def headers(self, file: str) -> Message:
        """Return what METADATA or WHEEL says, without its text; raises as `read`."""
        return BytesParser().parsebytes(self.read(f"{self.info}/{file}"), headersonly=True)

    def pin(self) -> Pin | None:
        """Return the pin record, or None where there is none.

        Raises:
            CheckError: it is damaged, or of a newer schema.
        """
        name = f"{self.info}/{PIN_FILE}"
        return Pin.from_json(self.read(name)) if name in self._zip.namelist() else None


@contextlib.contextmanager
def opened(path: Path) -> Iterator[WheelArchive]:
    """Open a wheel.

    Raises:
        CheckError: it is missing, not a zip archive, not that of a wheel, or one that must not be
            unpacked.
    """
    if problem := why_no_file(path):
        fix = "build the wheel first" if problem == "does not exist" else "name a wheel file"
        raise CheckError(f"{path} {problem}", fix=fix)
    try:
        archive = zipfile.ZipFile(path)
    except DAMAGED as error:
        raise CheckError(
            f"{path} is not a zip archive, or is cut off",
            why=str(error),
            fix="copy or build it again",
        ) from error
    with archive:
        problem = _problem(archive.infolist())
        if problem:
            raise CheckError(
                f"{path.name} will not be unpacked: {problem}",
                fix="no build tool writes such a wheel; find out where it comes from",
            )
        yield WheelArchive(path, _dist_info(archive, path), archive)


def pin_of(wheel: Path) -> Pin | None:
    """Return a wheel's pin record, or None where it carries none.

    Raises:
        CheckError: the file is not a wheel, or its record is damaged.
    """
    with opened(wheel) as archive:
        return archive.pin()


def _dist_info(archive: zipfile.ZipFile, path: Path) -> str:
    tops = {name.partition("/")[0] for name in archive.namelist()}
    found = [top for top in tops if top.endswith(".dist-info")]
    if len(found) != 1:
        raise CheckError(
            f"{path.name} is not a wheel: it has {len(found)} .dist-info folders",
            fix="copy or build it again",
        )
    return found[0]


def _problem(members: list[zipfile.ZipInfo]) -> str:
    if len(members) > MAX_MEMBERS:
        return f"it has {len(members)} members"
    size = sum(info.file_size for info in members)
    if size > MAX_UNPACKED_BYTES:
        return f"unpacked it would be {size >> 30} GiB"
    seen: set[str] = set()
    for info in members:
        if problem := _member_problem(info):
            return f"its member {info.orig_filename!r} {problem}"
        if info.filename in seen:
            return f"it has two members {info.filename!r}"
        seen.add(info.filename)
    return ""


def _member_problem(info: zipfile.ZipInfo) -> str:
    name = info.filename
    path = PurePosixPath(name)
    if info.flag_bits & _ENCRYPTED:
        return "is encrypted"
    # zipfile cuts a name at its first NUL; orig_filename still has it.
    outside = path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name
    if outside or name != info.orig_filename:
        return "would land outside of the folder"
    return "is a symbolic link" if stat.S_ISLNK(info.external_attr >> 16) else ""

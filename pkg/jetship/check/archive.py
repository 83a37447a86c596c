"""Reading a wheel's zip archive without trusting it."""

import contextlib
import hashlib
import lzma
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from jetship.errors import CheckError
from jetship.recorded import recorded
from jetship.store import CHUNK_BYTES

MAX_MEMBERS = 100_000
MAX_UNPACKED_BYTES = 16 << 30

# What zipfile raises for bytes that are no archive, or a damaged one.
_DAMAGE = (
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


@contextlib.contextmanager
def opened(path: Path) -> Iterator[zipfile.ZipFile]:
    """Open a wheel's archive.

    Raises:
        CheckError: it is missing, not a zip archive, or one that must not be unpacked.
    """
    try:
        archive = zipfile.ZipFile(path)
    except FileNotFoundError as error:
        raise CheckError(f"{path} does not exist", fix="build the wheel first") from error
    except _DAMAGE as error:
        raise CheckError(
            f"{path.name} is not a zip archive, or is cut off",
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
        yield archive


def read(archive: zipfile.ZipFile, name: str) -> bytes:
    """Return a member's bytes.

    Raises:
        CheckError: the member is missing or damaged.
    """
    try:
        return archive.read(name)
    except KeyError as error:
        raise CheckError(f"the wheel has no {name}", fix="build it again") from error
    except _DAMAGE as error:
        raise CheckError(
            f"{name} in the wheel is damaged", why=str(error), fix="copy or build it again"
        ) from error


def copy(archive: zipfile.ZipFile, info: zipfile.ZipInfo, to: Path) -> str:
    """Unpack a member into the file `to` and return its digest as RECORD writes it.

    Raises:
        CheckError: the member is damaged.
    """
    digest = hashlib.sha256()
    try:
        with archive.open(info) as source, to.open("wb") as sink:
            while chunk := source.read(CHUNK_BYTES):
                digest.update(chunk)
                sink.write(chunk)
    except _DAMAGE as error:
        raise CheckError(f"{info.filename} is damaged", why=str(error)) from error
    return recorded(digest.digest())


def _problem(members: list[zipfile.ZipInfo]) -> str:
    if len(members) > MAX_MEMBERS:
        return f"it has {len(members)} members"
    size = sum(info.file_size for info in members)
    if size > MAX_UNPACKED_BYTES:
        return f"unpacked it would be {size >> 30} GiB"
    seen: set[str] = set()
    for info in members:
        name = info.filename
        path = PurePosixPath(name)
        # zipfile cuts a name at its first NUL; orig_filename still has it.
        outside = path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name
        if outside or name != info.orig_filename:
            return f"its member {info.orig_filename!r} would land outside of the folder"
        if stat.S_ISLNK(info.external_attr >> 16):
            return f"its member {name!r} is a symbolic link"
        if name in seen:
            return f"it has two members {name!r}"
        seen.add(name)
    return ""

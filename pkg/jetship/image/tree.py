"""Folders as tar streams that have the same bytes on any machine.

Entries are sorted, owned by 0:0, and carry one time stamp.
"""

import io
import os
import stat
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Protocol

from jetship.epoch import source_date_epoch
from jetship.errors import ImageError

# 2020-01-01 UTC: old enough for every tool, and not 1970, which ZIP cannot express.
DEFAULT_EPOCH = 1577836800
OPEN_TO_ALL = 0o1777


class Sink(Protocol):
    """Something that takes bytes."""

    def write(self, data: bytes, /) -> int: ...


@dataclass(frozen=True)
class Layer:
    """A folder that becomes a layer, placed at `prefix` in the image.

    `plain_modes` makes files 0644 or 0755 and folders 0755: for folders whose modes only show
    the umask of whoever unpacked them. A folder that is open to all and sticky, as /tmp, stays so.
    """

    folder: Path
    prefix: str = ""
    plain_modes: bool = False


def epoch() -> int:
    """Return the time stamp of everything in an image: SOURCE_DATE_EPOCH, or a constant.

    Raises:
        ConfigError: SOURCE_DATE_EPOCH is not a number of seconds.
    """
    return source_date_epoch(DEFAULT_EPOCH)


def write_tar(sink: Sink, layer: Layer, *, extra: Mapping[str, bytes] | None = None) -> None:
    """Write a folder as a deterministic tar stream; `extra` gives files that come first.

    Raises:
        ImageError: the folder holds something that is no file, folder or link.
    """
    when = epoch()
    # "w|" never seeks, so the sink may be a digest; PAX carries long names.
    with tarfile.open(fileobj=_Writer(sink), mode="w|", format=tarfile.PAX_FORMAT) as tar:
        for name, data in sorted((extra or {}).items()):
            tar.addfile(entry(name, when, size=len(data)), io.BytesIO(data))
        for parent in _parents(layer.prefix):
            tar.addfile(entry(parent, when, kind=tarfile.DIRTYPE, mode=0o755))
        for path in _walk(layer.folder):
            _add(tar, path, layer, when)


def _add(tar: tarfile.TarFile, path: Path, layer: Layer, when: int) -> None:
    name = str(PurePosixPath(layer.prefix) / path.relative_to(layer.folder).as_posix())
    found = path.lstat()
    mode = stat.S_IMODE(found.st_mode)
    if layer.plain_modes and mode != OPEN_TO_ALL:
        mode = 0o755 if stat.S_ISDIR(found.st_mode) or mode & 0o100 else 0o644
    if stat.S_ISLNK(found.st_mode):
        link = entry(name, when, kind=tarfile.SYMTYPE, mode=0o777)
        link.linkname = str(path.readlink())
        tar.addfile(link)
    elif stat.S_ISDIR(found.st_mode):
        tar.addfile(entry(name, when, kind=tarfile.DIRTYPE, mode=mode))
    elif stat.S_ISREG(found.st_mode):
        with path.open("rb") as stream:
            tar.addfile(entry(name, when, mode=mode, size=found.st_size), stream)
    else:
        raise ImageError(f"{path} is neither file, folder nor link; an image cannot hold it")


def entry(
    name: str, when: int, *, kind: bytes = tarfile.REGTYPE, mode: int = 0o644, size: int = 0
) -> tarfile.TarInfo:
    """Return a tar header owned by 0:0."""
    made = tarfile.TarInfo(name)
    made.type, made.mode, made.mtime, made.size = kind, mode, when, size
    return made


def _parents(prefix: str) -> list[str]:
    parts = PurePosixPath(prefix).parts
    return ["/".join(parts[: count + 1]) for count in range(len(parts))]


def _walk(folder: Path) -> Iterator[Path]:
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        yield Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            yield from _walk(Path(entry.path))


class _Writer(io.RawIOBase):
    """The file object that tarfile asks for, over anything with write()."""

    def __init__(self, sink: Sink) -> None:
        super().__init__()
        self._sink = sink

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._sink.write(data)
        return len(data)

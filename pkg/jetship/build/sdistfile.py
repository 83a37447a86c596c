"""An sdist's files, unpacked without trusting them.

What is in the archive is there afterwards, links included, or it is an error: a member that is left
out, or becomes something else, would be another project than the one that was released.
"""

import contextlib
import os
import posixpath
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO

from jetship.errors import ConfigError
from jetship.store import is_full
from jetship.wheelarchive import DAMAGED

_KINDS = {
    tarfile.FIFOTYPE: "a named pipe",
    tarfile.CHRTYPE: "a device",
    tarfile.BLKTYPE: "a device",
}


@dataclass(frozen=True)
class _Member:
    """A file, folder or link.

    `link` is what a symbolic link says; `changed` is when a file did, where the archive says it in
    a way that is the same everywhere.
    """

    name: str
    is_folder: bool = False
    executable: bool = False
    link: str | None = None
    changed: float | None = None


def unpack(path: Path, root: Path) -> None:
    """Unpack a tar or zip archive into the empty folder `root`.

    Raises:
        ConfigError: it is damaged, or has a member that is no file, folder or link, that lands
            outside of the folder, or that links or lies behind a link.
    """
    try:
        links: dict[str, str] = {}
        for member, source in _zip(path) if path.suffix == ".zip" else _tar(path):
            _write(path, member, source, root, links)
        # Last, so that nothing is ever written through one.
        for name, link in links.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).symlink_to(link)
        for name, link in links.items():
            # Not Path.resolve, which some releases of Python let fail where links go in a circle.
            if not Path(os.path.realpath(root / name)).is_relative_to(root.resolve()):
                raise _refused(path, name, f"links to {link}, outside of the project")
    except (*DAMAGED, tarfile.TarError) as error:
        if isinstance(error, OSError) and is_full(error):
            raise
        raise ConfigError(
            f"{path} cannot be unpacked",
            why=str(error),
            fix="it is damaged, or no sdist: download it again",
        ) from error


def _tar(path: Path) -> Iterator[tuple[_Member, IO[bytes] | None]]:
    with tarfile.open(path) as archive:
        for info in archive:
            if not (info.isfile() or info.isdir() or info.issym() or info.islnk()):
                raise _refused(path, info.name, f"is {_KINDS.get(info.type, 'of no known kind')}")
            link = info.linkname if info.issym() else None
            runs = bool(info.mode & 0o100)
            member = _Member(info.name, info.isdir(), runs, link, info.mtime)
            try:
                yield member, archive.extractfile(info) if info.isfile() or info.islnk() else None
            except KeyError:
                raise _refused(path, info.name, f"links to {info.linkname}, not in it") from None


def _zip(path: Path) -> Iterator[tuple[_Member, IO[bytes] | None]]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            mode = info.external_attr >> 16
            if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR, stat.S_IFLNK):
                raise _refused(path, info.filename, "is a named pipe or device")
            link = os.fsdecode(archive.read(info)) if stat.S_ISLNK(mode) else None
            member = _Member(info.filename, info.is_dir(), bool(mode & 0o100), link)
            if info.is_dir() or link is not None:
                yield member, None
            else:
                with archive.open(info) as source:
                    yield member, source


def _write(
    path: Path, member: _Member, source: IO[bytes] | None, root: Path, links: dict[str, str]
) -> None:
    """Write one member below `root`; a link is only put down in `links`."""
    name = posixpath.normpath(member.name)
    if name.startswith("/") or name.split("/")[0] == "..":
        raise _refused(path, member.name, "would land outside of the project")
    behind = [str(one) for one in (name, *PurePosixPath(name).parents) if str(one) in links]
    if behind:
        raise _refused(path, member.name, f"lies behind the link {behind[0]}")
    to = root / name
    if member.link is not None:
        links[name] = member.link
    elif member.is_folder:
        to.mkdir(parents=True, exist_ok=True)
    else:
        to.parent.mkdir(parents=True, exist_ok=True)
        if source is None:
            raise _refused(path, member.name, "is a link to something that is no file")
        with contextlib.closing(source), to.open("wb") as sink:
            shutil.copyfileobj(source, sink)
        to.chmod(0o755 if member.executable else 0o644)
        if member.changed is not None:  # make looks at what is newer
            os.utime(to, (member.changed, member.changed))


def _refused(path: Path, name: str, why: str) -> ConfigError:
    return ConfigError(
        f"{path} cannot be unpacked: its member {name} {why}",
        fix="no build tool writes such an sdist; find out where it comes from, or unpack it "
        "yourself and name the folder",
    )

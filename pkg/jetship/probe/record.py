"""What was read of a device: facts, and the tables of its libraries, in one file."""

import contextlib
import functools
import json
import re
import tempfile
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from packaging.version import InvalidVersion, Version

from jetship import console
from jetship.elf import ElfError, ElfFile, read_elf
from jetship.errors import ConfigError
from jetship.nofile import why_no_file
from jetship.probe.reader import FORMAT
from jetship.targets.model import Platform

INDEX = "index.json"
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, KeyError, ValueError, TypeError)
_FIX = "let the device be read: invoke probe USER@HOST --out NAME.probe"


@dataclass(frozen=True)
class Record:
    """A device's record file: `facts` is what the device says of itself."""

    path: Path
    facts: dict[str, Any]
    files: tuple[dict[str, Any], ...]

    @property
    def names(self) -> frozenset[str]:
        """File names of the libraries that it has."""
        return frozenset(row["name"] for row in self.files)

    @property
    def l4t(self) -> str:
        """The release of L4T, "r35.4.1", or "" where the device is no Jetson."""
        match = re.match(r"# R(\d+) \(release\), REVISION: ([\d.]+)", self.facts["l4t"])
        return f"r{match[1]}.{match[2]}" if match else ""

    def libraries(self) -> Iterator[tuple[str, str, ElfFile]]:
        """Yield the folder, the name and the tables of each library, in the loader's order.

        Raises:
            ConfigError: the file is damaged.
        """
        with _reading(self.path), zipfile.ZipFile(self.path) as archive:
            for row in self.files:
                elf = _whole(row, archive.read(row["member"]))
                if elf is not None and elf.dynamic:
                    yield str(Path(row["path"]).parent), elf.soname or row["name"], elf


def read_record(path: Path, said: str = "") -> Record:
    """Open a record file.

    Raises:
        ConfigError: it is none, is of another version of jetship, or is damaged.
    """
    said = said or str(path)
    if problem := why_no_file(path):
        raise ConfigError(f"{said} {problem}", fix=_FIX)
    with _reading(path, said), zipfile.ZipFile(path) as archive:
        index = json.loads(archive.read(INDEX))
        if index["format"] != FORMAT:
            raise ConfigError(f"{said} was written by another version of jetship", fix=_FIX)
        return Record(path, dict(index["facts"]), tuple(index["files"]))


def require_whole(path: Path) -> None:
    """Read a record to its last byte.

    Raises:
        ConfigError: it is damaged or cut off.
    """
    record = read_record(path)
    with _reading(path), zipfile.ZipFile(path) as archive:
        if archive.testzip() is not None or not record.files:
            raise zipfile.BadZipFile("a member of it is damaged")


def require_fitting(record: Record, platform: Platform, said: str) -> None:
    """Refuse a record of another machine, Python, torch or L4T than the platform's.

    Raises:
        ConfigError: says all that differs.
    """
    facts = record.facts
    differing = [
        f"{what} {found} instead of {wanted}"
        for what, found, wanted, same in (
            ("machine", facts["machine"], platform.machine, facts["machine"] == platform.machine),
            ("Python", facts["python"], platform.python.version,
             facts["python"] == platform.python.version),
            ("torch", facts["torch"], platform.torch.version,
             _release(facts["torch"]) == _release(platform.torch.version)),
            ("L4T", record.l4t, ", ".join(platform.l4t), _same_l4t(record.l4t, platform)),
        )
        if not same
    ]  # fmt: skip
    if differing:
        raise ConfigError(
            f"{said} is of a device that is no {platform.name}",
            why=f"it has {'; '.join(differing)}",
            fix="name the platform of that device; for one that jetship does not know, describe a "
            "platform of your own (--targets-file)",
        )
    if platform.l4t and record.l4t not in platform.l4t:
        found = f"L4T {record.l4t}" if record.l4t else "no L4T"
        console.warn(f"the device of {said} has {found}, which {platform.name} does not list")


def _same_l4t(found: str, platform: Platform) -> bool:
    """Compare the major releases: a container or server has none, and says nothing."""
    majors = {release.partition(".")[0] for release in platform.l4t}
    return not found or not majors or found.partition(".")[0] in majors


def _release(version: str) -> tuple[int, ...] | None:
    with contextlib.suppress(InvalidVersion):
        return Version(version).release
    return None


@contextlib.contextmanager
def _reading(path: Path, said: str = "") -> Iterator[None]:
    try:
        yield
    except _DAMAGED as error:
        raise ConfigError(
            f"{said or path} is no record of a device, or is damaged",
            why=str(error),
            fix=_FIX,
        ) from error


def _whole(row: dict[str, Any], content: bytes) -> ElfFile | None:
    """Read the tables from a file that has them where the library has, and holes between."""
    with tempfile.NamedTemporaryFile() as file:
        file.truncate(int(row["size"]))
        place = 0
        for offset, length in row["ranges"]:
            file.seek(offset)
            file.write(content[place : place + length])
            place += length
        file.flush()
        try:
            return read_elf(Path(file.name))
        except ElfError as error:
            console.warn(f"{row['path']} of the device is damaged, and is left out: {error}")
            return None


@functools.cache
def reader_source() -> str:
    """Return the program that runs on the device."""
    return Path(__file__).with_name("reader.py").read_text(encoding="utf-8")

"""The facts of a wheel, read once; the rules look at nothing else."""

import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email.message import Message
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from jetship import console
from jetship.elf import MAGIC, Data, ElfError, ElfFile, mapped, parse_elf
from jetship.errors import CheckError
from jetship.fatbin import DeviceImage, FatbinError, images_in
from jetship.instructions import Instructions, instructions_of
from jetship.pin import Pin
from jetship.recorded import record_rows
from jetship.store import sha256_of
from jetship.wheelarchive import WheelArchive, opened

_LARGE_BYTES = 100_000_000


@dataclass(frozen=True)
class Member:
    """An ELF file in the wheel, or a file that should be one.

    `damage` and `images_damage` say why the file, or its device code, could not be read;
    `digest` is what RECORD has to say.
    """

    name: str
    elf: ElfFile | None
    damage: str = ""
    images: tuple[DeviceImage, ...] = ()
    images_damage: str = ""
    instructions: Instructions = field(default_factory=Instructions)
    digest: str = ""

    @property
    def file(self) -> str:
        return self.name.rpartition("/")[2]

    @property
    def is_library(self) -> bool:
        return _named_so(self.name)


@dataclass(frozen=True)
class Wheel:
    """What a wheel says about itself and what is in it."""

    path: Path
    sha256: str
    name: str
    version: Version
    tags: frozenset[Tag]
    metadata: Message
    wheel_file: Message
    record_problems: tuple[str, ...]
    pin: Pin | None
    pin_damage: str
    members: tuple[Member, ...]

    @property
    def file(self) -> str:
        return self.path.name

    @property
    def readable(self) -> Iterator[tuple[Member, ElfFile]]:
        """The members whose tables could be read."""
        for member in self.members:
            if member.elf is not None and member.elf.dynamic:
                yield member, member.elf


def read_wheel(path: Path) -> Wheel:
    """Read a wheel.

    Raises:
        CheckError: the file is not a wheel. What is wrong inside of a wheel is a finding of
            the rules instead, and so is a damaged library.
    """
    name, version, tags = _parse_name(path)
    with opened(path) as archive, tempfile.TemporaryDirectory() as scratch:
        _require_same(path, archive.info, name, version)
        _announce(archive)
        members, record_problems = _walk(archive, Path(scratch) / "member")
        pin, pin_damage = pin_in(archive.pin)
        return Wheel(
            path=path,
            sha256=sha256_of(path),
            name=name,
            version=version,
            tags=tags,
            metadata=archive.headers("METADATA"),
            wheel_file=archive.headers("WHEEL"),
            record_problems=record_problems,
            pin=pin,
            pin_damage=pin_damage,
            members=members,
        )


def _announce(archive: WheelArchive) -> None:
    """Say what takes seconds, or a minute on a machine that has other work."""
    size = sum(info.file_size for info in archive.members)
    if size > _LARGE_BYTES:
        console.note(f"reading {archive.path.name}, {size / 1e6:.0f} MB unpacked")


def _parse_name(path: Path) -> tuple[str, Version, frozenset[Tag]]:
    try:
        name, version, _, tags = parse_wheel_filename(path.name)
    except InvalidWheelFilename as error:
        raise CheckError(
            f"{path.name!r} is not the name of a wheel",
            why=str(error),
            fix="a wheel keeps the name that it was built with",
        ) from error
    return name, version, tags


def _require_same(path: Path, info: str, name: str, version: Version) -> None:
    its_name, _, its_version = info.removesuffix(".dist-info").rpartition("-")
    try:
        same = canonicalize_name(its_name) == name and Version(its_version) == version
    except InvalidVersion:
        same = False
    if not same:
        raise CheckError(
            f"{path.name} holds {info}, so it is another wheel than its name says",
            fix="a wheel keeps the name that it was built with",
        )


def pin_in(read: Callable[[], Pin | None]) -> tuple[Pin | None, str]:
    """Return the pin that `read` reads, or None and its damage."""
    try:
        return read(), ""
    except CheckError as error:
        return None, error.why or str(error)


def _walk(archive: WheelArchive, scratch: Path) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Read every member once: its digest for RECORD, and its facts if it is ELF."""
    record = f"{archive.info}/RECORD"
    found, problems = record_rows(archive.read(record))
    rows = {row.path: row for row in found}
    members = []
    for info in archive.members:
        name = info.filename
        row = rows.pop(name, None)
        try:
            digest = archive.copy(info, scratch)
        except CheckError as error:
            members += [Member(name, None, error.why)] if _named_so(name) else []
            problems.append(str(error))
            continue
        if name == record:
            continue
        if row is not None:
            problems += row.problems(digest, info.file_size)
        elif not name.endswith((".dist-info/RECORD.jws", ".dist-info/RECORD.p7s")):
            problems.append(f"{name} is not in RECORD")
        member = member_of(name, scratch)
        members += [replace(member, digest=digest)] if member else []
    rows.pop(record, None)
    problems += [f"{name} is in RECORD, but not in the wheel" for name in rows]
    return tuple(members), tuple(problems)


def _named_so(name: str) -> bool:
    return re.search(r"\.so(\.\d+)*$", name) is not None


def member_of(name: str, path: Path) -> Member | None:
    """Return the facts of a file, or None for one that is no library and need not be one."""
    with path.open("rb") as stream:
        is_elf = stream.read(len(MAGIC)) == MAGIC
    if not is_elf and not _named_so(name):
        return None
    try:
        with mapped(path) as data:
            return _read(name, data)
    except ElfError as error:
        return Member(name, None, str(error))


def _read(name: str, data: Data) -> Member:
    elf = parse_elf(data)
    # A 32-bit or big-endian file has no code for any target.
    decoded = elf.machine == "aarch64" and elf.dynamic
    found = instructions_of(data, elf) if decoded else Instructions()
    if not elf.dynamic and (elf.bits, elf.little_endian) != (64, True):
        return Member(name, elf)
    try:
        return Member(name, elf, images=images_in(data, elf.sections), instructions=found)
    except (ElfError, FatbinError) as error:
        return Member(name, elf, images_damage=str(error), instructions=found)

"""The facts of a wheel, read once; the rules look at nothing else."""

import csv
import io
import re
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, canonicalize_name, parse_wheel_filename
from packaging.version import InvalidVersion, Version

from jetship.check import archive
from jetship.elf import MAGIC, Data, ElfError, ElfFile, mapped, parse_elf
from jetship.errors import CheckError
from jetship.fatbin import DeviceImage, FatbinError, images_in
from jetship.instructions import Instructions, instructions_of
from jetship.pin import PIN_FILE, Pin
from jetship.store import sha256_of


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
    with archive.opened(path) as opened, tempfile.TemporaryDirectory() as scratch:
        info = _dist_info(opened, path, name, version)
        members, record_problems = _walk(opened, f"{info}/RECORD", Path(scratch) / "member")
        pin_file = f"{info}/{PIN_FILE}"
        has_pin = pin_file in opened.namelist()
        pin, pin_damage = pin_in((lambda: archive.read(opened, pin_file)) if has_pin else None)
        return Wheel(
            path=path,
            sha256=sha256_of(path),
            name=name,
            version=version,
            tags=tags,
            metadata=_message(opened, f"{info}/METADATA"),
            wheel_file=_message(opened, f"{info}/WHEEL"),
            record_problems=record_problems,
            pin=pin,
            pin_damage=pin_damage,
            members=members,
        )


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


def _dist_info(opened: zipfile.ZipFile, path: Path, name: str, version: Version) -> str:
    found = {
        top
        for top in (member.partition("/")[0] for member in opened.namelist())
        if top.endswith(".dist-info")
    }
    if len(found) != 1:
        raise CheckError(f"{path.name} is not a wheel: it has {len(found)} .dist-info folders")
    folder = found.pop()
    its_name, _, its_version = folder.removesuffix(".dist-info").rpartition("-")
    try:
        same = canonicalize_name(its_name) == name and Version(its_version) == version
    except InvalidVersion:
        same = False
    if not same:
        raise CheckError(
            f"{path.name} holds {folder}, so it is another wheel than its name says",
            fix="a wheel keeps the name that it was built with",
        )
    return folder


def _message(opened: zipfile.ZipFile, name: str) -> Message:
    return BytesParser().parsebytes(archive.read(opened, name), headersonly=True)


def pin_in(read: Callable[[], bytes] | None) -> tuple[Pin | None, str]:
    """Return the pin in a file that `read` reads, or None and its damage; None for no file."""
    if read is None:
        return None, ""
    try:
        return Pin.from_json(read()), ""
    except CheckError as error:
        return None, error.why or str(error)


def _walk(
    opened: zipfile.ZipFile, record: str, scratch: Path
) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    """Read every member once: its digest for RECORD, and its facts if it is ELF."""
    rows, problems = _record_rows(archive.read(opened, record))
    members = []
    for info in opened.infolist():
        if info.is_dir():
            continue
        try:
            digest = archive.copy(opened, info, scratch)
        except CheckError as error:
            members += [Member(info.filename, None, error.why)] if _named_so(info.filename) else []
            problems.append(str(error))
            rows.pop(info.filename, None)
            continue
        if info.filename != record:
            problems += _compare(info, digest, rows.pop(info.filename, None))
        member = member_of(info.filename, scratch)
        members += [replace(member, digest=digest)] if member else []
    rows.pop(record, None)
    problems += [f"{name} is in RECORD, but not in the wheel" for name in rows]
    return tuple(members), tuple(problems)


def _record_rows(data: bytes) -> tuple[dict[str, tuple[str, str]], list[str]]:
    rows: dict[str, tuple[str, str]] = {}
    problems = []
    try:
        for row in csv.reader(io.StringIO(data.decode("utf-8"))):
            if len(row) != 3 or row[0] in rows:
                problems.append(f"RECORD has a damaged or repeated row: {','.join(row)}")
            else:
                rows[row[0]] = (row[1], row[2])
    except (UnicodeDecodeError, csv.Error) as error:
        problems.append(f"RECORD cannot be read: {error}")
    return rows, problems


def _compare(info: zipfile.ZipInfo, digest: str, row: tuple[str, str] | None) -> list[str]:
    if row is None:
        signature = info.filename.endswith((".dist-info/RECORD.jws", ".dist-info/RECORD.p7s"))
        return [] if signature else [f"{info.filename} is not in RECORD"]
    recorded, size = row
    if not recorded.startswith("sha256="):
        return [f"{info.filename} has no sha256 in RECORD"]
    if recorded != digest or (size and size != str(info.file_size)):
        return [f"{info.filename} is not what RECORD says: {digest}, recorded {recorded}"]
    return []


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

"""Wheels as values: read whole, changed in memory, written as the same bytes each time."""

import csv
import hashlib
import io
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from packaging.tags import Tag
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

from jetship.epoch import source_date_epoch
from jetship.errors import BuildError, CheckError
from jetship.recorded import recorded
from jetship.store import write_atomically
from jetship.wheelarchive import opened

# The oldest time that a zip archive can hold; used when SOURCE_DATE_EPOCH is not set.
ZIP_EPOCH = 315532800


@dataclass(frozen=True)
class Member:
    """One file of a wheel."""

    data: bytes
    executable: bool = False


@dataclass(frozen=True)
class Headers:
    """A METADATA or WHEEL file. What is not changed keeps its bytes: the email library would
    fold long headers anew and encode what is not ASCII.
    """

    fields: tuple[tuple[str, str], ...]
    body: str

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read headers (a line that starts with white space continues the one before)."""
        head, _, body = data.decode("utf-8").replace("\r\n", "\n").partition("\n\n")
        fields: list[tuple[str, str]] = []
        for line in head.rstrip("\n").split("\n"):
            if line[:1].isspace() and fields:
                name, value = fields[-1]
                fields[-1] = (name, f"{value}\n{line}")
            else:
                name, _, value = line.partition(":")
                fields.append((name, value.strip()))
        return cls(tuple(fields), body)

    def all(self, name: str) -> list[str]:
        """Return the values of every field of this name, in order."""
        return [value for key, value in self.fields if key.lower() == name.lower()]

    def without(self, name: str) -> Self:
        """Return the headers without the fields of this name."""
        kept = tuple(field for field in self.fields if field[0].lower() != name.lower())
        return replace(self, fields=kept)

    def adding(self, name: str, value: str) -> Self:
        """Return the headers with one more field."""
        return replace(self, fields=(*self.fields, (name, value)))

    def to_bytes(self) -> bytes:
        """Return the file."""
        head = "".join(f"{name}: {value}\n" for name, value in self.fields)
        return (head + "\n" + self.body).encode("utf-8") if self.body else head.encode("utf-8")


@dataclass(frozen=True)
class Wheel:
    """A wheel's name, version, tags and files (without RECORD, which is computed)."""

    name: str
    version: str
    tags: frozenset[Tag]
    members: dict[str, Member]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a wheel that a build just made.

        Raises:
            BuildError: it is not a wheel.
        """
        try:
            name, version, _, tags = parse_wheel_filename(path.name)
            with opened(path) as archive:
                members = {
                    one.filename: Member(
                        archive.read(one.filename), bool(one.external_attr >> 16 & 0o100)
                    )
                    for one in archive.members
                }
        except (InvalidWheelFilename, CheckError) as error:
            raise BuildError(f"{path.name} is not a wheel", why=error.args[0]) from error
        stem = path.name.split("-")[0]
        wheel = cls(stem, str(version), tags, members)
        record = f"{wheel.dist_info}/RECORD"
        if record not in members:
            raise BuildError(f"{path.name} has no {record}", why=f"the project is {name}")
        del members[record]
        return wheel

    @property
    def dist_info(self) -> str:
        """The metadata folder: name-version.dist-info."""
        return f"{self.name}-{self.version}.dist-info"

    @property
    def filename(self) -> str:
        """The file name by the wheel specification; compressed tag sets are sorted."""
        parts = [
            ".".join(sorted({getattr(tag, field) for tag in self.tags}))
            for field in ("interpreter", "abi", "platform")
        ]
        return f"{self.name}-{self.version}-{'-'.join(parts)}.whl"

    @property
    def metadata(self) -> "Headers":
        """METADATA's headers; change them and give them back with `with_metadata`."""
        return Headers.parse(self.members[f"{self.dist_info}/METADATA"].data)

    def with_member(self, name: str, data: bytes) -> Self:
        """Return the wheel with one file added or replaced."""
        return replace(self, members={**self.members, name: Member(data)})

    def with_metadata(self, metadata: "Headers") -> Self:
        """Return the wheel with another METADATA."""
        return self.with_member(f"{self.dist_info}/METADATA", metadata.to_bytes())

    def with_version(self, version: str) -> Self:
        """Return the wheel under another version: metadata and folder names follow."""
        changed = self.with_metadata(self.metadata.without("Version").adding("Version", version))
        old, new = f"{self.name}-{self.version}.", f"{self.name}-{version}."
        moved = tuple(old + folder for folder in ("dist-info/", "data/"))
        members = {
            new + name.removeprefix(old) if name.startswith(moved) else name: member
            for name, member in changed.members.items()
        }
        return replace(changed, version=version, members=members)

    def with_tags(self, tags: frozenset[Tag]) -> Self:
        """Return the wheel under other tags; the WHEEL file follows."""
        name = f"{self.dist_info}/WHEEL"
        headers = Headers.parse(self.members[name].data).without("Tag")
        for tag in sorted(map(str, tags)):
            headers = headers.adding("Tag", tag)
        return replace(self.with_member(name, headers.to_bytes()), tags=tags)

    def write(self, folder: Path) -> Path:
        """Write the wheel into `folder` under its own name, whole or not at all."""
        path = folder / self.filename
        write_atomically(path, self._archive())
        return path

    def _archive(self) -> bytes:
        stamp = _zip_time()
        record_name = f"{self.dist_info}/RECORD"
        rows: list[tuple[str, str, int | str]] = []
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
            # Metadata last, as the specification recommends.
            for name in sorted(self.members, key=lambda one: (one.startswith(self.dist_info), one)):
                member = self.members[name]
                _add(archive, name, member, stamp)
                digest = hashlib.sha256(member.data).digest()
                rows.append((name, recorded(digest), len(member.data)))
            rows.append((record_name, "", ""))
            text = io.StringIO()
            csv.writer(text, lineterminator="\n").writerows(rows)
            _add(archive, record_name, Member(text.getvalue().encode()), stamp)
        return buffer.getvalue()


def _add(
    archive: zipfile.ZipFile, name: str, member: Member, stamp: tuple[int, int, int, int, int, int]
) -> None:
    info = zipfile.ZipInfo(name, stamp)
    mode = 0o100755 if member.executable else 0o100644
    info.external_attr = mode << 16
    info.create_system = 3  # Unix, whatever builds it
    info.compress_type = zipfile.ZIP_DEFLATED
    archive.writestr(info, member.data)


def _zip_time() -> tuple[int, int, int, int, int, int]:
    epoch = max(source_date_epoch(ZIP_EPOCH), ZIP_EPOCH)
    moment = time.gmtime(epoch)
    return (moment.tm_year, moment.tm_mon, moment.tm_mday,
            moment.tm_hour, moment.tm_min, moment.tm_sec)  # fmt: skip

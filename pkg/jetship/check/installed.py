"""Distributions that are installed in a folder of packages, as the rules see wheels."""

import hashlib
from dataclasses import replace
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

from packaging.tags import Tag, parse_tag
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from jetship.check.wheel import Member, Wheel, member_of, pin_in
from jetship.errors import CheckError
from jetship.nofile import why_no_file
from jetship.pin import PIN_FILE, Pin
from jetship.recorded import record_rows, recorded
from jetship.store import sha256_of

_NATIVE = ".so"


def distributions(packages: Path) -> tuple[list[Path], list[Path]]:
    """Return the .dist-info folders that can be checked, and those without RECORD or WHEEL.

    What has neither native code nor a pin record is left out: nothing of it depends on the target.
    """
    found, unlisted = [], []
    for info in sorted(packages.glob("*.dist-info")):
        if not (info / "RECORD").is_file() or not (info / "WHEEL").is_file():
            unlisted.append(info)
        elif (info / PIN_FILE).is_file() or _is_native(info):
            found.append(info)
    return found, unlisted


def _is_native(info: Path) -> bool:
    rows, _ = record_rows((info / "RECORD").read_bytes())
    return any(_NATIVE in row.path.rpartition("/")[2] for row in rows)


def read_installed(info: Path) -> Wheel:
    """Read a distribution by the RECORD of its .dist-info folder.

    Its digest is that of RECORD. Scripts outside of the folder of packages and compiled
    Python files are nobody's proof, and are passed over.

    Raises:
        CheckError: the folder does not say what it is.
    """
    name, _, text = info.name.removesuffix(".dist-info").rpartition("-")
    try:
        version = Version(text)
    except InvalidVersion as error:
        raise CheckError(
            f"{info} is not named as a distribution: NAME-VERSION.dist-info",
            why=str(error),
            fix="install it again with pip",
        ) from error
    wheel_file = _message(info / "WHEEL")
    members, problems = _walk(info)
    pin_file = info / PIN_FILE
    pin, pin_damage = None, ""
    if pin_file.is_file():
        pin, pin_damage = pin_in(lambda: Pin.from_json(pin_file.read_bytes()))
    return Wheel(
        path=info,
        sha256=sha256_of(info / "RECORD"),
        name=canonicalize_name(name),
        version=version,
        tags=_tags(info, wheel_file),
        metadata=_message(info / "METADATA"),
        wheel_file=wheel_file,
        record_problems=problems,
        pin=pin,
        pin_damage=pin_damage,
        members=members,
    )


def _message(path: Path) -> Message:
    if problem := why_no_file(path):
        raise CheckError(f"{path} {problem}", fix="install it again with pip")
    try:
        return BytesParser().parsebytes(path.read_bytes(), headersonly=True)
    except OSError as error:
        raise CheckError(
            f"{path} cannot be read", why=error.strerror or "", fix="install it again with pip"
        ) from error


def _tags(info: Path, wheel_file: Message) -> frozenset[Tag]:
    lines = [str(line) for line in wheel_file.get_all("Tag", [])]
    try:
        tags = frozenset(tag for line in lines for tag in parse_tag(line))
    except ValueError:
        tags = frozenset()
    if not tags:
        raise CheckError(f"{info}/WHEEL names no tag", fix="install it again with pip")
    return tags


def _walk(info: Path) -> tuple[tuple[Member, ...], tuple[str, ...]]:
    rows, problems = record_rows((info / "RECORD").read_bytes())
    members = []
    own = {f"{info.name}/RECORD"}
    for row in rows:
        if row.path in own or _is_passed_over(row.path):
            continue
        path = _inside(info.parent, row.path)
        if path is None or not path.is_file():
            problems.append(f"{row.path} is in RECORD, but not installed")
            continue
        digest = _digest(path)
        if row.digest:  # pip writes none for what it made itself
            problems += row.problems(digest, path.stat().st_size)
        member = member_of(row.path, path)
        members += [replace(member, digest=digest)] if member else []
    return tuple(members), tuple(problems)


def _is_passed_over(name: str) -> bool:
    return name.startswith(("../", "/")) or name.endswith(".pyc")


def _inside(packages: Path, name: str) -> Path | None:
    """Return where a file lies; None for one that a link leads out of the folder."""
    path = packages / name
    return path if path.resolve().is_relative_to(packages.resolve()) else None


def _digest(path: Path) -> str:
    """Return a file's digest as RECORD writes it."""
    with path.open("rb") as stream:
        return recorded(hashlib.file_digest(stream, "sha256").digest())

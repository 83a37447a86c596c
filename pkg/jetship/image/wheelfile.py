"""A wheel as the image stage sees it: what it is called, its pin, and how it is installed."""

import re
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from email.message import Message
from pathlib import Path

import installer
import installer.destinations
import installer.exceptions
import installer.sources

from jetship.errors import CheckError, ImageError
from jetship.pin import PIN_FILE, Pin
from jetship.store import sha256_of
from jetship.wheelarchive import opened

TARGET_PYTHON = "/usr/bin/python3"


@dataclass(frozen=True)
class WheelFacts:
    """The facts that an image records about its wheel."""

    file: str
    sha256: str
    name: str
    version: str
    summary: str
    licenses: str
    """An SPDX expression, or ""."""
    source: str
    """Where its sources are, or ""."""
    pin: Pin
    pin_json: str


def read_wheel(wheel: Path) -> WheelFacts:
    """Read a wheel's metadata and pin.

    Raises:
        CheckError: it is not a wheel, or has no pin record that can be read.
    """
    with opened(wheel) as archive:
        metadata, pin = archive.headers("METADATA"), archive.pin()
    if pin is None:
        raise CheckError(
            f"{wheel.name} carries no pin record ({PIN_FILE})",
            fix="build it with `invoke build`, which writes the record",
        )
    return WheelFacts(
        file=wheel.name,
        sha256=sha256_of(wheel),
        name=metadata["Name"],
        version=metadata["Version"],
        summary=metadata["Summary"] or "",
        licenses=metadata["License-Expression"] or "",
        source=_source(metadata),
        pin=pin,
        pin_json=pin.model_dump_json(),
    )


def libraries(wheel: Path) -> Iterator[tuple[str, bytes]]:
    """Yield name and content of every shared library of a wheel.

    Raises:
        CheckError: it is not a wheel, or a library is damaged.
    """
    with opened(wheel) as archive:
        for name in (member.filename for member in archive.members):
            last = name.rpartition("/")[2]
            if last.endswith(".so") or ".so." in last:
                yield name, archive.read(name)


def install(wheel: Path, root: Path, packages: str) -> None:
    """Install a wheel into the folder `root` as if that were the target's file system.

    Nothing is run and no bytecode is compiled: the build machine's Python is another one.

    Args:
        wheel: the wheel.
        root: an empty folder.
        packages: where packages go on the target, without the leading slash.

    Raises:
        ImageError: the wheel is damaged, or writes outside of its folders.
    """
    python = packages.split("/")[-2]
    distribution = wheel.name.split("-", 1)[0]
    scheme = {
        "purelib": f"/{packages}",
        "platlib": f"/{packages}",
        "scripts": "/usr/local/bin",
        "headers": f"/usr/local/include/{python}/{distribution}",
        "data": "/usr/local",
    }
    destination = installer.destinations.SchemeDictionaryDestination(
        scheme, interpreter=TARGET_PYTHON, script_kind="posix", destdir=str(root)
    )
    try:
        with installer.sources.WheelFile.open(wheel) as source:
            source.validate_record()
            installer.install(source, destination, {"INSTALLER": b"jetship\n"})
    except (OSError, ValueError, zipfile.BadZipFile, installer.exceptions.InstallerError) as error:
        raise ImageError(f"{wheel.name} cannot be installed", why=str(error)) from error


def _source(metadata: Message) -> str:
    """Return the project's address under one of the labels that PyPI calls well known."""
    rows = (row.partition(",") for row in metadata.get_all("Project-URL") or [])
    urls = {re.sub(r"[^a-z]", "", label.lower()): url.strip() for label, _, url in rows}
    known = ("source", "repository", "sourcecode", "github", "homepage")
    return next((urls[label] for label in known if label in urls), metadata["Home-page"] or "")

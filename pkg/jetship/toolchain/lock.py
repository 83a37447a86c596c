"""Lock files: every download of a toolchain by name, version and SHA-256."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.store import write_atomically
from jetship.targets.model import Platform
from jetship.yamlfile import Strict

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

_HEADER = """\
# Written by `invoke lock --platform {platform}`: what is downloaded for this platform, and its
# digests. Do not edit by hand: change the platform's file and write this one again.
"""


class Locked(Strict):
    """One file to download. For a Debian package, `file` ends in _<architecture>.deb."""

    name: str
    version: str
    file: str
    sha256: Sha256
    size: Annotated[int, Field(gt=0)]

    @property
    def architecture(self) -> str:
        """The Debian architecture that the file name carries: amd64, arm64 or all."""
        return self.file.removesuffix(".deb").rpartition("_")[2]


class Lock(Strict):
    """The parts of a toolchain and the files that each is made of."""

    version: Literal[1] = 1
    parts: dict[str, tuple[Locked, ...]]


def lock_path(platform: Platform, folder: Path | None = None) -> Path:
    """Return where the platform's lock file is, or is to be written."""
    return (folder or data_dir("toolchains")) / "locks" / f"{platform.name}.yaml"


def read_lock(platform: Platform, folder: Path | None = None) -> Lock:
    """Read a platform's lock file.

    Raises:
        ConfigError: it is missing or damaged.
    """
    return yamlfile.load(lock_path(platform, folder), Lock)


def write_lock(platform: Platform, lock: Lock, folder: Path | None = None) -> Path:
    """Write a platform's lock file: one line a download, in a stable order."""
    lines = [_HEADER.format(platform=platform.name), f"version: {lock.version}", "parts:"]
    for part, files in sorted(lock.parts.items()):
        lines.append(f"  {part}:")
        for item in sorted(files, key=lambda one: one.name):
            fields = ", ".join(
                f"{key}: {_plain(value)}" for key, value in item.model_dump().items()
            )
            lines.append(f"    - {{{fields}}}")
    path = lock_path(platform, folder)
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path


def _plain(value: str | int) -> str:
    """Return the value as YAML; a version such as 20230311 needs quotes to stay text."""
    return f'"{value}"' if isinstance(value, str) and value.isdigit() else str(value)

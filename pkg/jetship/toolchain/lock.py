"""Lock files: every download of a toolchain by name, version and SHA-256."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.store import write_atomically
from jetship.yamlfile import Strict

Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]

_HEADER = """\
# Written by `invoke pins --part {part}`: what this part is made of, with digests.
# Do not edit by hand: change {described_in} and write this one again.
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
    """The files that a part is made of, by source ("debian/bookworm/amd64")."""

    version: Literal[1] = 1
    sources: dict[str, tuple[Locked, ...]]

    @property
    def digests(self) -> tuple[str, ...]:
        """What decides the part's content: every file's digest, with its source."""
        return tuple(
            f"{source} {item.sha256}"
            for source in sorted(self.sources)
            for item in self.sources[source]
        )


def lock_path(part: str, folder: Path | None = None) -> Path:
    """Return where a part's lock file is, or is to be written."""
    return (folder or data_dir("toolchains")) / "locks" / f"{part}.yaml"


def read_lock(part: str, folder: Path | None = None) -> Lock:
    """Read a part's lock file.

    Raises:
        ConfigError: it is missing or damaged.
    """
    try:
        return yamlfile.load(lock_path(part, folder), Lock)
    except ConfigError as error:
        shipped = folder in (None, data_dir("toolchains"))
        option = "" if shipped else " --targets-file FILE"
        raise ConfigError(
            f"the lock file of {part} is missing or damaged",
            why=error.what,
            fix="restore the committed one, or write it anew with "
            f"`invoke pins --part {part}{option}`",
        ) from error


def write_lock(
    part: str, lock: Lock, folder: Path | None = None, *, described_in: str = ""
) -> Path:
    """Write a part's lock file: one line a download, in a stable order."""
    described_in = described_in or f"toolchains/parts/{part}.yaml"
    header = _HEADER.format(part=part, described_in=described_in)
    lines = [header, f"version: {lock.version}", "sources:"]
    for source, files in sorted(lock.sources.items()):
        lines.append(f"  {source}:")
        for item in sorted(files, key=lambda one: one.name):
            fields = ", ".join(
                f"{key}: {_plain(value)}" for key, value in item.model_dump().items()
            )
            lines.append(f"    - {{{fields}}}")
    path = lock_path(part, folder)
    write_atomically(path, ("\n".join(lines) + "\n").encode())
    return path


def _plain(value: str | int) -> str:
    """Return the value as YAML; a version such as 20230311 needs quotes to stay text."""
    return f'"{value}"' if isinstance(value, str) and value.isdigit() else str(value)

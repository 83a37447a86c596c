"""Lock files: every download of a toolchain by name, version and SHA-256."""

import functools
import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, StringConstraints

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.store import write_atomically
from jetship.targets.parts import AptSource, DebianSource, NamedPart, Part, WheelSource
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


Words = dict[str, tuple[str, ...]]


class Lock(Strict):
    """The files that a part is made of, by source ("debian/bookworm/amd64").

    `asked` are the words of the part's description that they were resolved from, by source.
    """

    version: Literal[1] = 1
    asked: dict[str, Words] = Field(default_factory=dict)
    sources: dict[str, tuple[Locked, ...]]

    def asked_by(self, part: Part) -> Self:
        """Return this lock with the words of the part that it was resolved for."""
        return self.model_copy(update={"asked": asked_of(part)})

    @property
    def digests(self) -> tuple[str, ...]:
        """What decides the part's content: every file's digest, with its source."""
        return tuple(
            f"{source} {item.sha256}"
            for source in sorted(self.sources)
            for item in self.sources[source]
        )


def asked_of(part: Part) -> dict[str, Words]:
    """Return what decides which files a part is resolved to, by source, in a stable order.

    That is not where its repositories are, nor their keys: both may change.
    """
    return {source.lock_name: _words(source) for source in part.sources}


def _words(source: DebianSource | AptSource | WheelSource) -> Words:
    if isinstance(source, WheelSource):
        listed = {"python": (source.python,), "requirements": source.requirements}
    else:
        listed = {
            "components": tuple(
                f"{one.name}: {name}" for one in source.repositories for name in one.components
            ),
            "install": source.install,
            "alone": source.alone,
            "drop": source.drop,
        }
    return {key: tuple(sorted(set(words))) for key, words in listed.items() if words}


def lock_path(part: str, folder: Path | None = None) -> Path:
    """Return where a part's lock file is, or is to be written."""
    return (folder or data_dir("toolchains")) / "locks" / f"{part}.yaml"


def read_lock(part: str, folder: Path | None = None) -> Lock:
    """Read a part's lock file.

    Raises:
        ConfigError: it is missing or damaged.
    """
    path = lock_path(part, folder)
    try:
        about = path.stat() if path.is_file() else None
        return _loaded(path, about and (about.st_mtime_ns, about.st_size, about.st_ino))
    except ConfigError as error:
        shipped = folder in (None, data_dir("toolchains"))
        option = "" if shipped else " --targets-file FILE"
        raise ConfigError(
            f"the lock file of {part} is missing or damaged",
            why=error.what,
            fix="restore the committed one, or write it anew with "
            f"`invoke pins --part {part}{option}`",
        ) from error


@functools.cache
def _loaded(path: Path, _state: tuple[int, ...] | None) -> Lock:
    """Read a lock file once, as long as it stays as it is: a check asks for some several times."""
    return yamlfile.load(path, Lock)


def require_fitting(named: NamedPart) -> None:
    """Refuse a part without a lock file, or with one that was made of another description.

    Raises:
        ConfigError: says in which words the two differ.
    """
    path = lock_path(named.name, named.folder)
    fix = f"renew it with `{named.pins_command}`"
    if not path.is_file():
        raise ConfigError(
            f"the part {named.name} of {named.file} has no lock file",
            why=f"{path} does not exist",
            fix=f"write it with `{named.pins_command}`",
        )
    asked = read_lock(named.name, named.folder).asked
    differing = list(_differences(asked, asked_of(named.part)))
    if differing:
        raise ConfigError(
            f"the lock file of {named.name} does not fit {named.file}",
            why="; ".join(differing) if asked else "it does not say what it was made of",
            fix=fix,
        )


def fits(named: NamedPart) -> bool:
    """Return whether a part has a whole lock file that was made of its description."""
    try:
        require_fitting(named)
    except ConfigError:
        return False
    return True


def _differences(then: Mapping[str, Words], now: Mapping[str, Words]) -> Iterator[str]:
    for source in sorted({*then, *now}):
        old, new = then.get(source, {}), now.get(source, {})
        for key in dict.fromkeys((*new, *old)):
            before, after = set(old.get(key, ())), set(new.get(key, ()))
            for words, what in ((after - before, "new"), (before - after, "gone")):
                if words:
                    yield f"{what} in {key} of {source}: {', '.join(sorted(words))}"


def write_lock(
    part: str, lock: Lock, folder: Path | None = None, *, described_in: str = ""
) -> Path:
    """Write a part's lock file: one line a download, in a stable order."""
    described_in = described_in or f"toolchains/parts/{part}.yaml"
    header = _HEADER.format(part=part, described_in=described_in)
    lines = [header, f"version: {lock.version}"]
    if lock.asked:
        lines.append("asked:")
    for source, asked in sorted(lock.asked.items()):
        lines.append(f"  {source}:")
        lines += [f"    {key}: {_listed(words)}" for key, words in asked.items()]
    lines.append("sources:")
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


def _listed(words: tuple[str, ...]) -> str:
    """Return words as a YAML list; all but plain ones are quoted."""
    plain = re.compile(r"[A-Za-z][A-Za-z0-9.+=_-]*")
    shown = [word if plain.fullmatch(word) else json.dumps(word) for word in words]
    return f"[{', '.join(shown)}]"

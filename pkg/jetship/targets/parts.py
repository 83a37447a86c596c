"""The parts that toolchains are made of, as toolchains/parts/*.yaml describes them.

A part is one folder of the cache, shared by all platforms that name it. Its file says what
it is made of; versions and digests are in a folder locks/ under the same name.
"""

import difflib
import shlex
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import PlainSerializer, PlainValidator, ValidationInfo, model_validator
from pydantic_core import PydanticCustomError

from jetship import yamlfile
from jetship.targets.arch import Arch, ArchText
from jetship.targets.repositories import Component, Repository, Suite
from jetship.yamlfile import Strict

Kind = Literal["compiler", "sysroot", "cuda", "cuda_math", "torch", "base", "emulated"]
Machine = Literal["aarch64", "x86_64"]
_MACHINES: dict[str, Machine] = {"amd64": "x86_64", "arm64": "aarch64"}


class PackageSource(Strict):
    """Debian packages of one architecture.

    `install` is taken with all dependencies, `alone` without any; `drop` removes packages
    (shell patterns) that the dependencies bring and the part must not have.
    """

    architecture: Literal["amd64", "arm64"]
    install: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class DebianSource(PackageSource):
    """Packages of one suite of Debian's own archive."""

    suite: Suite
    components: tuple[Component, ...] = ("main",)

    @property
    def repositories(self) -> tuple[Repository, ...]:
        """The one repository that it takes packages from."""
        return (Repository(suites=(self.suite,), components=self.components),)

    @property
    def lock_name(self) -> str:
        """Its name in the lock file."""
        return f"debian/{self.suite}/{self.architecture}"


class AptSource(PackageSource):
    """Packages of any apt repositories, whose dependencies are resolved over all of them."""

    repositories: tuple[Repository, ...]

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.repositories:
            raise ValueError("no repository is named: list some under `repositories`")
        labels = [label for one in self.repositories for label in one.labels]
        twice = next((label for label in labels if labels.count(label) > 1), None)
        if twice:
            raise ValueError(f"two repositories are called {twice}: give each a name of its own")
        if not self.install and not self.alone:
            raise ValueError("no package is named: list some under `install` or `alone`")
        return self

    @property
    def lock_name(self) -> str:
        """Its name in the lock file: every repository, and not where it is."""
        labels = "+".join(label for one in self.repositories for label in one.labels)
        return f"apt/{labels}/{self.architecture}"


class WheelSource(Strict):
    """Wheels of one machine and Python, each named with its version: "torch==2.7.1"."""

    machine: Machine
    python: str = "3.11"
    abi: str = "cp311"
    requirements: tuple[str, ...]

    @property
    def lock_name(self) -> str:
        """Its name in the lock file."""
        return f"wheels/{self.machine}/{self.abi}"


class Part(Strict):
    """One part. `gcc` is for compilers, `version` and `archs` are for CUDA toolkits.

    `machine` is the one that a compiler or toolkit makes code for, `glibc` the one of a sysroot.

    The headers of CUDA's math libraries (cuda_math) are large downloads, so they are only fetched
    for projects that include one: `version` is the toolkit's that they go with, `headers` are
    patterns of their names, and `libraries` the sonames that a project may link against.
    """

    kind: Kind
    title: str
    debian: tuple[DebianSource, ...] = ()
    apt: tuple[AptSource, ...] = ()
    wheels: tuple[WheelSource, ...] = ()
    gcc: int | None = None
    version: str = ""
    archs: tuple[ArchText, ...] = ()
    machine: Machine | None = None
    glibc: str = ""
    newest_gcc: int | None = None
    headers: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    build_constraints: tuple[str, ...] = ()
    """Versions of setuptools and the like that this torch's cpp_extension works with."""
    build_requirements: tuple[str, ...] = ()
    """What this torch's cpp_extension imports, beside setuptools."""

    @model_validator(mode="after")
    def _sources_differ(self) -> Self:
        names = [source.lock_name for source in self.sources]
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice:
            raise ValueError(f"two sources are both {twice} in the lock file: make one of them")
        return self

    @property
    def sources(self) -> tuple[DebianSource | AptSource | WheelSource, ...]:
        """All that it is made of."""
        return (*self.debian, *self.apt, *self.wheels)

    @property
    def made_for(self) -> Machine | None:
        """The machine that it is for, or None where its description does not say so."""
        if self.machine or self.kind not in ("sysroot", "torch", "base", "emulated"):
            return self.machine
        named = {_MACHINES[one.architecture] for one in (*self.debian, *self.apt)}
        named |= {one.machine for one in self.wheels}
        return named.pop() if len(named) == 1 else None

    def makes(self, archs: set[Arch]) -> bool:
        """Return whether this CUDA toolkit compiles for all of these archs."""
        return archs <= {Arch.parse(arch) for arch in self.archs}

    def has_header(self, name: str) -> bool:
        """Return whether this part of CUDA's math libraries has the header."""
        return any(fnmatchcase(name, pattern) for pattern in self.headers)


@dataclass(frozen=True)
class NamedPart:
    """A part under its name, the file that describes it, and the folder that has locks/."""

    name: str
    part: Part
    file: Path
    folder: Path

    @property
    def is_users(self) -> bool:
        """Whether a file of the user's describes it: its locks/ lies beside."""
        return self.file.parent == self.folder

    @property
    def pins_command(self) -> str:
        """The command that writes its lock file."""
        file = f" --targets-file {shlex.quote(str(self.file))}" if self.is_users else ""
        return f"invoke pins --part {self.name}{file}"


@dataclass
class Shelf:
    """The parts that may be named while platforms are read; `damaged` are known, but wrong.

    `file` is the user's file that is read.
    """

    parts: dict[str, NamedPart] = field(default_factory=dict)
    damaged: set[str] = field(default_factory=set)
    file: Path = Path()


def _named(value: object, info: ValidationInfo) -> NamedPart:
    """Return the part that a platform's file names; the key says of which kind it is."""
    if isinstance(value, NamedPart):
        return value
    shelf = info.context if isinstance(info.context, Shelf) else Shelf()
    name = value if isinstance(value, str) else ""
    if name in shelf.damaged:
        raise PydanticCustomError(
            yamlfile.ELSEWHERE, "the description of part '{name}' is wrong", {"name": name}
        )
    found = shelf.parts.get(name)
    if found is None:
        known = [name for name, one in shelf.parts.items() if one.part.kind == info.field_name]
        close = difflib.get_close_matches(str(value), known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(
            f"part {value!r} is not known; {hint}known of kind {info.field_name}: "
            f"{', '.join(known)}"
        )
    if found.part.kind != info.field_name:
        raise ValueError(f"part {name!r} is of kind {found.part.kind}, not {info.field_name}")
    return found


def _name(part: NamedPart) -> str:
    return part.name


PartName = Annotated[NamedPart, PlainValidator(_named), PlainSerializer(_name)]


def read_parts(folder: Path) -> dict[str, NamedPart]:
    """Return every part that `folder`/parts describes, by name.

    Raises:
        ConfigError: a description is wrong.
    """
    return {
        file.stem: NamedPart(file.stem, yamlfile.load(file, Part, Shelf(file=file)), file, folder)
        for file in sorted((folder / "parts").glob("*.yaml"))
    }

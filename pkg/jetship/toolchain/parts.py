"""The parts that toolchains are made of, as toolchains/parts/*.yaml describes them.

A part is one folder of the cache, shared by all platforms that name it. Its file says what
it is made of; versions and digests are in toolchains/locks/ under the same name.
"""

import difflib
from pathlib import Path
from typing import Literal

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets.model import Arch
from jetship.yamlfile import Strict

Kind = Literal["compiler", "sysroot", "cuda", "torch", "base"]


class DebianSource(Strict):
    """Debian packages of one suite and architecture.

    `install` is taken with all dependencies, `alone` without any; `drop` removes packages
    (shell patterns) that the dependencies bring and the part must not have.
    """

    suite: str
    components: tuple[str, ...] = ("main",)
    architecture: Literal["amd64", "arm64"]
    install: tuple[str, ...] = ()
    alone: tuple[str, ...] = ()
    drop: tuple[str, ...] = ()


class WheelSource(Strict):
    """Wheels of one machine and Python, each named with its version: "torch==2.7.1"."""

    machine: Literal["aarch64", "x86_64"]
    python: str = "3.11"
    abi: str = "cp311"
    requirements: tuple[str, ...]


class Part(Strict):
    """One part. `gcc` is for compilers, `version` and `archs` are for CUDA toolkits."""

    kind: Kind
    title: str
    debian: tuple[DebianSource, ...] = ()
    wheels: tuple[WheelSource, ...] = ()
    gcc: int | None = None
    version: str = ""
    archs: tuple[str, ...] = ()
    newest_gcc: int | None = None
    build_constraints: tuple[str, ...] = ()
    """Versions of setuptools and the like that this torch's cpp_extension works with."""
    build_requirements: tuple[str, ...] = ()
    """What this torch's cpp_extension imports, beside setuptools."""

    def makes(self, archs: set[Arch]) -> bool:
        """Return whether this CUDA toolkit compiles for all of these archs."""
        return archs <= {Arch.parse(arch) for arch in self.archs}


def read_part(name: str, folder: Path | None = None) -> Part:
    """Read the description of a part.

    Raises:
        ConfigError: there is none of that name, or it is wrong.
    """
    parts = (folder or data_dir("toolchains")) / "parts"
    path = parts / f"{name}.yaml"
    if not path.is_file():
        known = sorted(one.stem for one in parts.glob("*.yaml"))
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"toolchain part {name!r} is not known", fix=f"{hint}known parts: {', '.join(known)}"
        )
    return yamlfile.load(path, Part)


def all_parts(folder: Path | None = None) -> dict[str, Part]:
    """Return every part by name.

    Raises:
        ConfigError: a description is wrong.
    """
    parts = (folder or data_dir("toolchains")) / "parts"
    return {path.stem: yamlfile.load(path, Part) for path in sorted(parts.glob("*.yaml"))}

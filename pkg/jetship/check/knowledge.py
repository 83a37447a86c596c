"""What the rules know about other people's wheels, read from the files beside this one."""

import functools
from pathlib import Path
from typing import Literal

from pydantic import Field

from jetship import yamlfile
from jetship.yamlfile import Strict

_HERE = Path(__file__).parent


class Vendored(Strict):
    """Libraries that belong to somebody else; see vendored.yaml."""

    what: str
    names: tuple[str, ...]
    prefixes: tuple[str, ...] = ()
    owner: str = ""
    weight: Literal["fault", "board", "noted"] = Field(alias="is")
    why: str
    fix: str
    source: str

    def has(self, name: str) -> bool:
        """Return whether a library's plain name (libcudart) is among these."""
        return name in self.names or name.startswith(self.prefixes)


class Requirements(Strict):
    """What no installer can satisfy; see requirements.yaml."""

    cuda_wheels: str
    numpy_for_python: dict[str, str]
    numpy_source: str
    numpy_2_since_torch: str
    torch_source: str


class _Vendored(Strict):
    vendored: tuple[Vendored, ...]


@functools.cache
def vendored_kinds() -> tuple[Vendored, ...]:
    """Return the kinds of libraries that a wheel had better not bring along."""
    return yamlfile.load(_HERE / "vendored.yaml", _Vendored).vendored


@functools.cache
def requirements() -> Requirements:
    """Return what is known of requirements."""
    return yamlfile.load(_HERE / "requirements.yaml", Requirements)

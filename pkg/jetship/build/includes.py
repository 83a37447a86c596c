"""Which headers a project includes that are not at hand: a walk along its #include lines.

Conditions around the lines are not looked at, so the answer may name a header too many; it
misses one only where a macro says what is included.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from jetship.build.project import Project
from jetship.targets.parts import NamedPart
from jetship.toolchain.model import Toolchain

COMPILED = (".c", ".cc", ".cpp", ".cxx", ".cu")
_INCLUDE = re.compile(
    rb'^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(["<])([^">\n]+)[">]', re.MULTILINE
)


@dataclass(frozen=True)
class Missing:
    """A header that is nowhere, and the way to it: a file of the project, and what it includes."""

    header: str
    way: tuple[str, ...]

    def __str__(self) -> str:
        source, *through = self.way
        return f"{source} includes {self.header}" + (f" through {through[0]}" if through else "")


@dataclass(frozen=True)
class _File:
    """A file that is reached, under the name by which `parent` includes it."""

    path: Path
    name: str
    parent: "_File | None" = None
    own: bool = False

    @property
    def way(self) -> tuple[str, ...]:
        """The last file of the project, and what lies between it and this one."""
        before = () if self.own or self.parent is None else self.parent.way
        return (*before, self.name)


@dataclass(frozen=True)
class IncludeWalk:
    """The files of a project below `root`, and the folders where a compiler looks for headers."""

    files: Sequence[Path]
    root: Path
    folders: Sequence[Path]

    def missing(self) -> Iterator[Missing]:
        """Yield each header once that is in none of the folders, by the shortest way to it."""
        sources = [path for path in self.files if path.suffix.lower() in COMPILED]
        waiting = [self._own(path) for path in sources]
        seen = set(sources)
        nowhere: set[str] = set()
        for file in waiting:  # grows while it is walked: breadth first
            for quoted, name in _included(file.path):
                reached = (self._beside(file, name) if quoted else []) or self._found(file, name)
                if not reached and name not in nowhere:
                    nowhere.add(name)
                    yield Missing(name, file.way)
                waiting += [one for one in reached if one.path not in seen]
                seen.update(one.path for one in reached)

    def _own(self, path: Path, parent: _File | None = None) -> _File:
        return _File(path, str(path.relative_to(self.root)), parent, own=True)

    def _beside(self, file: _File, name: str) -> list[_File]:
        path = Path(os.path.normpath(file.path.parent / name))
        if not path.is_file():
            return []
        own = file.own and path.is_relative_to(self.root)
        return [self._own(path, file) if own else _File(path, name, file)]

    def _found(self, file: _File, name: str) -> list[_File]:
        """Return the header out of the folders, or those of the project that may be meant.

        Which folders of its own a project adds is in its setup.py, so any of its headers whose
        path ends in that name may be meant.
        """
        if name not in self._in_folders:
            paths = (folder / name for folder in self.folders)
            self._in_folders[name] = next((path for path in paths if path.is_file()), None)
        path = self._in_folders[name]
        if path is not None:
            return [_File(path, name, file)]
        own = self._own_by_name.get(name.rpartition("/")[2], ())
        return [self._own(one, file) for one in own if str(one).endswith(f"/{name}")]

    @cached_property
    def _in_folders(self) -> dict[str, Path | None]:
        return {}

    @cached_property
    def _own_by_name(self) -> Mapping[str, list[Path]]:
        found: dict[str, list[Path]] = {}
        for path in self.files:
            found.setdefault(path.name, []).append(path)
        return found


def _included(path: Path) -> list[tuple[bool, str]]:
    return [
        (sign == b'"', name.strip().decode("utf-8", "replace"))
        for sign, name in _INCLUDE.findall(path.read_bytes())
    ]


def needed_math(
    project: Project, toolchain: Toolchain, offered: Sequence[NamedPart]
) -> dict[NamedPart, Missing]:
    """Return which of the parts with CUDA's math libraries a project needs, and why.

    Args:
        project: the project.
        toolchain: a toolchain without the parts.
        offered: the parts that there are.
    """
    torch, cuda = toolchain.torch / "include", toolchain.cuda_home / "include"
    folders = (torch, torch / "torch/csrc/api/include", cuda, cuda / "cccl")
    root = project.folder.resolve()
    files = [root / path.relative_to(project.folder) for path in project.files() if path.is_file()]
    needed: dict[NamedPart, Missing] = {}
    for missing in IncludeWalk(files, root, folders).missing():
        for part in offered:
            if part.part.has_header(missing.header):
                needed.setdefault(part, missing)
    return needed

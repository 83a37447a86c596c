"""The known boards, platforms and device nodes, read from toolchains/*.yaml."""

import difflib
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets.model import Arch, Board, Platform
from jetship.yamlfile import Strict


class DeviceLine(Strict):
    """How a container reaches the GPU on one L4T release line."""

    l4t: str
    runtime: str
    groups: tuple[str, ...]
    nodes: tuple[str, ...]


class _Boards(Strict):
    boards: tuple[Board, ...]


class _DeviceLines(Strict):
    lines: tuple[DeviceLine, ...]


@dataclass(frozen=True)
class Catalog:
    """All that jetship knows about hardware and what is installed on it."""

    boards: tuple[Board, ...]
    platforms: tuple[Platform, ...]
    device_lines: tuple[DeviceLine, ...]

    @classmethod
    def load(cls, folder: Path | None = None) -> Self:
        """Read the catalog from `folder` (default: the one that ships with jetship).

        Raises:
            ConfigError: a file is missing or wrong; says where.
        """
        folder = folder or data_dir("toolchains")
        files = sorted((folder / "platforms").glob("*.yaml"))
        return cls(
            boards=yamlfile.load(folder / "boards.yaml", _Boards).boards,
            platforms=tuple(yamlfile.load(file, Platform) for file in files),
            device_lines=yamlfile.load(folder / "devices.yaml", _DeviceLines).lines,
        )

    def platform(self, name: str) -> Platform:
        """Return a platform by name.

        Raises:
            ConfigError: no such platform; names the nearest and all known ones.
        """
        for platform in self.platforms:
            if platform.name == name:
                return platform
        known = [platform.name for platform in self.platforms]
        close = difflib.get_close_matches(name, known, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        raise ConfigError(
            f"platform {name!r} is not known", fix=f"{hint}known platforms: {', '.join(known)}"
        )

    def boards_of(self, arch: Arch) -> tuple[Board, ...]:
        """Return the boards that carry this arch."""
        return tuple(board for board in self.boards if board.arch == str(arch))

    def devices_for(self, board: Board) -> DeviceLine | None:
        """Return how a container reaches this board's GPU, or None where it is not recorded."""
        return next((line for line in self.device_lines if line.l4t == board.l4t), None)

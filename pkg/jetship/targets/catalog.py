"""The known boards, platforms, parts and device nodes: toolchains/*.yaml and the user's file."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from packaging.version import InvalidVersion, Version

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets import usersfile
from jetship.targets.arch import Arch
from jetship.targets.model import Board, Platform
from jetship.targets.parts import NamedPart, Shelf, read_parts
from jetship.targets.usersfile import Fitting, UsersFile
from jetship.yamlfile import Strict

NamedT = TypeVar("NamedT", Board, Platform)


# L4T counts from 28 on, JetPack has not got beyond 7.
FIRST_L4T = 20


class DeviceLine(Strict):
    """How a container reaches the GPU on one L4T release line."""

    l4t: str
    runtime: str
    groups: tuple[str, ...]
    nodes: tuple[str, ...]


class ArchFacts(Strict):
    """What is known of a compute capability apart from its boards."""

    arch: str
    family: str
    source: str
    last_cuda: str = ""
    note: str = ""


class _Archs(Strict):
    archs: tuple[ArchFacts, ...]


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
    archs: tuple[ArchFacts, ...]
    parts: Mapping[str, NamedPart]
    replaced: tuple[str, ...] = ()
    """What of the shipped data the user's file replaces: "platform jetpack-5.1"."""

    @classmethod
    def load(cls, folder: Path | None = None, *, extra: Path | None = None) -> Self:
        """Read the catalog.

        Args:
            folder: of the data (default: the one that ships with jetship).
            extra: a file of the user's with `boards`, `platforms` and `parts`; one of a name
                that is there already takes its place.

        Raises:
            ConfigError: a file is missing or wrong, or names what is not there; says where.
        """
        folder = folder or data_dir("toolchains")
        shipped = read_parts(folder)
        shelf = Shelf(dict(shipped))
        users = usersfile.read(extra, shelf) if extra else UsersFile()
        files = sorted((folder / "platforms").glob("*.yaml"))
        platforms = _by_name(yamlfile.load(file, Platform, shelf) for file in files)
        shipped_boards = yamlfile.load(folder / "boards.yaml", _Boards).boards
        boards = _by_name(shipped_boards)
        replaced = [
            *(f"part {name}" for name in users.parts if name in shipped),
            *(f"platform {one.name}" for one in users.platforms if one.name in platforms),
            *(f"board {one.name}" for one in users.boards if one.name in boards),
        ]
        platforms |= _by_name(users.platforms)
        boards |= _by_name(users.boards)
        Fitting(platforms, users, extra, shipped_boards, folder / "boards.yaml").require()
        return cls(
            boards=tuple(boards.values()),
            platforms=tuple(platforms.values()),
            device_lines=yamlfile.load(folder / "devices.yaml", _DeviceLines).lines,
            archs=yamlfile.load(folder / "archs.yaml", _Archs).archs,
            parts=shelf.parts,
            replaced=tuple(replaced),
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

    def part(self, name: str) -> NamedPart:
        """Return a toolchain part by name.

        Raises:
            ConfigError: no such part; names the nearest and all known ones.
        """
        if name not in self.parts:
            close = difflib.get_close_matches(name, self.parts, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            raise ConfigError(
                f"toolchain part {name!r} is not known",
                fix=f"{hint}known parts: {', '.join(self.parts)}",
            )
        return self.parts[name]

    def boards_of(self, arch: Arch) -> tuple[Board, ...]:
        """Return the boards that carry this arch."""
        return tuple(board for board in self.boards if board.arch == str(arch))

    def arch_facts(self, arch: Arch) -> ArchFacts | None:
        """Return what is known of an arch, or None."""
        return next((row for row in self.archs if row.arch == str(arch)), None)

    def board(self, name: str) -> Board:
        """Return a board by name or alias.

        Raises:
            ConfigError: no such board; names the nearest and all known ones.
        """
        # "Jetson Orin Nano", jetson-orin-nano and orin-nano are one board to everybody.
        plain = re.sub(r"[\s_]+", "-", name.strip().lower())
        wanted = {name, plain, plain.removeprefix("jetson-")}
        for board in self.boards:
            if wanted & {board.name, *board.aliases}:
                return board
        names = [one for board in self.boards for one in (board.name, *board.aliases)]
        self._refuse_several(name, names)
        close = difflib.get_close_matches(plain.removeprefix("jetson-"), names, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        known = ", ".join(
            board.name + (f" ({', '.join(board.aliases)})" if board.aliases else "")
            for board in self.boards
        )
        raise ConfigError(f"board {name!r} is not known", fix=f"{hint}known boards: {known}")

    def _refuse_several(self, text: str, names: Sequence[str]) -> None:
        """Refuse a list of boards: each has platforms of its own, and so targets of its own.

        Raises:
            ConfigError: `text` names more than one.
        """
        parts = [part for part in re.split(r"[\s,;]+", text.strip().lower()) if part]
        if len(parts) < 2 or not {part.removeprefix("jetson-") for part in parts} <= {*names}:
            return
        boards = [self.board(part) for part in parts]
        shared = [
            name for name in boards[0].platforms if all(name in board.platforms for board in boards)
        ]
        archs = ",".join(dict.fromkeys(board.arch for board in boards))
        together = f", or say --arch {archs} --platform {shared[-1]}" if shared else ""
        raise ConfigError(
            f"--board takes one board, and {text!r} names {len(parts)}",
            fix=f"run the task once for each{together}",
        )

    def platform_of_jetpack(self, version: str) -> Platform:
        """Return the platform that a JetPack or L4T release belongs to: 5.1.2, r35.4.1, r32.2.

        A board says its L4T (/etc/nv_tegra_release), people say its JetPack. A line of L4T
        releases, such as r32.2, will do where all of them belong to one platform.

        Raises:
            ConfigError: no such release is known, or it is a line of several platforms.
        """
        plain = re.sub(r"^(jetpack|l4t)[\s-]*", "", version.strip().lower())
        l4t = f"r{plain.removeprefix('r')}"
        for platform in reversed(self.platforms):  # the user's are the last
            if plain in platform.jetpack or l4t in platform.l4t:
                return platform
        of_line = [one.name for one in self.platforms if _any_below(l4t, one.l4t)]
        if len(of_line) == 1:
            return self.platform(of_line[0])
        if of_line:
            raise ConfigError(
                f"L4T {l4t} is of several platforms: {', '.join(of_line)}",
                fix="name the whole release, such as r36.4.3, or the platform",
            )
        if plain.startswith("r") or _major(plain) >= FIRST_L4T:
            releases = [release for platform in self.platforms for release in platform.l4t]
            raise ConfigError(
                f"L4T {l4t} is not known", fix=f"known L4T releases: {', '.join(releases)}"
            )
        known = [release for platform in self.platforms for release in platform.jetpack]
        nearest = _nearest_release(version, known)
        hint = f"the nearest known one is {nearest}; " if nearest else ""
        raise ConfigError(
            f"JetPack {version!r} is not known", fix=f"{hint}known releases: {', '.join(known)}"
        )

    def newest_of(self, board: Board) -> str:
        """Return the title of the newest platform that runs on the board."""
        return self.platform(board.platforms[-1]).title

    def devices_on(self, platform: Platform) -> DeviceLine | None:
        """Return how a container reaches the GPU on a platform, or None where not recorded."""
        if not platform.l4t:
            return None
        newest = platform.l4t[-1]
        return next((line for line in self.device_lines if newest.startswith(line.l4t)), None)


def _nearest_release(version: str, known: Iterable[str]) -> str | None:
    """Return the newest release that is not newer than `version`, or the oldest of all."""
    try:
        wanted = Version(version)
    except InvalidVersion:
        return None
    ordered = sorted(known, key=Version)
    older = [release for release in ordered if Version(release) <= wanted]
    return next(reversed(older), next(iter(ordered), None))


def _any_below(line: str, releases: Iterable[str]) -> bool:
    return any(release.startswith(f"{line}.") for release in releases)


def _by_name(rows: Iterable[NamedT]) -> dict[str, NamedT]:
    return {row.name: row for row in rows}


def _major(version: str) -> int:
    digits = version.partition(".")[0]
    return int(digits) if digits.isdecimal() else 0

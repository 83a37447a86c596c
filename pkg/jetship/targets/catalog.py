"""The known boards, platforms, parts and device nodes: toolchains/*.yaml and the user's file."""

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self, TypeVar

from packaging.version import Version

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets import releases, usersfile
from jetship.targets.arch import Arch
from jetship.targets.model import Board, Platform
from jetship.targets.parts import NamedPart, Shelf, read_parts
from jetship.targets.usersfile import Fitting, UsersFile
from jetship.yamlfile import Strict

NamedT = TypeVar("NamedT", Board, Platform)


def runs_on(platform: Platform, board: Board) -> bool:
    """Return whether a board takes a platform; under emulation it is any that has its arch."""
    if platform.kind == "emulation":
        return Arch.parse(board.arch) in platform.cuda.drives
    return platform.name in board.platforms


class DeviceLine(Strict):
    """How a container reaches the GPU on one L4T release line.

    `nodes` are passed by name, below /dev; `listed` are those that NVIDIA's runtime adds by itself
    where the board has them. `cdi` is the device by the Container Device Interface, where the
    release's tools can describe it.
    """

    l4t: str
    runtime: str
    groups: tuple[str, ...]
    nodes: tuple[str, ...]
    listed: tuple[str, ...]
    cdi: str = ""


class ArchFacts(Strict):
    """What is known of a compute capability apart from its boards."""

    arch: str
    family: str
    source: str
    tegra: bool = False
    """Whether it is the GPU of Jetsons, which runs machine code made for itself alone."""
    last_cuda: str = ""
    note: str = ""


class Archs(Strict):
    """The file toolchains/archs.yaml."""

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
        files = sorted((folder / "platforms").glob("*.yaml"))
        users = usersfile.read(extra, shelf, files) if extra else UsersFile()
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
            archs=yamlfile.load(folder / "archs.yaml", Archs).archs,
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

    def toolkits_of(self, arch: Arch) -> tuple[str, ...]:
        """Return the versions of the CUDA toolkits that make code for this arch, oldest first."""
        made = {
            one.part.version
            for one in self.parts.values()
            if one.part.kind == "cuda" and one.part.makes({arch})
        }
        return tuple(sorted(made, key=Version))

    def board(self, name: str, *, on: Platform | None = None) -> Board:
        """Return a board by name or alias.

        Args:
            name: as people write it.
            on: the platform that was asked for with it, for what is proposed instead.

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
        self._refuse_several(name, names, on)
        close = difflib.get_close_matches(plain.removeprefix("jetson-"), names, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        known = ", ".join(
            board.name + (f" ({', '.join(board.aliases)})" if board.aliases else "")
            for board in self.boards
        )
        raise ConfigError(f"board {name!r} is not known", fix=f"{hint}known boards: {known}")

    def _refuse_several(self, text: str, names: Sequence[str], on: Platform | None) -> None:
        """Refuse a list of boards: each has platforms of its own, and so targets of its own.

        Raises:
            ConfigError: `text` names more than one.
        """
        parts = [part for part in re.split(r"[\s,;]+", text.strip().lower()) if part]
        if len(parts) < 2 or not {part.removeprefix("jetson-") for part in parts} <= {*names}:
            return
        boards = [self.board(part) for part in parts]
        shared = [
            one.name
            for one in ([on] if on else self.platforms)
            if all(runs_on(one, board) for board in boards) and (on or one.kind != "emulation")
        ]
        archs = ",".join(dict.fromkeys(board.arch for board in boards))
        together = f", or say --arch {archs} --platform {shared[-1]}" if shared else ""
        raise ConfigError(
            f"--board takes one board, and {text!r} names {len(parts)}",
            fix=f"run the task once for each{together}",
        )

    def platform_of_jetpack(self, version: str) -> Platform:
        """Return the platform that a JetPack or L4T release belongs to: 5.1.2, r35.4.1, r32.2.

        A board says its L4T (/etc/nv_tegra_release), people say its JetPack. A line of
        releases, such as r32.2 or JetPack 5, will do where all of them belong to one platform.

        Raises:
            ConfigError: no such release is known, or it is a line of several platforms.
        """
        release = releases.normal(version)
        for platform in reversed(self.platforms):  # the user's are the last
            if release in (*platform.jetpack, *platform.l4t):
                return platform
        if releases.is_line(release):
            rows = [one for one in self.platforms if releases.of_line(release, _releases(one))]
            if len(rows) == 1:
                return rows[0]
            if rows:
                example = releases.of_line(release, _releases(rows[-1]))[-1]
                raise ConfigError(
                    f"{_said(release)} is of several platforms: "
                    + ", ".join(one.name for one in rows),
                    fix=f"name the whole release, such as {example}, or the platform",
                )
        raise self._unknown_release(release, version)

    def _unknown_release(self, release: str, version: str) -> ConfigError:
        l4t = release.startswith("r")
        rows = {
            one: platform.name
            for platform in self.platforms
            for one in (platform.l4t if l4t else platform.jetpack)
        }
        near = releases.nearest(release, rows)
        if not near:
            return ConfigError(
                f"JetPack {release!r} is not known", fix=f"known releases: {', '.join(rows)}"
            )
        line = near.partition(".")[0]
        said = f"{_said(release)} is not known"
        if release == f"r{version.strip()}":  # a number alone, and too large for a JetPack
            said = f"JetPack {version.strip()} is not known, and no L4T {release} either"
        return ConfigError(
            said,
            fix=f"the nearest known one is {near} ({rows[near]}); known of {_said(line)}: "
            + ", ".join(releases.of_line(line, rows)),
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


def _releases(platform: Platform) -> tuple[str, ...]:
    return (*platform.jetpack, *platform.l4t)


def _said(release: str) -> str:
    return f"L4T {release}" if release.startswith("r") else f"JetPack {release}"


def _by_name(rows: Iterable[NamedT]) -> dict[str, NamedT]:
    return {row.name: row for row in rows}

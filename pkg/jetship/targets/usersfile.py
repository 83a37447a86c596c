"""The user's own file of boards, platforms and parts, and whether all of them fit together."""

import difflib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import (
    Field,
    StringConstraints,
    ValidationError,
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    field_validator,
)

from jetship import yamlfile
from jetship.errors import ConfigError
from jetship.targets.arch import Arch
from jetship.targets.contradictions import contradictions
from jetship.targets.model import Board, Platform
from jetship.targets.parts import NamedPart, Part, Shelf
from jetship.yamlfile import FileError, Strict

Location = tuple[int | str, ...]
# It names a lock file and a folder of the cache.
_Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]


class UsersFile(Strict):
    """A whole file. `parts` come first, so that the file's platforms can name them."""

    parts: dict[_Name, Part] = Field(default_factory=dict)
    platforms: tuple[Platform, ...] = ()
    boards: tuple[Board, ...] = ()

    @field_validator("parts", mode="wrap")
    @classmethod
    def _put_on_shelf(
        cls, raw: object, validate: ValidatorFunctionWrapHandler, info: ValidationInfo
    ) -> dict[str, Part]:
        shelf = info.context if isinstance(info.context, Shelf) else Shelf()
        try:
            parts: dict[str, Part] = validate(raw)
        except ValidationError:
            shelf.damaged |= set(raw) if isinstance(raw, dict) else set()
            raise
        for name, part in parts.items():
            shelf.parts[name] = NamedPart(name, part, shelf.file, shelf.file.parent)
        return parts


def read(path: Path, shelf: Shelf, shipped: Iterable[Path]) -> UsersFile:
    """Read the user's file, and put its parts on the shelf.

    Args:
        path: the file.
        shelf: the shipped parts, which its platforms may name.
        shipped: the files of the shipped platforms, which its boards may name.

    Raises:
        ConfigError: it is missing or wrong; every problem is listed with its place.
    """
    shelf.file = path
    try:
        return yamlfile.load(path, UsersFile, shelf)
    except FileError as error:
        # `Fitting` never sees a file that is wrong in itself.
        raise FileError(path, [*error.problems, *_unknown_platforms(path, shipped)]) from error


def _unknown_platforms(path: Path, shipped: Iterable[Path]) -> Iterator[str]:
    """Say which platforms of its boards a file that is wrong in other ways names for nothing."""
    names = [str(yamlfile.top_level(file, "name")) for file in shipped]
    own = _rows(yamlfile.top_level(path, "platforms"))
    known = dict.fromkeys([*names, *(str(row.get("name")) for _, row in own)])
    for number, board in _rows(yamlfile.top_level(path, "boards")):
        listed = board.get("platforms")
        for at, name in enumerate(listed if isinstance(listed, list) else ()):
            if isinstance(name, str) and name not in known:
                place = yamlfile.place(path, ("boards", number, "platforms", at))
                yield f"{place}: {_not_known(name, known)}"


def _rows(value: object) -> list[tuple[int, dict[str, object]]]:
    """Return the entries of a list that are mappings, each with its number."""
    rows = value if isinstance(value, list) else []
    return [(number, row) for number, row in enumerate(rows) if isinstance(row, dict)]


def _not_known(name: str, known: Collection[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"platform {name!r} is not known; {hint}known: {', '.join(known)}"


@dataclass(frozen=True)
class Fitting:
    """Everything that is known, with the files that say so.

    Where a shipped board does not fit a platform of the user's, it is the user's that is wrong.
    """

    platforms: Mapping[str, Platform]
    users: UsersFile
    users_file: Path | None
    shipped: Sequence[Board]
    shipped_file: Path

    def require(self) -> None:
        """Refuse data that does not fit together.

        Raises:
            ConfigError: every problem, each with file, line and column.
        """
        found = [
            f"{yamlfile.place(file, location)}: {message}"
            for file, location, message in self._problems()
        ]
        if found:
            raise ConfigError(yamlfile.summary(self.users_file or self.shipped_file, found))

    def _problems(self) -> Iterator[tuple[Path, Location, str]]:
        rows = [(self.shipped_file, self.shipped)]
        if self.users_file is not None:
            rows.append((self.users_file, self.users.boards))
            for key in ("platforms", "boards"):
                for location, message in _repeated(key, getattr(self.users, key)):
                    yield self.users_file, location, message
            for number, platform in enumerate(self.users.platforms):
                for message in _unmade(platform):
                    yield self.users_file, ("platforms", number, "cuda", "archs"), message
            yield from self._contradictions(self.users_file)
        for file, boards in rows:
            replaced = {one.name for one in self.users.boards} if file == self.shipped_file else ()
            for number, board in enumerate(boards):
                if board.name not in replaced:
                    yield from self._board_problems(file, number, board)

    def _contradictions(self, file: Path) -> Iterator[tuple[Path, Location, str]]:
        """Say where the user's platforms and parts contradict each other, or shipped ones."""
        users = [one.name for one in self.users.platforms]
        for platform in self.platforms.values():
            for key, part, message in contradictions(platform):
                if platform.name in users:
                    yield file, ("platforms", users.index(platform.name), *key), message
                elif part.is_users:
                    yield file, ("parts", part.name), f"{message} ({platform.name})"

    def _board_problems(
        self, file: Path, number: int, board: Board
    ) -> Iterator[tuple[Path, Location, str]]:
        users = [one.name for one in self.users.platforms]
        for at, name in enumerate(board.platforms):
            platform = self.platforms.get(name)
            location: Location = ("boards", number, "platforms", at)
            if platform is None:
                yield file, location, _not_known(name, self.platforms)
            elif board.cpu not in (None, platform.machine):
                message = f"{name} is for {platform.machine}, and {board.title} is {board.cpu}"
                yield file, location, message
            elif Arch.parse(board.arch) not in platform.cuda.drives:
                message = (
                    f"{name} does not drive {board.arch}, the arch of the board {board.name!r}: "
                    f"its cuda.archs are {', '.join(platform.cuda.archs)}"
                )
                if file == self.shipped_file and self.users_file and name in users:
                    place = ("platforms", users.index(name), "cuda", "archs")
                    yield self.users_file, place, f"{message}; describe that board as well"
                else:
                    yield file, location, message


def _repeated(key: str, rows: Iterable[Board | Platform]) -> Iterator[tuple[Location, str]]:
    seen: set[str] = set()
    for number, row in enumerate(rows):
        if row.name in seen:
            yield (key, number, "name"), f"{row.name!r} is described twice"
        seen.add(row.name)


def _unmade(platform: Platform) -> Iterator[str]:
    """Say which archs of a platform none of its CUDA toolkits compiles for."""
    toolkits = platform.toolchain.cuda
    for arch in platform.cuda.drives:
        if toolkits and not any(toolkit.part.makes({arch}) for toolkit in toolkits):
            names = ", ".join(toolkit.name for toolkit in toolkits)
            yield f"none of its CUDA toolkits compiles for {arch}: {names}"

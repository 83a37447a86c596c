"""The `fleet:` of a deploy.yaml, and the devices that come of it."""

import difflib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

from pydantic import Field

from jetship.errors import ConfigError, NothingSelectedError
from jetship.targets.catalog import Catalog
from jetship.targets.device import (
    DEFAULT_PYTHON,
    DEFAULT_SSH_PORT,
    NAME,
    Address,
    Device,
    DeviceRow,
    Reached,
    refuse_unknown_target,
    target_for,
)
from jetship.targets.inventory import Placed
from jetship.targets.model import Board, Target
from jetship.targets.words import Word
from jetship.yamlfile import Document, Strict

GroupName = Annotated[str, Field(pattern=NAME)]


class FleetPlan(Strict):
    """The devices that `deploy` rolls out to: those that are listed here and in an inventory."""

    defaults: Reached = Reached()
    """What holds for each device that does not say otherwise."""
    devices: tuple[DeviceRow, ...] = ()
    """The devices, in the order in which a rollout takes them."""
    inventory: Word | None = None
    """A file with more devices, relative to deploy.yaml: a YAML list of the same form, a YAML
    inventory of Ansible's, or what `ansible-inventory --list` prints."""
    groups: dict[GroupName, tuple[Word, ...]] = Field(default_factory=dict)
    """By group: names of devices in it, beside those that name it themselves."""


@dataclass(frozen=True)
class Fleet:
    """All devices of a deploy.yaml and its inventory, in their order, and the targets for them."""

    devices: tuple[Device, ...]
    targets: tuple[Target, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """The names of all groups, each once."""
        return tuple(dict.fromkeys(name for device in self.devices for name in device.groups))

    def select(
        self, *, groups: Iterable[str] = (), devices: Iterable[str] = ()
    ) -> tuple[Device, ...]:
        """Return the devices that are in one of `groups` or named by `devices`; all without both.

        Raises:
            NothingSelectedError: no device has that name, or is in that group.
        """
        wanted_groups, wanted_names = set(groups), set(devices)
        if not wanted_groups and not wanted_names:
            return self.devices
        _require("group", wanted_groups, self.groups)
        _require("device", wanted_names, [device.name for device in self.devices])
        return tuple(
            device
            for device in self.devices
            if device.name in wanted_names or wanted_groups & {*device.groups}
        )


def _require(what: str, wanted: Iterable[str], known: Sequence[str]) -> None:
    unknown = sorted(set(wanted) - set(known))
    if not unknown:
        return
    close = difflib.get_close_matches(unknown[0], known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    shown = ", ".join(known[:20]) + (f" and {len(known) - 20} more" if len(known) > 20 else "")
    raise NothingSelectedError(
        f"the fleet has no {what} {', '.join(map(repr, unknown))}",
        fix=f"{hint}there is {shown}" if known else f"no device is in a {what}",
    )


@dataclass
class Assembly:
    """Makes devices of rows; what is wrong with them is collected, each problem once.

    Args:
        document: deploy.yaml, where `fleet.defaults` and `fleet.groups` stand.
        plan: its `fleet`.
        catalog: the known boards.
        targets: the targets of deploy.yaml; None where not all of them can be read, and then
            whether a device has one is left open.
        unread: the keys of `fleet.defaults` that are there and could not be read.
        whole: whether all rows could be found; else nobody can say what is not among them.
    """

    document: Document
    plan: FleetPlan
    catalog: Catalog
    targets: Sequence[Target] | None
    unread: frozenset[str] = frozenset()
    whole: bool = True
    problems: dict[str, None] = field(default_factory=dict)
    _seen: dict[str, Placed] = field(default_factory=dict)
    _boards: dict[str, "Board | _Misfit"] = field(default_factory=dict)
    _targets: dict[tuple[str | None, str], "Target | _Misfit | None"] = field(default_factory=dict)
    _files: dict[Path, bool] = field(default_factory=dict)

    def devices(self, rows: Iterable[Placed]) -> tuple[Device, ...]:
        """Return the devices of the rows that are right."""
        groups = self._named_groups()
        found = [self._device(one, groups) for one in rows]
        return tuple(device for device in found if device is not None)

    def refuse_unknown_members(self) -> None:
        """Note what `fleet.groups` names and the rows so far do not."""
        if not self.whole:
            return
        for group, names in self.plan.groups.items():
            for number, name in enumerate(names):
                if name not in self._seen:
                    close = difflib.get_close_matches(name, self._seen, n=1)
                    hint = f"; did you mean {close[0]!r}?" if close else ""
                    place = self.document.place(("fleet", "groups", group, number))
                    self._problem(place, f"there is no device {name!r}{hint}")

    def refuse_more_canaries(self, canaries: int, devices: int) -> None:
        """Note that more devices are to be canaries than there are."""
        if self.whole and 0 < devices < canaries:
            place = self.document.place(("strategy", "canary"))
            self._problem(place, f"{canaries} canaries, and the fleet has {devices} devices")

    def _problem(self, place: str, message: str) -> None:
        self.problems[f"{place}: {message}"] = None

    def _named_groups(self) -> Mapping[str, list[str]]:
        groups: dict[str, list[str]] = {}
        for group, names in self.plan.groups.items():
            for name in names:
                groups.setdefault(name, []).append(group)
        return groups

    def _device(self, placed: Placed, groups: Mapping[str, list[str]]) -> Device | None:
        row, defaults = placed.row, self.plan.defaults
        before = len(self.problems)
        named = "name" not in placed.unread
        self.whole = self.whole and named
        first = self._seen.setdefault(row.name, placed) if named else placed
        if first is not placed:
            message = f"a device named {row.name!r} is there already ({first.place('name')})"
            self._problem(placed.place("name"), message)
        board, target = self._board_and_target(placed)
        address = self._address(placed)
        identity = self._file(placed, "identity")
        known_hosts = self._file(placed, "known_hosts")
        if len(self.problems) > before or placed.unread or not (board and target and address):
            return None
        return Device(
            name=row.name,
            address=address,
            board=board,
            target=target,
            labels=row.labels,
            groups=tuple(dict.fromkeys((*row.groups, *groups.get(row.name, ())))),
            identity=identity,
            known_hosts=known_hosts,
            python=row.python or defaults.python or DEFAULT_PYTHON,
            state=row.state or defaults.state or "",
        )

    def _place(self, placed: Placed, key: str) -> str:
        """Return where a value stands that may come from the defaults."""
        if getattr(placed.row, key) is None and getattr(self.plan.defaults, key) is not None:
            return self.document.place(("fleet", "defaults", key))
        return placed.place(key)

    def _is_open(self, placed: Placed, *keys: str) -> bool:
        """Return whether one of these keys is given where it could not be read."""
        return bool({*keys} & (placed.unread | self.unread))

    def _address(self, placed: Placed) -> Address | None:
        row, defaults = placed.row, self.plan.defaults
        if row.address is not None:
            return Address.parse(row.address)
        user = row.user or defaults.user
        if user is None and self._is_open(placed, "user", "address"):
            return None
        if user is None:
            self._problem(
                placed.place("host"),
                f"{row.name} has no user; add `user:` to it or to fleet.defaults",
            )
            return None
        return Address(user, str(row.host), row.port or defaults.port or DEFAULT_SSH_PORT)

    def _board_and_target(self, placed: Placed) -> tuple[Board | None, Target | None]:
        row, defaults = placed.row, self.plan.defaults
        name, target = row.board or defaults.board, row.target or defaults.target
        if name is None:
            if not self._is_open(placed, "board"):
                self._problem(
                    placed.place("name"),
                    f"{row.name} has no board; add `board:` to it or to fleet.defaults",
                )
            return None, None
        board = self._board(name)
        if isinstance(board, _Misfit):
            self._problem(self._place(placed, "board"), board.message)
            return None, None
        if target is None and (self.targets is None or self._is_open(placed, "target")):
            return board, None
        found = self._target(target, board)
        if isinstance(found, _Misfit):
            key = "board" if target is None else "target"
            self._problem(self._place(placed, key), found.message)
            found = None
        return board, found

    # A fleet of thousands has a handful of boards and targets: each is looked up once.

    def _board(self, name: str) -> "Board | _Misfit":
        if name not in self._boards:
            try:
                self._boards[name] = self.catalog.board(name)
            except ConfigError as error:
                self._boards[name] = _Misfit(one_line(error))
        return self._boards[name]

    def _target(self, name: str | None, board: Board) -> "Target | _Misfit | None":
        key = (name, board.name)
        if key not in self._targets:
            try:
                if self.targets is not None:
                    self._targets[key] = target_for(name, board, self.targets)
                else:
                    refuse_unknown_target(str(name), self.catalog)
                    self._targets[key] = None
            except ConfigError as error:
                self._targets[key] = _Misfit(one_line(error))
        return self._targets[key]

    def _file(self, placed: Placed, key: str) -> Path | None:
        """Return a file that a row or the defaults name, relative to what names it."""
        own = getattr(placed.row, key)
        name = own if own is not None else getattr(self.plan.defaults, key)
        if name is None:
            return None
        folder = placed.folder if own is not None else self.document.path.parent
        path = folder / Path(name).expanduser()
        if path not in self._files:
            self._files[path] = path.is_file()
        if not self._files[path]:
            self._problem(self._place(placed, key), f"there is no file {name!r} here")
        return path


@dataclass(frozen=True)
class _Misfit:
    message: str


def one_line(error: ConfigError) -> str:
    """Return an error's sentences as one line of a list."""
    return "; ".join(part for part in (error.what, error.why, error.fix) if part)

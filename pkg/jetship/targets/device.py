"""A device of the fleet: where it is reached, and which target's image it gets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, model_validator

from jetship.errors import ConfigError
from jetship.targets.arch import Arch
from jetship.targets.catalog import Catalog
from jetship.targets.model import Board, Target, parse_target_id
from jetship.targets.words import TextOrNumber, Word
from jetship.yamlfile import Strict

DEFAULT_SSH_PORT = 22
DEFAULT_PYTHON = "python3"
_USER = r"[A-Za-z_][A-Za-z0-9_.-]*"
_HOST = r"[A-Za-z0-9][A-Za-z0-9_.-]*"
_IPV6 = r"[0-9A-Fa-f:.]*:[0-9A-Fa-f:.]*"
_ADDRESS = rf"({_USER})@(?:\[([0-9A-Fa-f:.]+)\]|({_HOST}))(?::([0-9]+))?"
_ADDRESS_FORM = Field(json_schema_extra={"pattern": f"^(?:{_ADDRESS})$"})
NAME = r"^[A-Za-z0-9][A-Za-z0-9_.-]*$"


@dataclass(frozen=True)
class Address:
    """Where SSH finds a device: user@host, user@host:port, user@[IPv6]:port."""

    user: str
    host: str
    port: int = DEFAULT_SSH_PORT

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read an address.

        Raises:
            ValueError: it is of another form, or the port is out of range.
        """
        match = re.fullmatch(_ADDRESS, text)
        if match is None:
            raise ValueError(f"{text!r} is not an address; write it as user@host or user@host:port")
        port = int(match[4]) if match[4] else DEFAULT_SSH_PORT
        if not 0 < port < 65536:
            raise ValueError(f"port {port} of {text!r} is not between 1 and 65535")
        return cls(match[1], match[2] or match[3], port)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        port = "" if self.port == DEFAULT_SSH_PORT else f":{self.port}"
        return f"{self.user}@{host}{port}"


def _parses(text: str) -> str:
    Address.parse(text)
    return text


class Reached(Strict):
    """How devices are reached, and where jetship keeps its state on them."""

    user: Annotated[str, Field(pattern=f"^{_USER}$")] | None = None
    """The user of the SSH login, who may use the device's Docker engine."""
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    """The port of its SSH server (default: 22)."""
    identity: Word | None = None
    """The file of a private key, relative to the file that names it; then no other is tried."""
    known_hosts: Word | None = None
    """A file with the hosts' keys, relative to the file that names it (default: the user's own)."""
    python: Word | None = None
    """The Python 3.6 or newer that runs jetship's part on the device (default: python3)."""
    state: Annotated[str, Field(pattern=r"^(?:/|~/).+")] | None = None
    """The folder on the device for state and journal (default: ~/.local/share/jetship/APP)."""
    board: Word | None = None
    """A board's name; `invoke targets` lists them."""
    target: Word | None = None
    """A target id ("sm62-debian-12") or arch/platform ("6.2/debian-12"); may be left out where
    only one target of deploy.yaml has the board's arch."""


class DeviceRow(Reached):
    """A device as a file describes it; what it leaves out, `fleet.defaults` may say."""

    name: Annotated[str, Field(pattern=NAME)]
    """What the device is called in reports; no two have one name."""
    address: Annotated[str, AfterValidator(_parses), _ADDRESS_FORM] | None = None
    """user@host or user@host:port, in place of host, user and port."""
    host: Annotated[str, Field(pattern=f"^(?:{_HOST}|{_IPV6})$")] | None = None
    """Its address or name, or an alias of ~/.ssh/config."""
    labels: dict[Word, TextOrNumber] = Field(default_factory=dict)
    """Words of your own about the device, such as site: berlin."""
    groups: tuple[Annotated[str, Field(pattern=NAME)], ...] = ()
    """The groups that it is in, for `deploy --group`."""

    @model_validator(mode="after")
    def _has_one_address(self) -> Self:
        if self.address is None:
            if self.host is None:
                raise ValueError("a device has an `address: user@host`, or a `host`")
            return self
        twice = [key for key in ("host", "user", "port") if getattr(self, key) is not None]
        if twice:
            raise ValueError(f"`address` says {' and '.join(twice)} already; leave one of them out")
        return self


@dataclass(frozen=True)
class Device:
    """A device with everything that is known of it before it is asked."""

    name: str
    address: Address
    board: Board
    target: Target
    labels: Mapping[str, str]
    groups: tuple[str, ...]
    identity: Path | None = None
    known_hosts: Path | None = None
    python: str = DEFAULT_PYTHON
    state: str = ""
    """The folder of its state, or "" for the usual one."""


def target_for(name: str | None, board: Board, targets: Sequence[Target]) -> Target:
    """Return the target whose image a board gets.

    Args:
        name: the target that the device names, if it does.
        board: the device's board.
        targets: those of deploy.yaml.

    Raises:
        ConfigError: none of `targets` fits, or several do and the device does not say which.
    """
    arch = Arch.parse(board.arch)
    if name is not None:
        return _named_target(name, board, targets)
    fitting = [target for target in targets if arch in {code.arch for code in target.code}]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        raise ConfigError(
            f"{len(fitting)} targets fit the board {board.name!r}",
            fix=f"add `target:` with one of {', '.join(target.id for target in fitting)}",
        )
    raise ConfigError(
        f"no target has {board.arch}, the arch of the board {board.name!r}",
        fix=f"add `arch: {board.arch}` to targets",
    )


def refuse_unknown_target(name: str, catalog: Catalog) -> None:
    """Refuse a target that no deploy.yaml could have.

    Raises:
        ConfigError: it is no target id, or its platform is not known.
    """
    platform = name.partition("/")[2] if "/" in name else parse_target_id(name)[1]
    catalog.platform(platform)


def _named_target(name: str, board: Board, targets: Sequence[Target]) -> Target:
    wanted = name
    if "/" in name:
        code, platform = name.split("/", 1)
        wanted = next(
            (t.id for t in targets if (t.arch_list, t.platform.name) == (code, platform)), name
        )
    else:
        parse_target_id(name)
    found = next((target for target in targets if target.id == wanted), None)
    if found is None:
        listed = ", ".join(target.id for target in targets)
        raise ConfigError(f"{name!r} is not among the targets", fix=f"targets: {listed}")
    if board.arch not in {str(code.arch) for code in found.code}:
        raise ConfigError(f"{found.id} has no code for {board.arch}, the arch of {board.name!r}")
    return found

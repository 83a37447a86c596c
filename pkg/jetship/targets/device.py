"""A device of the fleet: where it is reached, and which target's image it gets."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from pydantic import Field, field_validator

from jetship.errors import ConfigError
from jetship.targets.arch import Arch
from jetship.targets.model import Board, Target, parse_target_id
from jetship.yamlfile import Strict

DEFAULT_SSH_PORT = 22


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
        match = re.fullmatch(
            r"([a-z_][a-z0-9_.-]*)@(?:\[([0-9A-Fa-f:.]+)\]|([A-Za-z0-9][A-Za-z0-9.-]*))(?::(\d+))?",
            text,
        )
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


class Device(Strict):
    """A device of the fleet."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]*$")
    address: str
    board: str
    target: str | None = None
    """A target id ("sm62-debian-12") or arch/platform ("6.2/debian-12"); may be left out where
    only one target of deploy.yaml has the board's arch."""

    @field_validator("address")
    @classmethod
    def _address_parses(cls, text: str) -> str:
        Address.parse(text)
        return text

    @property
    def ssh(self) -> Address:
        return Address.parse(self.address)


def device_target(device: Device, board: Board, targets: Sequence[Target]) -> Target:
    """Return the target whose image a device gets.

    Raises:
        ConfigError: none of `targets` fits, or several do and the device does not say which.
    """
    arch = Arch.parse(board.arch)
    if device.target is not None:
        return _named_target(device.target, board, targets)
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

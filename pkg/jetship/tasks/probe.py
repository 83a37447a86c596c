"""The task `probe`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from jetship import console
from jetship.errors import ConfigError
from jetship.ssh import Login
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.device import Address
from jetship.targets.model import Platform
from jetship.tasks.command import command
from jetship.tasks.request import JSON_HELP, Known

if TYPE_CHECKING:
    from jetship.probe.record import Record


@command(
    paths="device",
    records={"known": Known},
    help={
        "device": "USER@HOST, or USER@HOST:PORT",
        "port": "of its SSH server (default: 22)",
        "identity": "file of the private key; no other one is tried, and no agent asked",
        "known-hosts": "file with the device's host key (default: your own known_hosts)",
        "python": "the interpreter whose torch is meant (default: python3)",
        "out": "file to write (default: HOST.probe)",
        "time-limit": "seconds that all may take (default: 900)",
        "json": JSON_HELP,
    },
)
def probe(
    _: Context,
    *,
    device: list[str],
    known: Known,
    port: int = 0,
    identity: str = "",
    known_hosts: str = "",
    python: str = "python3",
    out: str = "",
    time_limit: int = 900,
    json: bool = False,
) -> None:
    """Read the names in a real device's libraries over SSH, for checks that are exact.

    The device needs python3 and torch; nothing is written on it. What is read goes into one file,
    which `check` and `build` take in place of the platform's libraries.

        invoke probe jetson@192.168.1.20
        invoke check some.whl --board xavier --jetpack 5.1.2 --libraries 192.168.1.20.probe
    """
    from jetship.probe import api

    if len(device) != 1:
        raise ConfigError("name one device", fix="invoke probe USER@HOST")
    try:
        address = Address.parse(device[0])
        if port:
            address = Address.parse(f"{address.user}@{_bracketed(address.host)}:{port}")
    except ValueError as error:
        raise ConfigError(str(error), fix="invoke probe USER@HOST:PORT") from error
    catalog = known.catalog()
    login = Login(
        address,
        Path(identity).expanduser() if identity else None,
        Path(known_hosts).expanduser().resolve() if known_hosts else None,
        python,
    )
    console.step(f"reading the libraries of {address}")
    file = Path(out or f"{address.host}.probe")
    record = api.probe(login, file, Store(default_root()), seconds=time_limit)
    fitting = [one.name for one in catalog.platforms if _fits(record, one)]
    if json:
        console.emit_json(_row(record, fitting))
        return
    console.note(_told(record, catalog, fitting))
    console.emit(str(file))


def _bracketed(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _fits(record: "Record", platform: Platform) -> bool:
    from jetship.probe.record import require_fitting

    # A Jetson's record fits no server of the same Python and torch, and the other way round.
    if bool(record.l4t) != bool(platform.l4t):
        return False
    if platform.l4t and record.l4t not in platform.l4t:
        return False
    try:
        require_fitting(record, platform, str(record.path))
    except ConfigError:
        return False
    return True


def _row(record: "Record", fitting: list[str]) -> dict[str, Any]:
    facts = record.facts | {"l4t": record.l4t or None}
    return {"file": str(record.path), "facts": facts, "libraries": len(record.files),
            "platforms": fitting}  # fmt: skip


def _told(record: "Record", catalog: Catalog, fitting: list[str]) -> str:
    facts = record.facts
    words = [facts["model"] or facts["host"] or "a device", facts["machine"]]
    words += [f"L4T {record.l4t}"] if record.l4t else []
    words += [f"Python {facts['python']}", f"torch {facts['torch']}"]
    words.append(f"{len(record.files)} libraries")
    fits = f"it is {' or '.join(fitting)}" if fitting else (
        f"none of the {len(catalog.platforms)} platforms is that"
    )  # fmt: skip
    return f"{', '.join(words)}; {fits}"

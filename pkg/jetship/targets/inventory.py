"""Devices of a file beside deploy.yaml: a list in deploy.yaml's own form, or Ansible's inventory.

Of Ansible it reads the YAML inventory and what `ansible-inventory --list` prints. Its rules for
groups and variables are those of Ansible's documentation ("How to build your inventory"): a
host's own variables come first, then those of its groups, the deeper group first.
"""

import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from jetship import yamlfile
from jetship.errors import ConfigError
from jetship.targets.device import DeviceRow
from jetship.yamlfile import Document

Location = tuple[int | str, ...]

# Ansible's variables for what a device's row says, the first that is set; and ours.
VARIABLES: Mapping[str, tuple[str, ...]] = {
    "host": ("ansible_host", "ansible_ssh_host"),
    "user": ("ansible_user", "ansible_ssh_user"),
    "port": ("ansible_port", "ansible_ssh_port"),
    "identity": ("ansible_ssh_private_key_file", "ansible_private_key_file"),
    "python": ("jetship_python", "ansible_python_interpreter"),
    "known_hosts": ("jetship_known_hosts",),
    "state": ("jetship_state",),
    "board": ("jetship_board",),
    "target": ("jetship_target",),
    "labels": ("jetship_labels",),
}
_OURS = frozenset(name for names in VARIABLES.values() for name in names if "jetship" in name)
# Of Ansible's connections, without the name of their collection.
_BY_SSH = frozenset({"ssh", "smart", "paramiko", "paramiko_ssh", "libssh"})
_OF_EVERYBODY = frozenset({"all", "ungrouped"})
_FORMS = (
    "write a line for each device, `- {name: one, address: user@host, board: orin}`, or name an "
    "inventory of Ansible's"
)
_EXPORT = "ansible-inventory -i {path} --list > fleet.json, and name that file"


@dataclass(frozen=True)
class Placed:
    """A device's row, where each of its keys stands, and the folder of the file that has it.

    `unread` has the keys that are there and could not be read; there is no device of such a row.
    """

    row: DeviceRow
    place: Callable[[str], str]
    folder: Path
    unread: frozenset[str] = frozenset()


# What stands in for what cannot be read of a row.
_NO_NAME: Mapping[str, object] = {"name": "unnamed"}
_NO_ADDRESS: Mapping[str, object] = {
    "address": "nobody@nowhere", "host": None, "user": None, "port": None
}  # fmt: skip


def read_inventory(path: Path) -> tuple[list[Placed], list[str]]:
    """Return the devices of an inventory, and what is wrong with the others.

    Raises:
        ConfigError: the file is missing, or is neither YAML nor JSON.
    """
    try:
        document = yamlfile.read(path)
    except ConfigError as error:
        if path.is_file() and re.search(rb"(?m)^\[[^\]\n]*\]\s*$", path.read_bytes()):
            fix = f"that is Ansible's INI form; say {_EXPORT.format(path=path)}"
            raise ConfigError(error.what, why=error.why, fix=fix) from error
        raise
    found, problems = _read(document)
    return found, [*document.repeated, *problems]


def _read(document: Document) -> tuple[list[Placed], list[str]]:
    data, path = document.data, document.path
    if isinstance(data, list):
        return own_rows(document, data, ())
    if isinstance(data, dict) and isinstance(data.get("devices"), list):
        place = document.place(("devices",))
        return [], [f"{place}: an inventory of devices is the list alone, without a key above it"]
    if isinstance(data, dict) and isinstance(data.get("plugin"), str):
        place, export = document.place(("plugin",)), _EXPORT.format(path=path)
        why = f"the plugin {data['plugin']!r} is one that Ansible itself runs"
        return [], [f"{place}: {why}; let it write down what it finds: {export}"]
    if isinstance(data, dict) and data:
        return _Ansible(document).devices()
    what = "it is empty" if not data else "it is neither a list of devices nor Ansible's inventory"
    return [], [f"{path}: {what}; {_FORMS}"]


def own_rows(
    document: Document, rows: Sequence[object], at: Location, *, told: bool = False
) -> tuple[list[Placed], list[str]]:
    """Return the devices of a list in deploy.yaml's own form, and what is wrong with them.

    Args:
        document: has the list.
        rows: of the list.
        at: where in the document it is.
        told: what is wrong at first sight is told by somebody else.
    """
    found, problems = [], []
    for number, raw in enumerate(rows):
        here = (*at, number)
        place, folder = _placer(document, here), document.path.parent
        try:
            found.append(Placed(DeviceRow.model_validate(raw), place, folder))
        except ValidationError as error:
            problems += [] if told else document.problems(error, DeviceRow, here)
            part = _salvaged(raw)
            if part is not None:
                problems += document.lines(part.more, DeviceRow, here)
                found.append(Placed(part.value, place, folder, part.unread))
    return found, problems


def _salvaged(raw: object) -> yamlfile.Salvaged[DeviceRow] | None:
    return yamlfile.salvage(DeviceRow, raw, missing=_NO_NAME, together=_NO_ADDRESS)


def _placer(document: Document, at: Location) -> Callable[[str], str]:
    return lambda key: document.place((*at, key))


@dataclass
class _Group:
    """A group of Ansible's; variables with the place that sets them."""

    at: Location
    parents: set[str] = field(default_factory=set)
    variables: dict[str, tuple[object, Location]] = field(default_factory=dict)


@dataclass
class _Host:
    at: Location
    groups: set[str] = field(default_factory=set)
    variables: dict[str, tuple[object, Location]] = field(default_factory=dict)


class _Ansible:
    """One inventory of Ansible's, in either form."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._problems: dict[str, None] = {}  # each once, in order
        self._groups: dict[str, _Group] = {"all": _Group(())}
        self._hosts: dict[str, _Host] = {}
        self._depths: dict[str, int] = {}
        self._merged: dict[frozenset[str], dict[str, tuple[object, Location]]] = {}

    def devices(self) -> tuple[list[Placed], list[str]]:
        data = self._document.data
        for name, body in data.items():
            if name != "_meta":
                self._read_group(name, body, (name,))
        meta = data.get("_meta") or {}
        of_hosts = meta.get("hostvars") if isinstance(meta, dict) else None
        for name, variables in (of_hosts or {}).items() if isinstance(of_hosts, dict) else ():
            at = ("_meta", "hostvars", name)
            self._host(name, at).variables |= self._variables(variables, at)
        self._refuse_folders()
        if not self._hosts and not self._problems:
            self._problem((), f"it has no hosts; {_FORMS}")
        if self._has_a_loop():
            return [], [*self._problems]
        found = [row for name in self._hosts for row in self._device(name)]
        return found, [*self._problems]

    def _problem(self, at: Location, message: str) -> None:
        self._problems[f"{self._document.place(at)}: {message}"] = None

    def _read_group(self, name: str, body: object, at: Location) -> None:
        group = self._groups.setdefault(name, _Group(at))
        if body is None:
            return
        if not isinstance(body, dict):
            self._problem(at, f"the group {name!r} is a mapping with hosts, children or vars")
            return
        for key in body:
            if key not in ("hosts", "children", "vars"):
                self._problem((*at, key), f"a group has hosts, children and vars, not {key!r}")
        group.variables |= self._variables(body.get("vars"), (*at, "vars"))
        for child, inner, here in self._named(body.get("children"), (*at, "children")):
            self._read_group(child, inner, here)
            self._groups[child].parents.add(name)
        for pattern, inner, here in self._named(body.get("hosts"), (*at, "hosts")):
            variables = self._variables(inner, here)
            for host in self._expanded(pattern, here):
                found = self._host(host, here)
                found.groups.add(name)
                found.variables |= variables

    def _named(self, value: object, at: Location) -> Iterator[tuple[str, object, Location]]:
        """Yield what a group names: a mapping in YAML, a list in what --list prints."""
        if isinstance(value, dict):
            for name, inner in value.items():
                yield str(name), inner, (*at, name)
        elif isinstance(value, list):
            for number, name in enumerate(value):
                yield str(name), None, (*at, number)
        elif value is not None:
            self._problem(at, "this is a mapping of names, or a list of them")

    def _host(self, name: str, at: Location) -> _Host:
        return self._hosts.setdefault(name, _Host(at))

    def _variables(self, value: object, at: Location) -> dict[str, tuple[object, Location]]:
        if value is None:
            return {}
        if not isinstance(value, dict):
            self._problem(at, "variables are a mapping")
            return {}
        for name in value:
            if str(name).startswith("jetship_") and name not in _OURS:
                known = ", ".join(sorted(_OURS))
                self._problem((*at, name), f"jetship has no variable {name!r}; known: {known}")
        return {str(name): (one, (*at, name)) for name, one in value.items()}

    def _expanded(self, pattern: str, at: Location) -> list[str]:
        try:
            return list(expand_range(pattern))
        except ValueError as error:
            self._problem(at, str(error))
            return []

    def _has_a_loop(self) -> bool:
        for name in self._groups:
            try:
                self._depth(name, ())
            except ConfigError as error:
                self._problem(self._groups[name].at, error.what)
                return True
        return False

    def _refuse_folders(self) -> None:
        """Refuse variables in folders beside the file: Ansible reads them, and this does not."""
        used = re.compile(
            r"(?m)^\s*[\"']?(?:ansible_(?:host|user|port|ssh_\w+)|jetship_\w+)[\"']?:"
        )
        for name in ("group_vars", "host_vars"):
            folder = self._document.path.parent / name
            for file in sorted(folder.rglob("*")) if folder.is_dir() else ():
                if file.is_file() and used.search(file.read_text(errors="replace")):
                    self._problem(
                        (),
                        f"{file} sets variables for it, and only Ansible itself reads these; say "
                        + _EXPORT.format(path=self._document.path),
                    )
                    return

    def _depth(self, name: str, below: tuple[str, ...]) -> int:
        """Return the longest way from a group up to `all`."""
        if name in below:
            raise ConfigError(f"the group {name!r} is its own child: {' > '.join(below)}")
        if name not in self._depths:
            parents = self._groups[name].parents
            deepest = max((self._depth(one, (*below, name)) for one in parents), default=-1)
            self._depths[name] = 0 if name == "all" else max(deepest + 1, 1)
        return self._depths[name]

    def _ancestors(self, names: set[str]) -> set[str]:
        found, waiting = {"all"}, [*names]
        while waiting:
            name = waiting.pop()
            if name not in found:
                found.add(name)
                waiting += self._groups[name].parents
        return found

    def _of_groups(self, groups: frozenset[str]) -> dict[str, tuple[object, Location]]:
        if groups not in self._merged:
            merged: dict[str, tuple[object, Location]] = {}
            for name in sorted(
                groups, key=lambda one: (self._depths[one], self._priority(one), one)
            ):
                merged |= self._groups[name].variables
            self._merged[groups] = merged
        return self._merged[groups]

    def _priority(self, name: str) -> int:
        value, _ = self._groups[name].variables.get("ansible_group_priority", (1, ()))
        return int(str(value)) if re.fullmatch(r"-?[0-9]{1,9}", str(value)) else 1

    def _device(self, name: str) -> Iterator[Placed]:
        host = self._hosts[name]
        groups = self._ancestors(host.groups)
        variables = self._of_groups(frozenset(groups)) | host.variables
        row: dict[str, Any] = {"name": name, "host": name}
        places: dict[str, Location] = {}
        unread: frozenset[str] = frozenset()
        for key, names in VARIABLES.items():
            spelled = next((one for one in names if one in variables), None)
            if spelled is None:
                continue
            value, at = variables[spelled]
            if isinstance(value, str) and "{{" in value:
                self._problem(at, f"{spelled} is a template, which only Ansible itself fills in")
                unread |= {key}
            elif spelled != "ansible_python_interpreter" or not str(value).startswith("auto"):
                row[key], places[key] = value, at
        self._refuse_other_ways(variables)
        row["groups"] = sorted(groups - _OF_EVERYBODY)
        try:
            device = DeviceRow.model_validate(row)
        except ValidationError as error:
            part = _salvaged(row)
            for detail in (*error.errors(), *(part.more if part else ())):
                key = str(detail["loc"][0]) if detail["loc"] else ""
                said = VARIABLES[key][0] if key in places else name
                place = places.get(key, host.at)
                self._problem(place, f"{said}: {yamlfile.sentence(detail)}")
            if part is None:
                return
            device, unread = part.value, unread | part.unread
        document = self._document
        yield Placed(
            device,
            lambda key: document.place(places.get(key, host.at)),
            document.path.parent,
            unread,
        )

    def _refuse_other_ways(self, variables: Mapping[str, tuple[object, Location]]) -> None:
        """Refuse hosts that Ansible reaches otherwise: here they would be asked by SSH."""
        value, at = variables.get("ansible_connection", ("ssh", ()))
        if str(value).rpartition(".")[2] not in _BY_SSH:
            self._problem(
                at,
                f"ansible_connection: {value!r} is another way than SSH, and deploy.yaml's devices "
                "are reached by SSH alone; leave the host out, or say ssh",
            )


def expand_range(pattern: str) -> Iterator[str]:
    """Yield the hosts of a pattern such as jetson[01:50] or bay-[a:f][1:9:2], as Ansible does.

    Raises:
        ValueError: a range in it is none.
    """
    match = re.search(r"\[([^\[\]]*:[^\[\]]*)\]", pattern)
    if match is None or re.fullmatch(r"\[[0-9A-Fa-f:.]+\](?::[0-9]+)?", pattern):
        yield pattern
        return
    for one in _range(match[1], pattern):
        yield from expand_range(pattern[: match.start()] + one + pattern[match.end() :])


def _range(text: str, pattern: str) -> list[str]:
    parts = text.split(":")
    step = parts[2] if len(parts) == 3 else "1"
    if len(parts) > 3 or not re.fullmatch(r"[1-9][0-9]{0,5}", step):
        raise ValueError(f"{pattern!r} has no range such as [01:50] or [a:f:2]")
    first, last = parts[0] or "0", parts[1]
    letters = string.ascii_letters
    if first in letters and last in letters and len(first) == len(last) == 1:
        found = list(letters[letters.index(first) : letters.index(last) + 1 : int(step)])
    elif re.fullmatch(r"[0-9]{1,7}", first) and re.fullmatch(r"[0-9]{1,7}", last):
        width = len(first) if first.startswith("0") and len(first) > 1 else 0
        if width and len(last) != width:
            raise ValueError(f"{pattern!r}: {first} and {last} do not have the same width")
        found = [str(n).zfill(width) for n in range(int(first), int(last) + 1, int(step))]
    else:
        raise ValueError(f"{pattern!r} has no range such as [01:50] or [a:f:2]")
    if not found:
        raise ValueError(f"{pattern!r}: {first} does not come before {last}")
    return found

"""deploy.yaml: what to build, how its image is called, and which devices get it."""

import difflib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal, TypeVar

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, field_validator

from jetship import yamlfile
from jetship.errors import ConfigError
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.catalog import Catalog
from jetship.targets.device import Device, device_target
from jetship.targets.model import Target
from jetship.targets.resolve import DEFAULT_PLATFORM, resolve
from jetship.yamlfile import FileError, Strict

RowT = TypeVar("RowT", bound=Strict)
Location = tuple[int | str, ...]


class TargetRow(Strict):
    """One row of `targets`: the same words as `build --arch … --platform … --fat`."""

    arch: str
    platform: str = DEFAULT_PLATFORM
    fat: bool = False


class ImagePlan(Strict):
    """How images are called, and the command that shows that one works."""

    repository: str
    smoke: tuple[str, ...] = Field(min_length=1)

    @field_validator("repository")
    @classmethod
    def _is_repository(cls, name: str) -> str:
        part = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
        if not re.fullmatch(rf"(?:[A-Za-z0-9.-]+(?::\d+)?/)?{part}(?:/{part})*", name):
            raise ValueError(
                f"{name!r} is not an image repository such as jetship/jetops "
                "(lower case, without a tag)"
            )
        return name


class Fleet(Strict):
    """The devices that `deploy` rolls out to."""

    devices: tuple[Device, ...] = ()


_Text = Annotated[str, StringConstraints(min_length=1)]


class OwnPaths(Strict):
    """The user's own parts for one platform, as `build --cuda-home … --image …` takes them.

    Paths are relative to deploy.yaml; `image` is a name that the engine knows.
    """

    cuda_home: _Text = ""
    sysroot: _Text = ""
    torch_wheel: _Text = ""
    python_dev: _Text = ""
    image: _Text = ""
    libraries: _Text = ""


class Strategy(Strict):
    """How a rollout goes: first `canary` devices, then `wave` at a time, until too many fail."""

    canary: int = Field(default=1, ge=0)
    wave: int = Field(default=1, ge=1)
    max_failures: int = Field(default=0, ge=0)


class Deployment(Strict):
    """A whole deploy.yaml. No key has to be there before a task needs it."""

    version: Literal[1] = 1
    project: str = "."
    """A folder or an sdist, relative to deploy.yaml, or a requirement ("torch-scatter==2.1.2")."""
    targets_file: str | None = None
    """The user's own boards, platforms and parts, relative to deploy.yaml."""
    own_parts: dict[str, OwnPaths] = Field(default_factory=dict)
    """By platform: what takes the place of its own parts."""
    targets: tuple[TargetRow, ...] = Field(default=(), min_length=1)
    build: BuildSettings = BuildSettings()
    image: ImagePlan | None = None
    fleet: Fleet = Fleet()
    strategy: Strategy = Strategy()

    def resolve_targets(self, catalog: Catalog) -> tuple[Target, ...]:
        """Return all targets, in the order of deploy.yaml.

        Raises:
            ConfigError: a row names what the catalog does not know or cannot make.
        """
        rows = (
            resolve(catalog, arch=row.arch, platform=row.platform, fat=row.fat)
            for row in self.targets
        )
        return tuple(target for targets in rows for target in targets)


class _OwnPartsAlone(Strict):
    """Of a deploy.yaml, what tasks need that do not need the rest."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    own_parts: dict[str, OwnPaths] = Field(default_factory=dict)


@dataclass(frozen=True)
class Problem:
    """Something that does not fit together, and the key at which it stands."""

    location: Location
    message: str


def load_deployment(path: Path, catalog: Catalog) -> Deployment:
    """Read deploy.yaml and check it against the catalog.

    Raises:
        ConfigError: every problem, each with file, line and column.
    """
    try:
        deployment = yamlfile.load(path, Deployment)
    except FileError as error:
        found = list(_problems_of_what_can_be_read(path, catalog))
        lines = [f"{yamlfile.place(path, row.location)}: {row.message}" for row in found]
        raise FileError(path, [*error.problems, *lines]) from error
    found = list(_problems(deployment, catalog))
    if "==" not in deployment.project and not (path.parent / deployment.project).exists():
        message = (
            f"there is no folder or sdist {deployment.project!r} here, and a requirement in this "
            "file names its exact version (torch-scatter==2.1.2)"
        )
        found.insert(0, Problem(("project",), message))
    _require_none(path, found)
    return deployment


def own_paths_of(path: Path, catalog: Catalog) -> Mapping[str, OwnPaths]:
    """Return `own_parts` of a deploy.yaml, by platform, whatever the rest of it says.

    Raises:
        ConfigError: every problem of these, each with file, line and column.
    """
    own_parts = yamlfile.load(path, _OwnPartsAlone).own_parts
    _require_none(path, list(_own_problems(own_parts, catalog)))
    return own_parts


def _require_none(path: Path, found: Sequence[Problem]) -> None:
    if found:
        lines = [f"{yamlfile.place(path, row.location)}: {row.message}" for row in found]
        raise FileError(path, lines)


def targets_file_of(path: Path) -> Path | None:
    """Return the user's file of platforms that a deploy.yaml names, or None.

    The whole of deploy.yaml can only be checked with the platforms of that file.

    Raises:
        ConfigError: deploy.yaml is not YAML, or names no file.
    """
    name = yamlfile.top_level(path, "targets_file")
    if name is None:
        return None
    named = path.parent / str(name)
    if not named.is_file():
        raise ConfigError(
            f"{yamlfile.place(path, ('targets_file',))}: there is no file {str(name)!r} here"
        )
    return named


def validate(deployment: Deployment, catalog: Catalog) -> None:
    """Check what one file alone cannot tell: references to boards, platforms and targets.

    Raises:
        ConfigError: every problem, each with the path of its key ("fleet.devices.0.board").
    """
    found = _problems(deployment, catalog)
    lines = [f"{_dotted(row.location)}: {row.message}" for row in found]
    if lines:
        raise ConfigError(yamlfile.summary("deploy.yaml", lines))


def matrix(targets: Sequence[Target]) -> dict[str, list[dict[str, str | bool]]]:
    """Return the targets as GitHub Actions' `strategy.matrix` takes them through fromJSON."""
    return {
        "include": [
            {
                "id": target.id,
                "arch": ",".join(str(code) for code in target.code),
                "platform": target.platform.name,
                "fat": len(target.code) > 1,
                "runner": "ubuntu-latest",
                "artifact": f"wheel-{target.id}",
            }
            for target in targets
        ]
    }


def _problems(deployment: Deployment, catalog: Catalog) -> Iterator[Problem]:
    targets: list[Target] = []
    yield from _target_problems(enumerate(deployment.targets), catalog, targets)
    yield from _own_problems(deployment.own_parts, catalog)
    yield from _fleet_problems(deployment, catalog, targets)


def _problems_of_what_can_be_read(path: Path, catalog: Catalog) -> Iterator[Problem]:
    """Yield what does not fit together in a file that has wrong keys or values besides.

    Whether devices have a target is left out: it may be among what cannot be read.
    """
    rows = yamlfile.top_level(path, "targets")
    read = [(number, _read(TargetRow, row)) for number, row in enumerate(_listed(rows))]
    yield from _target_problems([(n, row) for n, row in read if row is not None], catalog, [])
    parts = yamlfile.top_level(path, "own_parts")
    own = {name: _read(OwnPaths, row) for name, row in _mapped(parts).items()}
    yield from _own_problems({name: row for name, row in own.items() if row is not None}, catalog)
    fleet = _mapped(yamlfile.top_level(path, "fleet"))
    for number, row in enumerate(_listed(fleet.get("devices"))):
        device = _read(Device, row)
        if device is not None:
            yield from _board_problems(("fleet", "devices", number), device, catalog)


def _read(model: type[RowT], row: object) -> RowT | None:
    try:
        return model.model_validate(row)
    except ValidationError:
        return None


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _mapped(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _target_problems(
    rows: Iterable[tuple[int, TargetRow]], catalog: Catalog, targets: list[Target]
) -> Iterator[Problem]:
    """Yield what is wrong with the rows, and append their targets to `targets`."""
    for number, row in rows:
        try:
            made = resolve(catalog, arch=row.arch, platform=row.platform, fat=row.fat)
        except ConfigError as error:
            unknown = row.platform not in {platform.name for platform in catalog.platforms}
            yield Problem(("targets", number, "platform" if unknown else "arch"), _one_line(error))
            continue
        for target in made:
            if target.id in {other.id for other in targets}:
                yield Problem(("targets", number), f"target {target.id} is given twice")
            targets.append(target)


def _own_problems(own_parts: Mapping[str, OwnPaths], catalog: Catalog) -> Iterator[Problem]:
    for name, paths in own_parts.items():
        try:
            catalog.platform(name)
        except ConfigError as error:
            yield Problem(("own_parts", name), _one_line(error))
        if paths.image and paths.sysroot:
            message = "image and sysroot both give the target's sysroot; leave one of them out"
            yield Problem(("own_parts", name, "image"), message)


def _fleet_problems(
    deployment: Deployment, catalog: Catalog, targets: Sequence[Target]
) -> Iterator[Problem]:
    devices = deployment.fleet.devices
    boards = {board.name: board for board in catalog.boards}
    for number, device in enumerate(devices):
        at: Location = ("fleet", "devices", number)
        if device.name in {other.name for other in devices[:number]}:
            yield Problem((*at, "name"), f"a device named {device.name!r} is there already")
        board = boards.get(device.board)
        if board is None:
            yield from _board_problems(at, device, catalog)
            continue
        try:
            device_target(device, board, targets)
        except ConfigError as error:
            key = "board" if device.target is None else "target"
            yield Problem((*at, key), _one_line(error))
    if devices and deployment.strategy.canary > len(devices):
        message = f"{deployment.strategy.canary} canaries, and the fleet has {len(devices)} devices"
        yield Problem(("strategy", "canary"), message)


def _board_problems(at: Location, device: Device, catalog: Catalog) -> Iterator[Problem]:
    boards = [board.name for board in catalog.boards]
    if device.board not in boards:
        close = difflib.get_close_matches(device.board, boards, n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        message = f"board {device.board!r} is not known; {hint}known: {', '.join(boards)}"
        yield Problem((*at, "board"), message)


def _one_line(error: ConfigError) -> str:
    return "; ".join(part for part in (error.what, error.why, error.fix) if part)


def _dotted(location: Location) -> str:
    return ".".join(str(part) for part in location)

"""deploy.yaml: what to build, how its image is called, and which devices get it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self, TypeVar

from pydantic import ConfigDict, Field, ValidationError

from jetship import yamlfile
from jetship.errors import ConfigError
from jetship.nofile import why_no_file
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.catalog import Catalog
from jetship.targets.device import Reached
from jetship.targets.fleet import Assembly, Fleet, FleetPlan, one_line
from jetship.targets.imageplan import ImagePlan
from jetship.targets.inventory import Placed, own_rows, read_inventory
from jetship.targets.model import Target
from jetship.targets.resolve import DEFAULT_PLATFORM, WITHOUT_OPTION, resolve
from jetship.targets.strategy import Health, Share, Strategy
from jetship.targets.words import TextOrNumber, Word
from jetship.yamlfile import Document, FileError, Strict

RowT = TypeVar("RowT", bound=Strict)
Location = tuple[int | str, ...]
_MEND = (
    "mend what is named; an editor that has the schema (`invoke schema`) shows most of it as you "
    "write"
)


class TargetRow(Strict):
    """One row of `targets`: the same words as `build --arch … --platform … --fat`."""

    arch: TextOrNumber
    """Compute capabilities as in --arch: 6.2, or "6.2,8.7+PTX"."""
    platform: str = DEFAULT_PLATFORM
    """What is installed on the board; `invoke targets` lists the platforms."""
    fat: bool = False
    """One wheel with the device code of all archs, instead of a wheel each."""


class OwnPaths(Strict):
    """The user's own parts for one platform, as `build --cuda-home … --image …` takes them.

    Paths are relative to deploy.yaml; `image` is a name that the engine knows.
    """

    cuda_home: Word = ""
    sysroot: Word = ""
    torch_wheel: Word = ""
    python_dev: Word = ""
    image: Word = ""
    libraries: Word = ""


class Deployment(Strict):
    """A whole deploy.yaml. No key has to be there before a task needs it."""

    version: Literal[1] = 1
    """The version of this form."""
    project: str = "."
    """A folder or an sdist, relative to deploy.yaml, or a requirement ("torch-scatter==2.1.2")."""
    targets_file: str | None = None
    """The user's own boards, platforms and parts, relative to deploy.yaml."""
    own_parts: dict[str, OwnPaths] = Field(default_factory=dict)
    """By platform: what takes the place of its own parts."""
    targets: tuple[TargetRow, ...] = Field(default=(), min_length=1)
    """What to build: a wheel and an image for each."""
    build: BuildSettings = BuildSettings()
    image: ImagePlan | None = None
    health: Health = Health()
    fleet: FleetPlan = FleetPlan()
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
class Readable:
    """A deploy.yaml as far as it can be read, so that one look finds all that is wrong with it.

    What could not be read has its default here. The flags say where that leaves open what else is
    wrong: whether these are all targets and all devices, and whether `image.registry` could be
    read.
    """

    project: str
    targets: tuple[tuple[int, TargetRow], ...]
    own_parts: Mapping[str, OwnPaths]
    image: ImagePlan | None
    strategy: Strategy
    fleet: FleetPlan
    devices: Sequence[object]
    unread_defaults: frozenset[str] = frozenset()
    has_all_targets: bool = True
    has_all_devices: bool = True
    registry_is_said: bool = True
    problems: tuple[str, ...] = ()

    @classmethod
    def of(cls, deployment: Deployment) -> Self:
        """Return one in which nothing is wrong at first sight."""
        return cls(
            project=deployment.project,
            targets=tuple(enumerate(deployment.targets)),
            own_parts=deployment.own_parts,
            image=deployment.image,
            strategy=deployment.strategy,
            fleet=deployment.fleet,
            devices=deployment.fleet.devices,
        )

    @classmethod
    def salvaged(cls, document: Document) -> Self:
        """Return what can be read of a damaged one."""
        data = _mapped(document.data)
        top = yamlfile.salvage(Deployment, data)
        unread = top.unread if top else frozenset()
        own = {name: _part(OwnPaths, row) for name, row in _mapped(data.get("own_parts")).items()}
        image = yamlfile.salvage(ImagePlan, data.get("image"), **_IMAGE)
        strategy = _part(Strategy, data.get("strategy", {}))
        raw_fleet = _mapped(data.get("fleet"))
        fleet = _part(FleetPlan, {**raw_fleet, "devices": [], "defaults": {}})
        defaults = _part(Reached, raw_fleet.get("defaults", {}))
        rows = [(n, _target_row(row)) for n, row in enumerate(_listed(data.get("targets")))]
        canary = {"canary": Share(0)} if "canary" in strategy.unread else {}
        return cls(
            project=top.value.project if top else ".",
            targets=tuple((number, row) for number, row in rows if row is not None),
            own_parts={name: part.value for name, part in own.items()},
            image=image.value if image else None,
            strategy=strategy.value.model_copy(update=canary),
            fleet=fleet.value.model_copy(update={"defaults": defaults.value}),
            devices=_listed(raw_fleet.get("devices")),
            unread_defaults=defaults.unread,
            has_all_targets="targets" not in unread,
            has_all_devices=not {"devices", "inventory"} & fleet.unread,
            registry_is_said=image is None or "registry" not in image.unread,
            problems=tuple(document.lines(image.more, Deployment, ("image",))) if image else (),
        )


# What stands in for what an image has to have, and for what does not fit together in it.
_IMAGE: Mapping[str, Mapping[str, object]] = {
    "missing": {"repository": "unnamed", "smoke": ["unsaid"]},
    "together": {"ports": []},
}


def _part(model: type[RowT], raw: object) -> yamlfile.Salvaged[RowT]:
    """Return what can be read of a part of which all keys may be left out."""
    found = yamlfile.salvage(model, raw)
    return found or yamlfile.Salvaged(model(), frozenset(model.model_fields))


def _target_row(raw: object) -> TargetRow | None:
    """Return a row of `targets`, unless what it makes is among what cannot be read."""
    found = yamlfile.salvage(TargetRow, raw)
    return found.value if found and not found.unread & {"arch", "platform"} else None


@dataclass(frozen=True)
class Problem:
    """Something that does not fit together, and the key at which it stands."""

    location: Location
    message: str


def load_deployment(path: Path, catalog: Catalog) -> Deployment:
    """Read deploy.yaml and check it against the catalog, but for its inventory.

    Raises:
        ConfigError: every problem, each with file, line and column.
    """
    deployment, _ = _load(path, catalog, inventory=False)
    return deployment


def load_fleet(path: Path, catalog: Catalog) -> tuple[Deployment, Fleet]:
    """Read deploy.yaml with its inventory, and make devices of both.

    Raises:
        ConfigError: every problem of both files, each with file, line and column.
    """
    return _load(path, catalog, inventory=True)


def _load(path: Path, catalog: Catalog, *, inventory: bool) -> tuple[Deployment, Fleet]:
    _require_file(path)
    document = yamlfile.read(path)
    problems = [*document.repeated]
    deployment: Deployment | None = None
    try:
        deployment = Deployment.model_validate(document.data)
        readable = Readable.of(deployment)
    except ValidationError as error:
        problems += document.problems(error, Deployment)
        readable = Readable.salvaged(document)
        problems += readable.problems
    targets: list[Target] = []
    wrong = [*_target_problems(readable, catalog, targets)]
    all_targets = readable.has_all_targets and not wrong
    problems += _lines(document, [*wrong, *_problems(readable, path, catalog, targets)])
    assembly = Assembly(
        document,
        readable.fleet,
        catalog,
        targets if all_targets else None,
        readable.unread_defaults,
        readable.has_all_devices,
    )
    # What is wrong with these rows at first sight was told with the model's problems.
    rows, told = own_rows(document, readable.devices, ("fleet", "devices"), told=True)
    problems += told
    if inventory and readable.fleet.inventory is not None:
        more, told = _of_inventory(document, readable.fleet.inventory)
        assembly.whole = assembly.whole and bool(more or not told)
        rows += more
        problems += told
    devices = assembly.devices(rows)
    if inventory or readable.fleet.inventory is None:
        assembly.refuse_unknown_members()
        canary = readable.strategy.canary
        if not canary.percent:
            assembly.refuse_more_canaries(canary.amount, len(rows))
    problems += assembly.problems
    if deployment is None or problems:
        raise FileError(path, problems, fix=_MEND)
    return deployment, Fleet(devices, tuple(targets))


def _require_file(path: Path) -> None:
    """Refuse a deploy.yaml that is no file.

    Raises:
        ConfigError: says where it was looked for.
    """
    if problem := why_no_file(path):
        raise ConfigError(
            f"{path} {problem}",
            why="" if path.is_absolute() else f"it was looked for in {Path.cwd()}",
            fix="name a deploy.yaml with --deploy FILE",
        )


def _of_inventory(document: Document, name: str) -> tuple[list[Placed], list[str]]:
    path = document.path.parent / Path(name).expanduser()
    if not path.is_file():
        place = document.place(("fleet", "inventory"))
        return [], [f"{place}: there is no file {name!r} here"]
    try:
        return read_inventory(path)
    except ConfigError as error:
        return [], [one_line(error)]


def _lines(document: Document, found: Iterable[Problem]) -> list[str]:
    return [f"{document.place(row.location)}: {row.message}" for row in found]


def own_paths_of(path: Path, catalog: Catalog) -> Mapping[str, OwnPaths]:
    """Return `own_parts` of a deploy.yaml, by platform, whatever the rest of it says.

    Raises:
        ConfigError: every problem of these, each with file, line and column.
    """
    own_parts = yamlfile.load(path, _OwnPartsAlone).own_parts
    found = _lines(yamlfile.read(path), _own_problems(own_parts, catalog))
    if found:
        raise FileError(path, found)
    return own_parts


def targets_file_of(path: Path) -> Path | None:
    """Return the user's file of platforms that a deploy.yaml names, or None.

    The whole of deploy.yaml can only be checked with the platforms of that file.

    Raises:
        ConfigError: deploy.yaml is not YAML, or names no file.
    """
    _require_file(path)
    name = yamlfile.top_level(path, "targets_file")
    if name is None:
        return None
    named = path.parent / str(name)
    if not named.is_file():
        raise ConfigError(
            f"{yamlfile.place(path, ('targets_file',))}: there is no file {str(name)!r} here"
        )
    return named


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


def _problems(
    readable: Readable, path: Path, catalog: Catalog, targets: Sequence[Target]
) -> Iterator[Problem]:
    """Yield what does not fit together, but for `targets` and `fleet`."""
    project = readable.project
    if "==" not in project and not (path.parent / project).exists():
        message = (
            f"there is no folder or sdist {project!r} here, and a requirement in this "
            "file names its exact version (torch-scatter==2.1.2)"
        )
        yield Problem(("project",), message)
    yield from _own_problems(readable.own_parts, catalog)
    yield from _image_problems(readable, catalog, targets)


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _mapped(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _target_problems(
    readable: Readable, catalog: Catalog, targets: list[Target]
) -> Iterator[Problem]:
    """Yield what is wrong with the rows, and append their targets to `targets`."""
    for number, row in readable.targets:
        try:
            made = resolve(
                catalog, arch=row.arch, platform=row.platform, fat=row.fat, said=WITHOUT_OPTION
            )
        except ConfigError as error:
            unknown = row.platform not in {platform.name for platform in catalog.platforms}
            yield Problem(("targets", number, "platform" if unknown else "arch"), one_line(error))
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
            yield Problem(("own_parts", name), one_line(error))
        if paths.image and paths.sysroot:
            message = "image and sysroot both give the target's sysroot; leave one of them out"
            yield Problem(("own_parts", name, "image"), message)


def _image_problems(
    readable: Readable, catalog: Catalog, targets: Sequence[Target]
) -> Iterator[Problem]:
    image, strategy = readable.image, readable.strategy
    if image is None:
        return
    for name in image.base:
        try:
            catalog.platform(name)
        except ConfigError as error:
            yield Problem(("image", "base", name), one_line(error))
    if len(targets) > 1 and "{target}" not in image.tag and "{wheel}" not in image.tag:
        message = f"{image.tag!r} gives {len(targets)} targets one tag; put {{target}} into it"
        yield Problem(("image", "tag"), message)
    if strategy.swap == "beside" and (image.ports or image.network == "host"):
        message = "two containers beside each other cannot have the same ports of the device"
        yield Problem(("strategy", "swap"), message)
    if strategy.transfer == "registry" and not image.registry and readable.registry_is_said:
        message = "devices pull from a registry, and `image.registry` does not name one"
        yield Problem(("strategy", "transfer"), message)

"""From a task's options to targets and wheels; deploy.yaml answers what is not given."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from jetship import console, yamlfile
from jetship.errors import ConfigError, NothingSelectedError
from jetship.nofile import why_no_file
from jetship.store import Store
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import (
    Deployment,
    OwnPaths,
    load_deployment,
    own_paths_of,
    targets_file_of,
)
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Target
from jetship.targets.resolve import (
    DEFAULT_PLATFORM,
    board_for,
    platform_for,
    possible,
    resolve,
    resolve_id,
)
from jetship.toolchain.ownparts import NOTHING_OWN, OwnParts, OwnSupply

if TYPE_CHECKING:
    from jetship.build.project import Project

DEPLOY_FILE = Path("deploy.yaml")

ARCH_HELP = "compute capability of the GPU, such as 6.2 (TX2); several: 6.2,7.2 or '6.2;7.2+PTX'"
PLATFORM_HELP = f"what is installed on the board (default: {DEFAULT_PLATFORM}); see `targets`"
DEPLOY_HELP = f"the file that describes targets, image and fleet (default: {DEPLOY_FILE})"
TOGETHER_HELP = "changes nothing here: several archs are always taken for those of one wheel"
DIST_HELP = "folder of the finished wheels (default: dist)"
JSON_HELP = "print one JSON document on stdout"


@dataclass(frozen=True)
class Asked:
    """The options by which a task's targets are named."""

    arch: str | None = None
    board: str = ""
    platform: str = ""
    jetpack: str = ""
    target: str = ""
    fat: bool = False
    cpu_only: bool = False

    HELP: ClassVar[dict[str, str]] = {
        "arch": ARCH_HELP + " (default: the targets of deploy.yaml)",
        "board": "a board, such as tx2 or orin: gives the arch, and the platform where it has one",
        "platform": PLATFORM_HELP,
        "jetpack": "a JetPack or L4T release, such as 5.1.2 or r35.4.1, in place of --platform",
        "target": "a target, such as sm62-debian-12 or 6.2/debian-12, in place of all these others",
        "fat": "one wheel with the device code of all archs, instead of a wheel each",
        "cpu-only": "without device code: what a project builds with FORCE_CUDA=0",
    }

    KNOWN: ClassVar[dict[str, Callable[[], list[str]]]] = {
        "board": lambda: [board.name for board in Catalog.load().boards],
        "platform": lambda: [platform.name for platform in Catalog.load().platforms],
        "jetpack": lambda: [name for one in Catalog.load().platforms for name in one.jetpack],
    }

    @property
    def nothing(self) -> bool:
        return self == Asked()

    @property
    def together(self) -> "Asked":
        """These options for one target with all archs, as one run of CMake makes them.

        An id and --cpu-only name one anyway, and deploy.yaml says itself what goes together.
        """
        named = self.arch is not None or self.board
        return replace(self, fat=True) if named and not (self.target or self.cpu_only) else self


def targets_of(catalog: Catalog, asked: Asked, *, deploy: str) -> tuple[Target, ...]:
    """Return the targets that the options name, or those of deploy.yaml.

    Raises:
        ConfigError: the options or deploy.yaml name something impossible, or neither is there.
    """
    if asked.target:
        return _targets_by_id(catalog, asked)
    if asked.cpu_only:
        return (_without_code(catalog, asked),)
    arch, said = asked.arch, "--arch"
    if arch is None and not asked.board:
        said = "TORCH_CUDA_ARCH_LIST"
        arch = os.environ.get(said) or None  # to torch, empty means unset
        if arch is not None:
            console.note(f"--arch is taken from {said}={arch}")
    if arch is not None or asked.board:
        return resolve(
            catalog,
            arch=arch,
            board=asked.board,
            platform=asked.platform,
            jetpack=asked.jetpack,
            fat=asked.fat,
            said=said,
        )
    if not asked.nothing:
        chosen = platform_for(catalog, None, platform=asked.platform, jetpack=asked.jetpack)
        if len(chosen.cuda.archs) == 1:
            return resolve(catalog, arch=chosen.cuda.archs[0], platform=chosen.name)
        raise ConfigError(
            "--platform, --jetpack and --fat go with --arch or --board",
            why=f"{chosen.name} has several archs",
            fix=f"add --arch; {possible(catalog, chosen)}",
        )
    if problem := why_no_file(Path(deploy)):
        raise ConfigError(
            f"no target: --arch is not given, and {deploy} {problem}",
            fix="name a compute capability, such as --arch 6.2",
        )
    return targets_of_file(catalog, deploy)


def targets_of_file(catalog: Catalog, deploy: str) -> tuple[Target, ...]:
    """Return the targets of a deploy.yaml.

    Raises:
        ConfigError: it is wrong, or has none.
    """
    found = load_deployment(Path(deploy), catalog)
    if not found.targets:
        raise ConfigError(
            f"{deploy} names no targets",
            fix="add `targets: [{arch: 6.2}]` to it, or say --arch 6.2 where the task takes it",
        )
    return found.resolve_targets(catalog)


def _targets_by_id(catalog: Catalog, asked: Asked) -> tuple[Target, ...]:
    if asked != Asked(target=asked.target):
        raise ConfigError(
            "--target names arch and platform together", fix="leave the other options out"
        )
    return (resolve_id(catalog, asked.target),)


def _without_code(catalog: Catalog, asked: Asked) -> Target:
    if asked.arch is not None or asked.fat:
        raise ConfigError(
            "--cpu-only is without device code, and --arch and --fat say what code there is",
            fix="leave one of them out",
        )
    board = None
    if asked.board:
        board = board_for(catalog, asked.board, platform=asked.platform, jetpack=asked.jetpack)
    return Target((), platform_for(catalog, board, platform=asked.platform, jetpack=asked.jetpack))


@dataclass(frozen=True)
class Known:
    """The option by which a user adds platforms and boards to those that jetship knows."""

    targets_file: str = ""

    HELP: ClassVar[dict[str, str]] = {
        "targets-file": "your own boards, platforms and parts, beside jetship's or in their place "
        "(default: `targets_file` of deploy.yaml)",
    }

    def catalog(self, deploy: str = str(DEPLOY_FILE)) -> Catalog:
        """Return all that is known, and say what of it the user's file replaces.

        Raises:
            ConfigError: the user's file, or the deploy.yaml that names it, is wrong.
        """
        path = Path(deploy)
        extra = Path(self.targets_file) if self.targets_file else None
        if extra is not None and (problem := why_no_file(extra)):
            raise ConfigError(
                f"--targets-file: {extra} {problem}",
                fix="name a YAML file with your boards, platforms and parts",
            )
        if extra is None and path.is_file():
            extra = targets_file_of(path)
        catalog = Catalog.load(extra=extra)
        if catalog.replaced:
            console.note(f"{extra} replaces jetship's own {', '.join(catalog.replaced)}")
        return catalog


@dataclass(frozen=True)
class Given:
    """The options by which a user's own parts take the place of the pinned ones."""

    cuda_home: str = ""
    sysroot: str = ""
    image: str = ""
    torch_wheel: str = ""
    python_dev: str = ""
    libraries: str = ""

    HELP: ClassVar[dict[str, str]] = {
        "cuda-home": "your own CUDA toolkit for x86-64, in place of the platform's",
        "sysroot": "your own root folder of the target system, in place of the platform's",
        "image": "a container image of the target system that the engine has: its sysroot, torch "
        "and CUDA libraries in place of the platform's",
        "torch-wheel": "your own wheel of the target's torch, in place of the platform's",
        "python-dev": "a folder with include/pythonX.Y of the target's Python",
        "libraries": "what `probe` has read of a device: a check looks names up in it alone",
    }

    @property
    def parts(self) -> OwnParts:
        """The paths that were given."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return _own_parts(named, Path())

    def supply(self, catalog: Catalog, deploy: str = str(DEPLOY_FILE)) -> OwnSupply:
        """Return these, and behind them `own_parts` of deploy.yaml where there is one.

        Raises:
            ConfigError: `own_parts` is wrong.
        """
        path = Path(deploy)
        rows = own_paths_of(path, catalog) if path.is_file() else {}
        return OwnSupply(
            self.parts, {name: _of_file(path, name, row) for name, row in rows.items()}
        )


def _of_file(path: Path, platform: str, row: OwnPaths) -> OwnParts:
    named = {name: value for name, value in row.model_dump().items() if value}
    places = {
        name: f"{yamlfile.place(path, ('own_parts', platform, name))}: own_parts.{platform}.{name}"
        for name in named
    }
    return replace(_own_parts(named, path.parent), places=places)


def _own_parts(named: Mapping[str, str], folder: Path) -> OwnParts:
    def path(name: str) -> Path | None:
        text = named.get(name)
        return folder / Path(text).expanduser() if text else None

    return OwnParts(
        cuda_home=path("cuda_home"),
        sysroot=path("sysroot"),
        image=named.get("image") or None,
        torch_wheel=path("torch_wheel"),
        python_dev=path("python_dev"),
        libraries=path("libraries"),
    )


def deployment_of(catalog: Catalog, deploy: str) -> Deployment | None:
    """Return deploy.yaml, or None where there is none.

    Raises:
        ConfigError: it is there and wrong.
    """
    path = Path(deploy)
    if path == DEPLOY_FILE and why_no_file(path) == "does not exist":
        return None
    return load_deployment(path, catalog)


def image_plan_of(catalog: Catalog, deploy: str) -> tuple[Deployment, ImagePlan]:
    """Return deploy.yaml and its `image`, which has to be there.

    Raises:
        ConfigError: it is wrong, or says nothing of images.
    """
    found = deployment_of(catalog, deploy)
    if found is None:
        raise _no_image(deploy, "does not exist")
    return found, required_image(found, deploy)


def required_image(found: Deployment, deploy: str) -> ImagePlan:
    """Return the `image` of a deploy.yaml, which has to be there.

    Raises:
        ConfigError: it is not.
    """
    if found.image is None:
        raise _no_image(deploy, "has no `image`")
    return found.image


def _no_image(deploy: str, lacks: str) -> ConfigError:
    return ConfigError(
        f"{deploy} {lacks}, which says the image's name and smoke command",
        fix="add `image: {repository: my/ops, smoke: [python3, -c, pass]}` to it; jetship's "
        "own deploy.yaml is an example with comments",
    )


def named_project(catalog: Catalog, given: str, deploy: str) -> tuple[str, BuildSettings]:
    """Return which project is meant, as `find_project` takes it, and how to build it.

    That is the given one, deploy.yaml's, or the current folder. What deploy.yaml says of the build
    is meant for the project that it names.

    Raises:
        ConfigError: deploy.yaml is wrong.
    """
    deployment = deployment_of(catalog, deploy)
    if deployment is None:
        return given or ".", BuildSettings()
    folder = Path(deploy).parent / deployment.project
    if not given:
        return str(folder if folder.exists() else deployment.project), deployment.build
    its = deployment.project == given or folder.resolve() == Path(given).resolve()
    return given, deployment.build if its else BuildSettings()


def project_of(
    catalog: Catalog, given: str, deploy: str, store: Store
) -> "tuple[Project, BuildSettings]":
    """Return the project that `named_project` means, and how to build it.

    Raises:
        ConfigError, DownloadError: there is no such project.
    """
    from jetship.build.origin import find_project

    named, settings = named_project(catalog, given, deploy)
    return find_project(named, store), settings


def require_files(wheels: Sequence[str]) -> None:
    """Make sure that named wheels are files.

    Raises:
        ConfigError: names all that are not.
    """
    problems = []
    for name in wheels:
        if not name:
            problems.append("one of the names is empty")
        elif problem := why_no_file(Path(name)):
            problems.append(f"{name} {problem}")
    if problems:
        raise ConfigError("; ".join(problems), fix="name wheels, such as dist/*.whl")


def wheel_for(target: Target, *, given: str, dist: str, own: OwnParts = NOTHING_OWN) -> Path:
    """Return the wheel that is given, or the one in `dist` that was built for the target.

    Args:
        target: what the wheel is for.
        given: the wheel's path, or "".
        dist: the folder to look in.
        own: the user's parts, without which the build that is proposed may lack some.

    Raises:
        NothingSelectedError: there is none.
        ConfigError: there are several, or the one that is given does not exist.
    """
    if given:
        require_files([given])
        return Path(given)
    from jetship.wheelarchive import pin_of

    wheels = sorted(Path(dist).glob("*.whl"))
    pins = [(wheel, pin_of(wheel)) for wheel in wheels]
    found = [wheel for wheel, pin in pins if pin is not None and pin.target == target.id]
    if not found:
        from jetship.toolchain.prepare import missing_parts

        raise NothingSelectedError(
            f"{dist}/ has no wheel for {target.id}",
            fix=f"invoke build {_words(target)} --platform {target.platform.name}"
            + "".join(f" {option} {_PLACES[option]}" for _, option in missing_parts(target, own)),
        )
    if len(found) > 1:
        raise ConfigError(
            f"{dist}/ has {len(found)} wheels for {target.id}: "
            + ", ".join(wheel.name for wheel in found),
            fix="say which with --wheel FILE",
        )
    return found[0]


def wheels_for(
    targets: Sequence[Target], *, given: str, dist: str, own: OwnSupply
) -> list[tuple[Target, Path]]:
    """Return each target with its wheel, as `wheel_for` finds it.

    Raises:
        NothingSelectedError, ConfigError: some have none or several; what is wrong is told of all.
    """
    found, errors = [], []
    for target in targets:
        try:
            found.append((target, wheel_for(target, given=given, dist=dist, own=own.of(target))))
        except (NothingSelectedError, ConfigError) as error:
            errors.append(error)
    if len(errors) > 1 and not given:
        kind = type(errors[0])
        fixes = " && ".join(dict.fromkeys(error.fix for error in errors))
        raise kind("; ".join(error.what for error in errors), fix=fixes)
    if errors:
        raise errors[0]
    return found


_PLACES = {"--sysroot": "DIR", "--cuda-home": "DIR", "--torch-wheel": "FILE"}


def _words(target: Target) -> str:
    fat = " --fat" if len(target.code) > 1 else ""
    return f"--arch '{target.arch_list}'{fat}" if target.code else "--cpu-only"

"""From a task's options to targets and wheels; deploy.yaml answers what is not given."""

from pathlib import Path

from jetship.errors import ConfigError, NothingSelectedError
from jetship.pin import pin_of
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import Deployment, load_deployment
from jetship.targets.model import Target
from jetship.targets.resolve import DEFAULT_PLATFORM, resolve

DEPLOY_FILE = Path("deploy.yaml")

ARCH_HELP = "compute capability of the GPU, such as 6.2 (TX2); several: 6.2,7.2 or '6.2;7.2+PTX'"
PLATFORM_HELP = f"what is installed on the board (default: {DEFAULT_PLATFORM}); see `targets`"
FAT_HELP = "one wheel with the device code of all archs, instead of a wheel each"
DEPLOY_HELP = f"the file that describes targets, image and fleet (default: {DEPLOY_FILE})"
DIST_HELP = "folder of the finished wheels (default: dist)"
JSON_HELP = "print one JSON document on stdout"


def targets_of(
    catalog: Catalog, *, arch: str | None, platform: str, fat: bool, deploy: str
) -> tuple[Target, ...]:
    """Return the targets that the options name, or those of deploy.yaml.

    Raises:
        ConfigError: the options or deploy.yaml name something impossible, or neither is there.
    """
    if arch is not None:
        return resolve(catalog, arch=arch, platform=platform or DEFAULT_PLATFORM, fat=fat)
    if platform or fat:
        raise ConfigError(
            "--platform and --fat go with --arch", fix="add --arch, such as --arch 6.2"
        )
    if not Path(deploy).is_file():
        raise ConfigError(
            f"no target: --arch is not given and there is no {deploy}",
            fix="name a compute capability, such as --arch 6.2",
        )
    return load_deployment(Path(deploy), catalog).resolve_targets(catalog)


def deployment_of(catalog: Catalog, deploy: str) -> Deployment | None:
    """Return deploy.yaml, or None where there is none.

    Raises:
        ConfigError: it is there and wrong.
    """
    path = Path(deploy)
    if path.is_file():
        return load_deployment(path, catalog)
    if path != DEPLOY_FILE:
        raise ConfigError(f"{deploy} is no file", fix="name a deploy.yaml with --deploy FILE")
    return None


def project_folder(catalog: Catalog, given: str, deploy: str) -> Path:
    """Return the project: the one that is given, deploy.yaml's, or the current folder."""
    if given:
        return Path(given)
    deployment = deployment_of(catalog, deploy)
    return Path(deploy).parent / deployment.project if deployment else Path()


def wheel_for(target: Target, *, given: str, dist: str) -> Path:
    """Return the wheel that is given, or the one in `dist` that was built for the target.

    Raises:
        NothingSelectedError: there is none.
        ConfigError: there are several.
    """
    if given:
        return Path(given)
    wheels = sorted(Path(dist).glob("*.whl"))
    pins = [(wheel, pin_of(wheel)) for wheel in wheels]
    found = [wheel for wheel, pin in pins if pin is not None and pin.target == target.id]
    if not found:
        raise NothingSelectedError(
            f"{dist}/ has no wheel for {target.id}",
            fix=f"invoke build --arch '{target.arch_list}' --platform {target.platform.name}",
        )
    if len(found) > 1:
        raise ConfigError(
            f"{dist}/ has {len(found)} wheels for {target.id}: "
            + ", ".join(wheel.name for wheel in found),
            fix="say which with --wheel FILE",
        )
    return found[0]

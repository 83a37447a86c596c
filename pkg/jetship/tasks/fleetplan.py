"""From the options of the fleet's tasks to a plan, and to what a rollout works with."""

import contextlib
import re
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import docker

from jetship import console
from jetship.engine import connect
from jetship.errors import ConfigError, JetshipError, NothingSelectedError
from jetship.fleet import model
from jetship.fleet.images import is_proved, pin_image
from jetship.fleet.journal import FOLDER, Journal, Listener, journals, read
from jetship.fleet.layers import LayeredImage, layered_image
from jetship.fleet.link import open_link, this_user
from jetship.fleet.plan import PinnedImage, Plan, PlannedDevice, Setup, make_plan, shortened
from jetship.fleet.sessions import Opener
from jetship.image.container import create_words
from jetship.ssh import Login
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import Deployment, load_fleet
from jetship.targets.device import Address, Device
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Target

JournalOf = Callable[[Listener], Journal]


def journal_folder(deploy: str) -> Path:
    """Return where the journals of a deploy.yaml's rollouts are."""
    return Path(deploy).parent / FOLDER


def refuse_with_resume(**given: str | bool) -> None:
    """Refuse options that a rollout which is resumed has answered already.

    Raises:
        ConfigError: names all of them.
    """
    named = [f"--{name}" for name, value in given.items() if value]
    if named:
        raise ConfigError(
            f"--resume goes on with the plan of the rollout, and {' and '.join(named)} would "
            "change it",
            fix="leave one of them out",
        )


def selected_devices(
    deploy: str, catalog: Catalog, group: str, device: str
) -> tuple[Deployment, tuple[Device, ...]]:
    """Return deploy.yaml and the devices that are meant.

    Raises:
        ConfigError: deploy.yaml is missing or wrong.
        NothingSelectedError: it has no such devices.
    """
    deployment, fleet = load_fleet(Path(deploy), catalog)
    if not fleet.devices:
        raise NothingSelectedError(
            f"{deploy} has no devices",
            fix="add `fleet: {devices: [{name: one, address: user@host, board: orin}]}` to it",
        )
    return deployment, fleet.select(groups=_listed(group), devices=_listed(device))


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def app_of(named: ImagePlan) -> str:
    """Return the name of containers and state on the devices: acme-ops of acme/ops."""
    return re.sub(r"[^a-z0-9]+", "-", named.repository.lower())


def targets_of_devices(devices: Sequence[Device]) -> dict[str, Target]:
    """Return the targets of some devices, by their ids."""
    return {device.target.id: device.target for device in devices}


def health_of(deployment: Deployment, named: ImagePlan) -> model.Health:
    """Return when a container is taken for well, as devices are told it."""
    asked = deployment.health
    return model.Health(
        selftest=named.smoke if asked.selftest else (),
        command=asked.command,
        interval=asked.interval,
        timeout=asked.timeout,
        settle=asked.settle,
    )


def _setups(catalog: Catalog, named: ImagePlan, devices: Sequence[Device]) -> list[Setup]:
    pairs = {(device.target.id, device.board.name): device for device in devices}
    return [
        Setup(target, board, create_words(one.target.platform, one.board, catalog, named),
              named.command)
        for (target, board), one in pairs.items()
    ]  # fmt: skip


def pinned_images(
    client: docker.DockerClient,
    named: ImagePlan,
    devices: Sequence[Device],
    *,
    wanted: str,
    dist: Path,
) -> list[PinnedImage]:
    """Return an image for each target of the devices.

    Raises:
        JetshipError: as `pin_image`.
    """
    return [
        pin_image(client, named, target, wanted=wanted, dist=dist)
        for target in targets_of_devices(devices).values()
    ]


def plan_of(
    catalog: Catalog,
    deployment: Deployment,
    named: ImagePlan,
    devices: Sequence[Device],
    images: Sequence[PinnedImage],
) -> Plan:
    """Return the plan of a rollout of these images."""
    return make_plan(
        app=app_of(named),
        devices=devices,
        images=images,
        setups=_setups(catalog, named, devices),
        health=health_of(deployment, named),
        strategy=deployment.strategy,
    )


def dry_plan(
    catalog: Catalog,
    deployment: Deployment,
    named: ImagePlan,
    devices: Sequence[Device],
    *,
    wanted: str,
    dist: Path,
) -> tuple[Plan, dict[str, str]]:
    """Return the plan as far as there are images for it, and by target why there is none."""
    images: list[PinnedImage] = []
    lacking: dict[str, str] = {}
    store = Store(default_root())
    for target in targets_of_devices(devices).values():
        try:
            with contextlib.closing(connect()) as client:
                found = pin_image(client, named, target, wanted=wanted, dist=dist)
        except JetshipError as error:
            lacking[target.id] = f"{error.what}; {error.fix}"
            continue
        images.append(found)
        if not is_proved(found, target, store):
            console.note(f"{found.name} is not checked yet; `invoke deploy` does that")
    return plan_of(catalog, deployment, named, devices, images), lacking


def beginning(folder: Path, plan: Plan) -> JournalOf:
    """Return what begins the journal of a plan, for whoever is to be told of its events."""
    return lambda told: Journal.begin(folder, plan.to_json(), by=this_user(), told=told)


def plan_to(
    to: str, folder: Path, deployment: Deployment, devices: Sequence[Device]
) -> Plan | None:
    """Return the plan by which the images of a former rollout go out again.

    None where this machine has no journal of it: then only devices whose previous release it is
    can go back to it.

    Raises:
        ConfigError: it brought no images, or none to some of the devices.
    """
    path = next((path for path in journals(folder) if path.stem == to), None)
    if path is None:
        known = [path.stem for path in journals(folder)]
        console.note(f"{folder} has no rollout {to} (it has {shortened(known) or 'none'})")
        return None
    former = Plan.from_json(read(path).plan)
    if former.action == "rollback":
        raise ConfigError(f"{to} was going back itself", fix="name a rollout that brought images")
    pairs = {(setup.target, setup.board) for setup in former.setups}
    strange = [one.name for one in devices if (one.target.id, one.board.name) not in pairs]
    if strange:
        raise ConfigError(
            f"{to} had no image for {shortened(strange)}",
            fix="name the devices that are meant with --device or --group",
        )
    return make_plan(
        app=former.app,
        devices=devices,
        images=former.images,
        setups=former.setups,
        health=former.health,
        strategy=deployment.strategy,
    )


def opener_for(app: str, release: Callable[[PlannedDevice], str]) -> Opener:
    """Return what opens sessions with devices.

    Args:
        app: names the containers and the state there.
        release: what the lock of a device says meanwhile.
    """

    def opener(device: PlannedDevice) -> model.Link:
        login = Login(
            Address.parse(device.address),
            Path(device.identity) if device.identity else None,
            Path(device.known_hosts) if device.known_hosts else None,
            device.python,
        )
        return open_link(login, app=app, release=release(device), state=device.state)

    return opener


def layers_for(store: Store) -> Callable[[str], LayeredImage]:
    """Return what gives an image's layers; each is made once, and others wait for it."""
    made: dict[str, LayeredImage] = {}
    lock = threading.Lock()

    def layers(image: str) -> LayeredImage:
        with lock:
            if image not in made:
                with contextlib.closing(connect()) as client:
                    made[image] = layered_image(client, image, store)
            return made[image]

    return layers

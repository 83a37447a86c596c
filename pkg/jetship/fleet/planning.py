"""What is asked for with a deploy.yaml, and the plans that come of it."""

import contextlib
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jetship import console
from jetship.engine import connect
from jetship.errors import ConfigError, JetshipError
from jetship.fleet import model
from jetship.fleet.images import pin_image, pushed
from jetship.fleet.journal import FOLDER, SUFFIX, journals, read, rollout_named
from jetship.fleet.plan import PinnedImage, Plan, Setup, make_plan, plan_back, rollout_of, shortened
from jetship.image.container import create_words
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import Deployment
from jetship.targets.device import Device
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Target


@dataclass(frozen=True)
class Request:
    """What is asked for.

    Args:
        catalog: the known boards and platforms.
        file: deploy.yaml.
        deployment: what it says.
        named: its `image`.
        devices: those of the fleet that are meant.
    """

    catalog: Catalog
    file: Path
    deployment: Deployment
    named: ImagePlan
    devices: tuple[Device, ...]

    @property
    def app(self) -> str:
        """The name of containers and state on the devices: acme-ops of acme/ops."""
        return re.sub(r"[^a-z0-9]+", "-", self.named.repository.lower())

    @functools.cached_property
    def targets(self) -> Mapping[str, Target]:
        """The targets of the devices, by their ids."""
        return {device.target.id: device.target for device in self.devices}

    @property
    def health(self) -> model.Health:
        """When a container is taken for well, as devices are told it."""
        asked = self.deployment.health
        return model.Health(
            selftest=self.named.smoke if asked.selftest else (),
            command=asked.command,
            interval=asked.interval,
            timeout=asked.timeout,
            settle=asked.settle,
        )

    @property
    def setups(self) -> tuple[Setup, ...]:
        """How containers are made, for each target and board that the devices have."""
        pairs = {(device.target.id, device.board.name): device for device in self.devices}
        return tuple(
            Setup(
                target,
                board,
                create_words(one.target.platform, one.board, self.catalog, self.named),
                self.named.command,
            )
            for (target, board), one in pairs.items()
        )

    def plan(self, images: tuple[PinnedImage, ...]) -> Plan:
        """Return the plan by which these images go out."""
        return make_plan(
            app=self.app,
            devices=self.devices,
            images=images,
            setups=self.setups,
            health=self.health,
            strategy=self.deployment.strategy,
        )


def plan_deploy(
    request: Request, *, wanted: str, dist: Path, prove: Callable[[PinnedImage, Target], None]
) -> Plan:
    """Return the plan by which an image of each target goes out.

    Args:
        request: what is asked for.
        wanted: tag or version of the images; "": those of `dist`.
        dist: the folder of the finished wheels.
        prove: makes sure that what is in an image may go out.

    Raises:
        JetshipError: as `pin_image`, `prove` and `pushed`.
    """
    with contextlib.closing(connect()) as client:
        images = [
            pin_image(client, request.named, target, wanted=wanted, dist=dist)
            for target in request.targets.values()
        ]
        for image in images:
            prove(image, request.targets[image.target])
        if request.deployment.strategy.transfer == "registry":
            images = [replace(one, reference=pushed(client, one, request.named)) for one in images]
    return request.plan(tuple(images))


def plan_dry(
    request: Request, *, wanted: str, dist: Path
) -> tuple[Plan, Mapping[str, JetshipError]]:
    """Return the plan as far as there are images for it, and by target why there is none."""
    images: list[PinnedImage] = []
    lacking: dict[str, JetshipError] = {}
    try:
        client = connect()
    except JetshipError as error:
        lacking = dict.fromkeys(request.targets, error)
        return request.plan(()), lacking
    with contextlib.closing(client):
        for target in request.targets.values():
            try:
                images.append(pin_image(client, request.named, target, wanted=wanted, dist=dist))
            except JetshipError as error:
                lacking[target.id] = error
    return request.plan(tuple(images)), lacking


def cannot_start(lacking: Mapping[str, JetshipError]) -> JetshipError | None:
    """Return the error that a rollout would begin and end with, of the kind of the first."""
    if not lacking:
        return None
    why = [
        f"{target}: {error.what}" + (f"; {error.why}" if error.why else "")
        for target, error in lacking.items()
    ]
    fixes = dict.fromkeys(error.fix for error in lacking.values() if error.fix)
    kind = type(next(iter(lacking.values())))
    return kind(
        f"the rollout cannot start: there is no image for {shortened([*lacking])}",
        why="\n       ".join(why),
        fix="\n       ".join(fixes),
    )


def plan_rollback(request: Request, *, to: str) -> Plan:
    """Return the plan by which devices go back.

    Args:
        request: what is asked for.
        to: a rollout: its images go out again where this machine has its journal; else devices
            whose previous release it is go back to it. "": each to what it had before.

    Raises:
        ConfigError: `to` is no release; that rollout brought no images, or none to some of the
            devices.
    """
    to = rollout_named(to) if to else ""
    former = _plan_of(to, journal_folder(request.file)) if to else None
    if former is None:
        return plan_back(
            app=request.app,
            devices=request.devices,
            health=request.health,
            strategy=request.deployment.strategy,
            to=to,
        )
    if former.action == "rollback":
        raise ConfigError(f"{to} was going back itself", fix="name a rollout that brought images")
    pairs = {(setup.target, setup.board) for setup in former.setups}
    strange = [one.name for one in request.devices if (one.target.id, one.board.name) not in pairs]
    if strange:
        raise ConfigError(
            f"{to} had no image for {shortened(strange)}",
            fix="name the devices that are meant with --device or --group",
        )
    return make_plan(
        app=former.app,
        devices=request.devices,
        images=former.images,
        setups=former.setups,
        health=former.health,
        strategy=request.deployment.strategy,
    )


def _plan_of(rollout: str, folder: Path) -> Plan | None:
    paths = {path.stem: path for path in journals(folder)}
    if rollout in paths:
        return Plan.from_json(read(paths[rollout]).plan)
    console.note(f"{folder} has no rollout {rollout} (it has {shortened([*paths]) or 'none'})")
    return None


def names_of_images(folder: Path) -> Callable[[model.Installed], str]:
    """Return what says how people call the image of a release, by the journals of a folder.

    A device knows its image by its id alone. "" is said of what no rollout of this machine brought.
    """

    @functools.cache
    def names(rollout: str) -> Mapping[str, str]:
        try:
            plan = Plan.from_json(read(folder / f"{rollout_named(rollout)}{SUFFIX}").plan)
        except ConfigError:
            return {}
        return {image.id: image.name for image in plan.images}

    return lambda installed: names(rollout_of(installed.release)).get(installed.image, "")


def journal_folder(deploy: Path) -> Path:
    """Return where the journals of a deploy.yaml's rollouts are."""
    return deploy.parent / FOLDER

"""The tasks `deploy`, `status` and `rollback`."""

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from invoke.context import Context

from jetship import console
from jetship.errors import ConfigError, JetshipError, NothingSelectedError
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import load_fleet
from jetship.tasks.command import Reported, command
from jetship.tasks.request import (
    DEPLOY_FILE,
    DEPLOY_HELP,
    DIST_HELP,
    JSON_HELP,
    Given,
    Known,
    required_image,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jetship.fleet.journal import State
    from jetship.fleet.plan import Plan
    from jetship.fleet.planning import Request

DRY_HELP = "only print which device would get what and when; no device is asked"
SELECT_HELP = {
    "group": "only devices of this group, or of several: A,B (default: all devices)",
    "device": "only this device, or these: A,B; beside those of --group",
    "deploy": DEPLOY_HELP,
    "json": JSON_HELP,
}


@command(
    records={"known": Known},
    help={
        **SELECT_HELP,
        "image": "the tag of the images, or the version of their wheels, where the engine has "
        "several of a target (default: those of the wheels in dist/)",
        "dist": DIST_HELP,
        "dry": DRY_HELP,
        "resume": "go on with the newest rollout of this deploy.yaml, which did not end",
    },
)
def deploy(
    _: Context,
    *,
    known: Known,
    group: str = "",
    device: str = "",
    image: str = "",
    deploy: str = str(DEPLOY_FILE),
    dist: str = "dist",
    dry: bool = False,
    resume: bool = False,
    json: bool = False,
) -> None:
    """Bring the images to the devices of deploy.yaml: canaries, then waves, until too many fail.

    All devices are asked first, and get nothing that cannot run there. Each starts the new
    container, tests it on its own GPU, and goes back to the old one by itself where that fails.
    What happens stands in .jetship/rollouts beside deploy.yaml. Run again, it leaves alone the
    devices that run the image already.

        invoke deploy --dry
        invoke deploy --group lab
        invoke deploy --resume

    Exit status 9: not all devices have the image; says which and why. With --dry, that of a
    rollout which cannot start.
    """
    from jetship.fleet import planning, running

    catalog = known.catalog(deploy)
    store = Store(default_root())
    folder = planning.journal_folder(Path(deploy))
    if resume:
        _refuse_with_resume(group=group, device=device, image=image)
        if dry:
            _show_resumed(*running.would_resume(folder), json=json)
            return
        _tell(*running.resume(folder, catalog, store), json=json)
        return
    request = _request(catalog, deploy, group, device)
    if dry:
        _show(*planning.plan_dry(request, wanted=image, dist=Path(dist)), json=json)
        return
    from jetship.fleet.proof import require_proved

    own = Given().supply(catalog, deploy)

    def make() -> "Plan":
        return planning.plan_deploy(
            request,
            wanted=image,
            dist=Path(dist),
            prove=lambda one, target: require_proved(one, target, catalog, store, own),
        )

    _tell(*running.begin(make, folder, catalog, store), json=json)


@command(records={"known": Known}, help={**SELECT_HELP, "watch": "ask again and again"})
def status(
    _: Context,
    *,
    known: Known,
    group: str = "",
    device: str = "",
    deploy: str = str(DEPLOY_FILE),
    watch: bool = False,
    json: bool = False,
) -> None:
    """Ask the devices of deploy.yaml what they run.

    Needs neither image nor engine here, and changes nothing there. A device that a rollout works on
    says only that.

        invoke status
        invoke status --group lab --watch

    Exit status 9: a device was not reached, or does not run what was rolled out to it; says which
    and why. One that went back to its old container runs.
    """
    from jetship.fleet import tables
    from jetship.fleet.plan import planned
    from jetship.fleet.planning import journal_folder, names_of_images
    from jetship.fleet.running import opener_for
    from jetship.fleet.status import ask_all, failure

    request = _request(known.catalog(deploy), deploy, group, device)
    opener = opener_for(request.app, lambda _: "", look=True)
    devices = [planned(one) for one in request.devices]
    ask = functools.partial(
        ask_all, devices, opener, name_of=names_of_images(journal_folder(Path(deploy)))
    )
    if watch:
        if json or not console.stdout.is_terminal:
            raise ConfigError("--watch draws on a terminal", fix="leave it out, or --json")
        tables.watch_status(ask)
        return
    if json:
        answers = ask()
        console.emit_json({"devices": [one.to_json() for one in answers]})
    else:
        answers = tables.show_status(devices, ask)
    error = failure(answers)
    if error is not None:
        raise Reported(error) if json else error


@command(
    records={"known": Known},
    help={
        **SELECT_HELP,
        "to": "a rollout, such as 20261130T081500Z: the images that it brought (default: what "
        "each device had before)",
        "dry": DRY_HELP,
    },
)
def rollback(
    _: Context,
    *,
    known: Known,
    group: str = "",
    device: str = "",
    to: str = "",
    deploy: str = str(DEPLOY_FILE),
    dry: bool = False,
    json: bool = False,
) -> None:
    """Bring devices back to what they had before, or to what a former rollout brought.

    Each device starts its previous container again, tests it as it was tested then, and keeps the
    present one where that fails. With --to, the images of that rollout go out once more, by
    its plan, and may be sent again. Run again, it leaves alone what went back already.

        invoke rollback --device tx2
        invoke rollback --to 20261130T081500Z

    Exit status 9: not all devices went back; says which and why.
    """
    from jetship.fleet import planning, running

    catalog = known.catalog(deploy)
    request = _request(catalog, deploy, group, device)
    plan = planning.plan_rollback(request, to=to)
    if dry:
        _show(plan, {}, json=json)
        return
    folder = planning.journal_folder(Path(deploy))
    _tell(*running.begin(lambda: plan, folder, catalog, Store(default_root())), json=json)


def _refuse_with_resume(**given: str | bool) -> None:
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


def _request(catalog: Catalog, deploy: str, group: str, device: str) -> "Request":
    """Return what is asked for with deploy.yaml.

    Raises:
        ConfigError: it is missing or wrong, or says nothing of images.
        NothingSelectedError: it has no such devices.
    """
    from jetship.fleet.planning import Request

    deployment, fleet = load_fleet(Path(deploy), catalog)
    if not fleet.devices:
        raise NothingSelectedError(
            f"{deploy} has no devices",
            fix="add `fleet: {devices: [{name: one, address: user@host, board: orin}]}` to it",
        )
    devices = fleet.select(groups=_listed(group), devices=_listed(device))
    named = required_image(deployment, deploy)
    return Request(catalog, Path(deploy), deployment, named, devices)


def _listed(names: str) -> list[str]:
    return [name.strip() for name in names.split(",") if name.strip()]


def _show(plan: "Plan", lacking: "Mapping[str, JetshipError]", *, json: bool) -> None:
    """Print a plan.

    Raises:
        JetshipError: a target has no image, so that the rollout could not start.
    """
    from jetship.fleet.planning import cannot_start
    from jetship.fleet.tables import plan_text

    if json:
        said = {target: f"{error.what}; {error.fix}" for target, error in lacking.items()}
        console.emit_json({"plan": plan.to_json(), "lacking": said})
    else:
        console.emit(plan_text(plan))
    error = cannot_start(lacking)
    if error is not None:
        raise Reported(error) if json else error


def _show_resumed(plan: "Plan", state: "State", *, json: bool) -> None:
    """Print what a resume would do."""
    from jetship.fleet.outcome import document
    from jetship.fleet.tables import plan_text

    if json:
        console.emit_json({"plan": plan.to_json(), "so_far": document(plan, state)})
    else:
        console.emit(plan_text(plan, state))


def _tell(plan: "Plan", state: "State", *, json: bool) -> None:
    """Say how a rollout ended.

    Raises:
        RolloutError: not all devices have what they should; lists the others.
    """
    from jetship.fleet.outcome import document, failure, summary

    error = failure(plan, state)
    if json:
        console.emit_json(document(plan, state))
    if error is not None:
        raise Reported(error) if json else error
    console.note(summary(plan, state))

"""The tasks `deploy`, `status` and `rollback`."""

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from invoke.context import Context
from rich.live import Live
from rich.table import Table
from rich.text import Text

from jetship import console
from jetship.check.text import plain
from jetship.engine import connect
from jetship.errors import ConfigError, RolloutError
from jetship.fleet.alone import alone
from jetship.fleet.images import pushed, require_proved
from jetship.fleet.journal import Journal, Standing, State, newest_unfinished, read, unfinished
from jetship.fleet.link import this_user
from jetship.fleet.onedevice import OneDevice
from jetship.fleet.plan import Plan, PlannedDevice, plan_back, planned, shortened
from jetship.fleet.rollout import Rollout
from jetship.fleet.sessions import Opener, Sessions
from jetship.fleet.status import HEAD, Answer, ask_all
from jetship.fleet.watching import watching
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.tasks.command import Reported, command
from jetship.tasks.fleetplan import (
    JournalOf,
    app_of,
    beginning,
    dry_plan,
    health_of,
    journal_folder,
    layers_for,
    opener_for,
    pinned_images,
    plan_of,
    plan_to,
    refuse_with_resume,
    selected_devices,
    targets_of_devices,
)
from jetship.tasks.request import (
    DEPLOY_FILE,
    DEPLOY_HELP,
    DIST_HELP,
    JSON_HELP,
    Given,
    Known,
    required_image,
)

WATCH_SECONDS = 5
SHOWN_SKIPPED = 20
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
        "dry": "only print which device would get what and when; no device is asked",
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

    Exit status 9: not all devices have the image; says which and why.
    """
    catalog = known.catalog(deploy)
    folder = journal_folder(deploy)
    if resume:
        refuse_with_resume(group=group, device=device, image=image, dry=dry)
        with alone(folder):
            path = unfinished(folder)
            plan = Plan.from_json(read(path).plan)
            _run(
                plan,
                catalog,
                lambda told: Journal.reopen(path, by=this_user(), told=told),
                json=json,
            )
        return
    deployment, devices = selected_devices(deploy, catalog, group, device)
    named = required_image(deployment, deploy)
    if dry:
        plan, lacking = dry_plan(catalog, deployment, named, devices, wanted=image, dist=Path(dist))
        _show_plan(plan, lacking, json=json)
        return
    with alone(folder):
        if former := newest_unfinished(folder):
            console.note(
                f"rollout {former} did not end, and is left as it is; `invoke deploy --resume` "
                "would have gone on with it"
            )
        client = connect()
        with contextlib.closing(client):
            images = pinned_images(client, named, devices, wanted=image, dist=Path(dist))
            own = Given().supply(catalog, deploy)
            targets = targets_of_devices(devices)
            for one in images:
                require_proved(one, targets[one.target], catalog, Store(default_root()), own)
            if deployment.strategy.transfer == "registry":
                images = [replace(one, reference=pushed(client, one, named)) for one in images]
        plan = plan_of(catalog, deployment, named, devices, images)
        _run(plan, catalog, beginning(folder, plan), json=json)


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

    Needs neither image nor engine here. A device that a rollout works on says only that.

        invoke status
        invoke status --group lab --watch
    """
    catalog = known.catalog(deploy)
    deployment, devices = selected_devices(deploy, catalog, group, device)
    opener = opener_for(app_of(required_image(deployment, deploy)), lambda _: "")
    asked = [planned(one) for one in devices]
    if watch:
        _watch(asked, opener, json=json)
        return
    answers = ask_all(asked, opener)
    if json:
        console.emit_json({"devices": [one.to_json() for one in answers]})
    elif console.stdout.is_terminal:
        console.stdout.print(_table(answers))
    else:
        console.emit(plain(HEAD, [one.row() for one in answers]))


@command(
    records={"known": Known},
    help={
        **SELECT_HELP,
        "to": "a rollout, such as 20261130T081500Z: the images that it brought (default: what "
        "each device had before)",
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
    catalog = known.catalog(deploy)
    folder = journal_folder(deploy)
    deployment, devices = selected_devices(deploy, catalog, group, device)
    plan = plan_to(to, folder, deployment, devices) if to else None
    if plan is None:
        plan = plan_back(
            app=app_of(required_image(deployment, deploy)),
            devices=devices,
            health=health_of(deployment, required_image(deployment, deploy)),
            strategy=deployment.strategy,
            to=to,
        )
    with alone(folder):
        _run(plan, catalog, beginning(folder, plan), json=json)


def _run(plan: Plan, catalog: Catalog, journal_of: JournalOf, *, json: bool) -> None:
    """Roll out, and say how it ended.

    Raises:
        RolloutError: not all devices have what they should.
        KeyboardInterrupt: somebody interrupted it.
    """
    with watching(plan) as view:
        journal = journal_of(view.told)
        rollout = journal.state.release
        console.step(f"rollout {rollout} to {_devices(len(plan.devices))}")

        def release(device: PlannedDevice) -> str:
            return rollout if plan.action == "rollback" else plan.release_of(device, rollout)

        sessions = Sessions(opener_for(plan.app, release), release)
        layers = layers_for(Store(default_root()))
        work = OneDevice(plan, journal, sessions, layers, catalog, view)
        try:
            state = Rollout(plan, journal, sessions, work, view.confirm).run()
        except KeyboardInterrupt:
            _tell_interrupted(plan, journal.state)
            raise
    _tell(plan, state, json=json)


def _tell_interrupted(plan: Plan, state: State) -> None:
    under_way = [
        name
        for name, one in state.devices.items()
        if one.phase == "returning" or (one.phase == "swapping" and one.result is None)
    ]
    left = sum(one.result is None for one in state.devices.values()) - len(under_way)
    said = f"; {shortened(under_way)} end by themselves what they have begun" if under_way else ""
    console.warn(
        f"rollout {state.release} was interrupted: {_devices(max(left, 0))} of "
        f"{len(plan.devices)} not begun{said}; `invoke deploy --resume` goes on"
    )


def _tell(plan: Plan, state: State, *, json: bool) -> None:
    """Say how a rollout ended.

    Raises:
        RolloutError: not all devices have what they should; lists the others.
    """
    if json:
        console.emit_json(_document(plan, state))
    wrong = {name: one for name, one in state.devices.items() if one.result not in plan.good}
    what = "the image" if plan.action == "deploy" else "what they had before"
    good = f"{len(plan.devices) - len(wrong)} of {_devices(len(plan.devices))}"
    if not wrong:
        console.note(f"rollout {state.release}: {good} have {what}")
        return
    error = RolloutError(
        f"rollout {state.release}: {good} have {what}",
        why="\n       ".join(_reasons(state, wrong)),
        fix="mend what is named and run it again: devices that have it are left alone; "
        "`invoke status` shows what each runs",
    )
    raise Reported(error) if json else error


def _reasons(state: State, wrong: Mapping[str, Standing]) -> Iterator[str]:
    if state.stopped:
        yield f"it was stopped: {state.stopped}"
    for name, one in wrong.items():
        if one.result is not None:
            yield f"{name} {one.result}" + (f": {one.reason}" if one.reason else "")
    skipped = [name for name, one in wrong.items() if one.result is None]
    if skipped:
        yield f"not begun: {shortened(skipped, SHOWN_SKIPPED)}"


def _document(plan: Plan, state: State) -> dict[str, Any]:
    waves = {name: number for number, wave in enumerate(plan.waves) for name in wave.devices}
    images = {image.target: image for image in plan.images}
    rows = []
    for device in plan.devices:
        one, image = state.devices[device.name], images.get(device.target)
        rows.append(
            {
                "name": device.name,
                "address": device.address,
                "board": device.board,
                "target": device.target,
                "image": image.name if image else None,
                "image_id": image.id if image else None,
                "wave": waves[device.name],
                "result": one.result or "not begun",
                "reason": one.reason or None,
                "logs": one.logs or None,
                "seconds": one.seconds,
                "sent_bytes": one.sent_bytes,
            }
        )
    return {
        "release": state.release,
        "action": plan.action,
        "outcome": state.ended,
        "stopped": state.stopped or None,
        "devices": rows,
    }


def _devices(count: int) -> str:
    return f"{count} device{'' if count == 1 else 's'}"


def _watch(devices: Sequence[PlannedDevice], opener: Opener, *, json: bool) -> None:
    """Ask again and again, until somebody has seen enough.

    Raises:
        ConfigError: nobody could see it.
    """
    if json or not console.stdout.is_terminal:
        raise ConfigError("--watch draws on a terminal", fix="leave it out, or --json")
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(_table(ask_all(devices, opener)), console=console.stdout) as live,
    ):
        while True:
            time.sleep(WATCH_SECONDS)
            live.update(_table(ask_all(devices, opener)))


def _table(answers: Sequence[Answer]) -> Table:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for name in HEAD:
        table.add_column(Text(name), overflow="fold")
    for one in answers:
        style = "red" if one.facts is None else "" if one.well else "yellow"
        table.add_row(*(Text(cell, style) for cell in one.row()))
    return table


def _show_plan(plan: Plan, lacking: dict[str, str], *, json: bool) -> None:
    if json:
        console.emit_json({"plan": plan.to_json(), "lacking": lacking})
        return
    names = {image.target: image.name for image in plan.images}
    rows = [
        [
            _wave_name(plan, number),
            device.name,
            device.address,
            device.board,
            device.target,
            names.get(device.target, "no image"),
        ]
        for number, wave in enumerate(plan.waves)
        for device in (plan.by_name[name] for name in wave.devices)
    ]
    console.emit(plain(["wave", "device", "address", "board", "target", "image"], rows))
    for target, why in lacking.items():
        console.warn(f"{target} has no image to roll out: {why}")


def _wave_name(plan: Plan, number: int) -> str:
    return "canary" if plan.waves[number].kind == "canary" else str(number)

"""How a rollout ended, for people and for machines."""

from collections.abc import Iterator, Mapping
from typing import Any

from jetship.errors import RolloutError
from jetship.fleet.journal import Standing, State
from jetship.fleet.plan import Plan, count_of, shortened

SHOWN_SKIPPED = 20


def summary(plan: Plan, state: State) -> str:
    """Return how many devices have what they should."""
    what = "the image" if plan.action == "deploy" else "what they had before"
    good = sum(one.result in plan.good for one in state.devices.values())
    return f"rollout {state.release}: {good} of {count_of(len(plan.devices))} have {what}"


def failure(plan: Plan, state: State) -> RolloutError | None:
    """Return the error that lists the devices which do not have what they should, if any."""
    wrong = {name: one for name, one in state.devices.items() if one.result not in plan.good}
    if not wrong:
        return None
    return RolloutError(
        summary(plan, state),
        why="\n       ".join(_reasons(state, wrong)),
        fix="mend what is named and run it again: devices that have it are left alone; "
        "`invoke status` shows what each runs",
    )


def _reasons(state: State, wrong: Mapping[str, Standing]) -> Iterator[str]:
    if state.stopped:
        yield f"it was stopped: {state.stopped}"
    for name, one in wrong.items():
        if one.result is not None:
            yield f"{name} {one.result}" + (f": {one.reason}" if one.reason else "")
    skipped = [name for name, one in wrong.items() if one.result is None]
    if skipped:
        yield f"not begun: {shortened(skipped, SHOWN_SKIPPED)}"


def document(plan: Plan, state: State) -> dict[str, Any]:
    """Return it as JSON has it."""
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


def told_interrupted(plan: Plan, state: State) -> str:
    """Return what is left to do of a rollout that somebody interrupted."""
    under_way = [
        name
        for name, one in state.devices.items()
        if one.phase == "returning" or (one.phase == "swapping" and one.result is None)
    ]
    left = sum(one.result is None for one in state.devices.values()) - len(under_way)
    said = f"; {shortened(under_way)} end by themselves what they have begun" if under_way else ""
    return (
        f"rollout {state.release} was interrupted: {count_of(max(left, 0))} of "
        f"{len(plan.devices)} not begun{said}; `invoke deploy --resume` goes on"
    )

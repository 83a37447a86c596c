"""How a rollout ended, for people and for machines."""

from collections.abc import Iterator, Mapping
from typing import Any

from jetship.errors import RolloutError
from jetship.fleet.journal import Result, Standing, State
from jetship.fleet.plan import Plan, count_of, shortened

SHOWN_SKIPPED = 20
# What can be done where a device ended so; {names} is given as --device takes it.
_OF_DEPLOY: Mapping[Result | None, str] = {
    "broken": "runs nothing, and running this again may not help: `invoke status --device "
    "{names}`, then `invoke rollback --to RELEASE --device {names}`, or by hand as docs/rollout.md "
    "says",
    "unknown": "ends by itself: `invoke status --device {names}` asks what came of it",
    "rolled-back": "runs the old image. Unless the device itself was to blame, the same image "
    "fails there again: mend image or `health` first",
    "refused": "does not get this image as it is: mend what is named, or leave it out (--device, "
    "--group); then run it again",
    "unreachable": "was not reached: mend the way to it, then run it again",
    "failed": "runs the old image: mend what is named, then run it again; "
    "what was sent stays there",
    "reverted": "went back with the others; it comes with the next run",
    None: "was not begun; it comes with the next run",
}
_OF_ROLLBACK: Mapping[Result | None, str] = {
    **_OF_DEPLOY,
    "rolled-back": "keeps what it has, since what it had before is not well there any more: "
    "`invoke rollback --to RELEASE --device {names}` brings a former release anew",
    "refused": "has not what it should go back to, and running this again does not help: "
    "`invoke rollback --to RELEASE --device {names}` brings a former release anew",
    "failed": "keeps what it has: mend what is named, then run it again",
}


def summary(plan: Plan, state: State) -> str:
    """Return how many devices have what they should."""
    verb, owner = ("has", "it") if len(plan.devices) == 1 else ("have", "they")
    what = "the image" if plan.action == "deploy" else f"what {owner} had before"
    good = sum(one.result in plan.good for one in state.devices.values())
    return f"rollout {state.release}: {good} of {count_of(len(plan.devices))} {verb} {what}"


def failure(plan: Plan, state: State) -> RolloutError | None:
    """Return the error that lists the devices which do not have what they should, if any."""
    wrong = {name: one for name, one in state.devices.items() if one.result not in plan.good}
    if not wrong:
        return None
    return RolloutError(
        summary(plan, state),
        why="\n       ".join(_reasons(state, wrong)),
        fix="\n       ".join(_steps(plan, wrong)),
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


def _steps(plan: Plan, wrong: Mapping[str, Standing]) -> Iterator[str]:
    """Yield what can be done next, a line for each way in which devices ended."""
    texts = _OF_DEPLOY if plan.action == "deploy" else _OF_ROLLBACK
    for result, text in texts.items():
        names = [name for name, one in wrong.items() if one.result == result]
        if names:
            told = text.format(names=",".join(names[:SHOWN_SKIPPED]))
            yield f"{shortened(names)}: {told}"
    yield "devices that have it are left alone"


def document(plan: Plan, state: State) -> dict[str, Any]:
    """Return it as JSON has it."""
    waves = {
        name: plan.wave_number(index)
        for index, wave in enumerate(plan.waves)
        for name in wave.devices
    }
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

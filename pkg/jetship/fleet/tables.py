"""Tables of a plan and of what devices run."""

import contextlib
import time
from collections.abc import Callable, Sequence

from rich.live import Live
from rich.table import Table
from rich.text import Text

from jetship import console
from jetship.check.text import plain
from jetship.fleet.journal import State
from jetship.fleet.plan import Plan, PlannedDevice
from jetship.fleet.status import HEAD, Answer

WATCH_SECONDS = 5


def plan_text(plan: Plan, state: State | None = None) -> str:
    """Return which device gets what, and when, a line each.

    Args:
        plan: of the rollout.
        state: what has become of it so far, where it would go on.
    """
    names = {image.target: image.name for image in plan.images}
    back = f"what it had before{f' ({plan.to})' if plan.to else ''}"
    rows = []
    for index, wave in enumerate(plan.waves):
        title = "canary" if wave.kind == "canary" else str(plan.wave_number(index))
        for name in wave.devices:
            one = plan.by_name[name]
            image = back if plan.action == "rollback" else names.get(one.target, "no image")
            row = [title, name, one.address, one.board, one.target, image]
            rows.append(row if state is None else [*row, _next_of(plan, state, name)])
    head = ["wave", "device", "address", "board", "target", "image"]
    return plain(head if state is None else [*head, "--resume"], rows)


def _next_of(plan: Plan, state: State, device: str) -> str:
    """Return what going on does with a device."""
    one = state.devices[device]
    if one.ordered or one.phase == "returning":
        return "asks what came of its order"
    if state.stopped and plan.strategy.rollback == "all" and one.result == "committed":
        return "takes the image back"
    if one.result is not None:
        return f"leaves it: {one.result}"
    return f"leaves it: {state.stopped}" if state.stopped else "begins with it"


def show_status(
    devices: Sequence[PlannedDevice], ask: Callable[[Callable[[Answer], None]], list[Answer]]
) -> list[Answer]:
    """Ask devices and print what they run; on a terminal each row is drawn when it comes.

    Args:
        devices: that are asked.
        ask: asks them, tells each answer when it comes, and returns all.
    """
    if not console.stdout.is_terminal:
        answers = ask(lambda _: None)
        console.emit(plain(HEAD, [one.row() for one in answers]))
        return answers
    rows = {device.name: Answer(device) for device in devices}
    with Live(_table([*rows.values()]), console=console.stdout) as live:

        def told(answer: Answer) -> None:
            rows[answer.device.name] = answer
            live.update(_table([*rows.values()]))

        return ask(told)


def watch_status(ask: Callable[[], Sequence[Answer]]) -> None:
    """Draw what devices run again and again, until somebody has seen enough."""
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(_table(ask()), console=console.stdout) as live,
    ):
        while True:
            time.sleep(WATCH_SECONDS)
            live.update(_table(ask()))


def _table(answers: Sequence[Answer]) -> Table:
    table = Table(show_edge=False, pad_edge=False, header_style="bold")
    for name in HEAD:
        table.add_column(Text(name), overflow="fold")
    for one in answers:
        style = "red" if one.fault else "" if one.well else "yellow" if one.facts else "dim"
        table.add_row(*(Text(console.readable(cell), style) for cell in one.row()))
    return table

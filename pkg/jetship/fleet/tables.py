"""Tables of a plan and of what devices run."""

import contextlib
import time
from collections.abc import Callable, Sequence

from rich.live import Live
from rich.table import Table
from rich.text import Text

from jetship import console
from jetship.check.text import plain
from jetship.fleet.plan import Plan, PlannedDevice
from jetship.fleet.status import HEAD, Answer

WATCH_SECONDS = 5


def plan_text(plan: Plan) -> str:
    """Return which device gets what, and when, a line each."""
    names = {image.target: image.name for image in plan.images}
    rows = []
    for number, wave in enumerate(plan.waves):
        title = "canary" if wave.kind == "canary" else str(number)
        for name in wave.devices:
            one = plan.by_name[name]
            image = names.get(one.target, "no image")
            rows.append([title, name, one.address, one.board, one.target, image])
    return plain(["wave", "device", "address", "board", "target", "image"], rows)


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

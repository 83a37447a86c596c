"""What people see of a rollout: lines of what has happened, and on a terminal what happens now."""

import contextlib
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

from rich.live import Live
from rich.table import Table
from rich.text import Text

from jetship import console
from jetship.fleet.journal import Event
from jetship.fleet.plan import Plan

REFRESH_PER_SECOND = 4
MOST_ROWS = 20
_STYLES = {
    "committed": "green",
    "already": "green",
    "reverted": "yellow",
    "rolled-back": "yellow",
    "broken": "bold red",
    "unknown": "bold red",
    "refused": "red",
    "unreachable": "red",
    "failed": "red",
}


@dataclass
class _Row:
    what: str
    begin: float = field(default_factory=time.monotonic)
    share: str = ""


class Watching:
    """Shows a rollout: `told` is given its events, the other methods what happens between them."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._rows: dict[str, _Row] = {}
        self._ended: dict[str, str] = {}
        self.live: Live | None = None
        self._lock = threading.Lock()

    def doing(self, device: str, what: str) -> None:
        """Note what a device does now."""
        with self._lock:
            self._rows[device] = _Row(what)
            # One that goes back is at work once more.
            self._ended.pop(device, None)

    def sent(self, device: str, done: int, total: int) -> None:
        """Note how many bytes of how many are there."""
        with self._lock:
            if total and device in self._rows:
                self._rows[device].share = f"{100 * done // total} % of {megabytes(total)}"

    def note(self, device: str, what: str) -> None:
        """Say what is worth knowing of a device."""
        console.note(f"{device}: {what}")

    def told(self, event: Event) -> None:
        """Show an event of the journal."""
        match event["event"]:
            case "wave":
                count = event["devices"]
                number = f" {event['number']}" if event["kind"] == "wave" else ""
                devices = f"{count} device{'' if count == 1 else 's'}"
                console.step(f"{event['kind']}{number}: {devices}")
            case "ended":
                self._end(event)
            case "sent":
                layers = event["layers"]
                sent = f"{layers} layer{'' if layers == 1 else 's'}, {megabytes(event['bytes'])}"
                self.note(event["device"], f"sent {sent}")
            case "stopped":
                console.warn(f"no further device is started: {event['reason']}")
            case _:
                pass

    def _end(self, event: Event) -> None:
        device, result = event["device"], event["result"]
        with self._lock:
            self._rows.pop(device, None)
            self._ended[device] = result
        reason = f": {event['reason']}" if event.get("reason") else ""
        seconds = f" ({event['seconds']:.0f} s)" if event.get("seconds") else ""
        console.stderr.print(
            Text.assemble(f"    {device}: ", (result, _STYLES[result]), seconds, reason)
        )
        if event.get("logs"):
            console.text("\n".join(f"        | {row}" for row in event["logs"].splitlines()))

    def confirm(self, told: str) -> str:
        """Ask whether the next wave may begin, and return why not: "" is a yes."""
        if not (console.stderr.is_terminal and sys.stdin.isatty()):
            return "`pause: confirm` asks before each wave, and there is no terminal to ask on"
        if self.live:
            self.live.stop()
        answer = console.stderr.input(Text(f"{told} [y/N] "))
        if self.live:
            self.live.start()
        yes = answer.strip().lower() in ("y", "yes")
        return "" if yes else f"the answer was {answer.strip() or 'no'}"

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for title in ("device", "", "", ""):
            table.add_column(title)
        with self._lock:
            rows = list(self._rows.items())
            ended = len(self._ended)
        for name, row in rows[:MOST_ROWS]:
            seconds = f"{time.monotonic() - row.begin:.0f} s"
            table.add_row(name, row.what, row.share, seconds)
        more = f", {len(rows) - MOST_ROWS} more at work" if len(rows) > MOST_ROWS else ""
        table.add_row("", Text(f"{ended} of {len(self._plan.devices)} done{more}", "dim"))
        return table


@contextlib.contextmanager
def watching(plan: Plan) -> Iterator[Watching]:
    """Show a rollout below the log while the body runs, where there is a terminal."""
    view = Watching(plan)
    if not console.stderr.is_terminal:
        yield view
        return
    live = Live(view, console=console.stderr, refresh_per_second=REFRESH_PER_SECOND, transient=True)
    with console.live_display(), live:
        view.live = live
        yield view


def megabytes(count: int) -> str:
    """Return a number of bytes for people: "0.3 MB", "12 MB"."""
    size = count / 1e6
    return f"{size:.1f} MB" if size < 10 else f"{size:.0f} MB"

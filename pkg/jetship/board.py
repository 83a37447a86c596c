"""A live table of targets: what each is doing now, while several are built at once."""

import contextlib
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from rich.live import Live
from rich.table import Table

from jetship import console

REFRESH_PER_SECOND = 4


@dataclass
class Row:
    """One target's line; `started` and `ended` are seconds of the monotonic clock."""

    name: str
    doing: str = "waits"
    started: float | None = None
    ended: float | None = None

    @property
    def seconds(self) -> str:
        if self.started is None:
            return ""
        return f"{(self.ended or time.monotonic()) - self.started:.0f} s"


@dataclass
class Board:
    """The rows of the table. Without a terminal nobody sees it, and the lines of the log do."""

    rows: dict[str, Row] = field(default_factory=dict)

    def begin(self, name: str) -> None:
        """Say that work on a target has begun."""
        self.rows[name].started = time.monotonic()

    def doing(self, name: str, what: str) -> None:
        """Say what is being done for a target."""
        self.rows[name].doing = what

    def end(self, name: str, how: str) -> None:
        """Say how work on a target has ended."""
        self.rows[name].doing = how
        self.rows[name].ended = time.monotonic()

    def __rich__(self) -> Table:
        table = Table(box=None, pad_edge=False)
        for title in ("target", "", ""):
            table.add_column(title, justify="left")
        for row in self.rows.values():
            table.add_row(row.name, row.doing, row.seconds)
        return table


@contextlib.contextmanager
def shown(names: Sequence[str]) -> Iterator[Board]:
    """Show a board below the log on a terminal while the body runs, where it has several rows."""
    board = Board({name: Row(name) for name in names})
    if len(names) < 2 or not console.stderr.is_terminal:
        yield board
        return
    with (
        console.live_display(),
        Live(board, console=console.stderr, refresh_per_second=REFRESH_PER_SECOND),
    ):
        yield board

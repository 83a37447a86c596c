"""One row of the results, and how rows come about."""

from typing import NamedTuple, Optional

import torch

from .timing import Timer


class Row(NamedTuple):
    """``us`` is microseconds of a call; ``bytes`` what any implementation must read and write."""

    group: str
    case: str
    contender: str
    mode: str
    us: float
    low: float
    high: float
    bytes: Optional[int]
    note: str


class Bench:
    """What the groups share: a device, a timer, and the rows so far."""

    def __init__(self, device, quick=False):
        # type: (torch.device, bool) -> None
        self.device = device
        self.quick = quick
        self.timer = Timer(device, samples=10 if quick else 30)
        self.rows = []  # type: List[Row]

    def add(self, group, case, contenders, modes, size=None):
        # type: (str, str, Dict[str, Callable[[], object]], List[str], Optional[int]) -> None
        """Time all contenders in all modes; what cannot run is a row that says why."""
        for mode in modes if self.device.type == "cuda" else ["clock"]:
            for name, function in contenders.items():
                self._add_one(group, case, name, function, mode, size)

    def _add_one(self, group, case, name, function, mode, size):
        # type: (str, str, str, Callable[[], object], str, Optional[int]) -> None
        nan = float("nan")
        try:
            time = self.timer.time(function, mode)
            row = Row(group, case, name, mode, time.median, time.low, time.high, size, "")
        except Exception as exc:  # noqa: BLE001  out of memory, not capturable: part of the result
            note = str(exc).split("\n")[0][:120]
            row = Row(group, case, name, mode, nan, nan, nan, size, note)
            if self.device.type == "cuda":
                torch.cuda.synchronize(self.device)
        self.rows.append(row)
        print(_line(row), flush=True)

    def time_of(self, group, case, contender, mode):
        # type: (str, str, str, str) -> float
        found = [
            row.us
            for row in self.rows
            if (row.group, row.case, row.contender, row.mode) == (group, case, contender, mode)
        ]
        return found[0] if found else float("nan")


def _line(row):
    # type: (Row) -> str
    rate = f"{row.bytes / row.us / 1e3:8.0f} GB/s" if row.bytes and row.us == row.us else ""
    return f"{row.group:8} {row.case:34} {row.contender:20} {row.mode:12} {row.us:11.2f} us {rate} {row.note}"


def copy_of(size, device):
    # type: (int, torch.device) -> Callable[[], object]
    """A kernel that reads and writes ``size`` bytes in all: the floor in practice.

    Not Tensor.copy_, which becomes a copy node in a graph, with a speed of its own.
    """
    source = torch.ones(size // 8, device=device)
    target = torch.empty_like(source)
    return lambda: torch.neg(source, out=target)

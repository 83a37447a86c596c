"""One row of the results, and how rows come about."""

import sys
from typing import Callable, NamedTuple, Optional, Tuple

import torch

from .timing import CLOCK, Timer
from .work import Work


class Row(NamedTuple):
    """A measured time. ``us`` is None where there is none, and ``note`` says why.

    ``us`` is microseconds of a call, the median; ``low`` and ``high`` the 10th and 90th of a hundred.
    ``bytes``, ``operations`` and ``instructions`` are those of work.Work. ``op`` names the operator in
    rows that are ours and are to be judged; it is empty in all others.
    """

    group: str
    case: str
    contender: str
    mode: str
    device: str
    us: Optional[float]
    low: Optional[float]
    high: Optional[float]
    bytes: Optional[int] = None
    operations: Optional[float] = None
    instructions: Optional[float] = None
    op: str = ""
    note: str = ""


class Contender(NamedTuple):
    """One of those that are compared. ``modes`` are those in which it can run, None all."""

    name: str
    function: Callable[[], object]
    work: Optional[Work] = None
    op: str = ""
    modes: Optional[Tuple[str, ...]] = None


class Bench:
    """What the groups share: a device, a timer, and the rows and remarks of the group that runs."""

    def __init__(self, device, quick=False):
        # type: (torch.device, bool) -> None
        self.device = device
        self.quick = quick
        self.timer = Timer(device, samples=10 if quick else 30, seconds=0.3 if quick else 1.0)
        self.rows = []  # type: List[Row]
        self.remarks = []  # type: List[str]

    def on(self, device):
        # type: (torch.device) -> Bench
        """The same for another device."""
        return Bench(device, self.quick)

    def remark(self, text):
        # type: (str) -> None
        """Something to know about the numbers of this group. It is printed, and kept, once."""
        if text not in self.remarks:
            self.remarks.append(text)
            say(f"         {text}")

    def add(self, group, case, contenders, modes):
        # type: (str, str, List[Contender], List[str]) -> None
        """Time all contenders in all modes; what cannot run is a row that says why.

        With much more data than the cache holds, cold is the same as warm and left out.
        """
        largest = max((one.work.bytes for one in contenders if one.work), default=0)
        for mode in modes if self.device.type == "cuda" else [CLOCK]:
            if mode.endswith("cold") and largest > self.timer.flush_bytes:
                continue
            fitting = [one for one in contenders if one.modes is None or mode in one.modes]
            functions = {one.name: one.function for one in fitting}
            with self.timer.range(case), self.timer.range(mode):
                outcomes = self.timer.time_all(functions, mode)
            for one in fitting:
                self.keep(row_of(group, case, one, mode, self.device, outcomes[one.name]))
        if self.device.type == "cuda":
            torch.cuda.empty_cache()  # graphs hold their memory until then

    def keep(self, row):
        # type: (Row) -> None
        self.rows.append(row)
        say(_line(row))


def row_of(group, case, contender, mode, device, outcome):
    # type: (str, str, Contender, str, torch.device, Union[Time, Exception]) -> Row
    work = contender.work or (None, None, None)
    failed = isinstance(outcome, Exception)
    times = (None, None, None) if failed else tuple(outcome)
    note = _reason(outcome) if failed else ""
    return Row(
        group, case, contender.name, mode, device.type, *(times + tuple(work)), contender.op, note
    )


def _reason(error):
    # type: (Exception) -> str
    lines = str(error).strip().split("\n")
    return (lines[0] or type(error).__name__)[:120]


def say(line):
    # type: (str) -> None
    """Progress; the answer is what goes to stdout."""
    print(line, file=sys.stderr, flush=True)


def _line(row):
    # type: (Row) -> str
    name = f"{row.group:8} {row.case:34} {row.contender:22} {row.mode:12}"
    if row.us is None:
        return f"{name} cannot: {row.note}"
    rate = f" {row.bytes / row.us / 1e3:8.0f} GB/s" if row.bytes and row.us > 0 else ""
    return f"{name} {row.us:11.2f} us{rate}"


def explained(texts, rows):
    # type: (Dict[str, str], List[Row]) -> List[str]
    """A line on those of ``texts``, which are by contender, that have rows; none where none has."""
    measured = {row.contender for row in rows}
    found = [f"*{name}* {text}" for name, text in texts.items() if name in measured]
    return [f"{'; '.join(found)}."] if found else []


def copy_of(size, device):
    # type: (int, torch.device) -> Contender
    """A kernel that reads and writes ``size`` bytes in all: the floor in practice.

    Not Tensor.copy_, which becomes a copy node in a graph, with a speed of its own.
    """
    source = torch.ones(max(size // 8, 1), device=device)
    target = torch.empty_like(source)
    return Contender("copy", lambda: torch.neg(source, out=target), Work(size, 0.0, 0.0))


def name_of(dtype):
    # type: (torch.dtype) -> str
    return str(dtype).replace("torch.", "")

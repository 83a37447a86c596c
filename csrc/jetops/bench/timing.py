"""Times of GPU work, by CUDA events; on the CPU by a clock."""

import contextlib
import time
from typing import NamedTuple

import torch

FLUSHED_TIMES_L2 = 4
SMALLEST_FLUSH = 32 * 2**20
USUAL_L2 = 64 * 2**20  # where torch does not tell
CALLS_IN_A_GRAPH = 20
CALLS_IF_LONG = 5
LONG_MICROSECONDS = 300.0
FEWEST_SAMPLES = 3
SLOW_SECONDS = 0.005  # such a call needs no other one before it to be warm
CLOCK_SECONDS = 0.0002  # shorter calls are timed several at once
MODES = ("replay", "replay cold", "plain", "plain cold")
CLOCK = "clock"


class Time(NamedTuple):
    """Microseconds of one call: the median, and the 10th and 90th of a hundred."""

    median: float
    low: float
    high: float


def summary(samples, less=0.0):
    # type: (List[float], float) -> Time
    """Of the samples, each of them less ``less``."""
    ordered = sorted(samples)
    last = len(ordered) - 1
    return Time(*(ordered[round(last * share)] - less for share in (0.5, 0.1, 0.9)))


def l2_bytes(device):
    # type: (torch.device) -> int
    return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 0) or USUAL_L2


class Timer:
    """Times functions of no argument on one device, those of a comparison in turn.

    The samples of all functions alternate, so that a change of the machine's clocks meets all of them.

    "plain" is a call from Python, from event to event, on a GPU that had nothing to do. "replay" is a
    CUDA graph of several calls, divided by their number: what the GPU needs, without Python and
    launches; another replay runs directly before, so the host is never waited for. "cold" fills the L2
    cache with something else before each call; in a graph that costs time of its own, which is
    measured in a graph that does nothing else, in turn with the others, and taken off.

    Args:
        device: where the functions work.
        samples: how many are taken of each function at most.
        seconds: how long they may take, but for the fewest that make a median.
    """

    def __init__(self, device, samples=30, seconds=1.0):
        # type: (torch.device, int, float) -> None
        self.device = device
        self.samples = samples
        self.seconds = seconds
        self.on_gpu = device.type == "cuda"
        self._other = None  # type: Optional[torch.Tensor]

    @property
    def flush_bytes(self):
        # type: () -> int
        """Work that moves more than this finds nothing of use in the cache, cold or not."""
        return max(FLUSHED_TIMES_L2 * l2_bytes(self.device), SMALLEST_FLUSH)

    def _flush(self):
        # type: () -> None
        if self._other is None:
            self._other = torch.empty(self.flush_bytes // 4, device=self.device)
        self._other.fill_(1.0)

    @contextlib.contextmanager
    def range(self, name):
        # type: (str) -> Iterator[None]
        """A range that Nsight Systems shows."""
        if not self.on_gpu:
            yield
            return
        torch.cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            torch.cuda.nvtx.range_pop()

    def time_all(self, functions, mode):
        # type: (Dict[str, Callable[[], object]], str) -> Dict[str, Union[Time, Exception]]
        """Of one call of each function in one of MODES, or CLOCK; what one raised in its place."""
        cold = mode == "replay cold"
        prepare = self._preparer(mode)
        samplers = {}  # type: Dict[object, Callable[[], float]]
        outcomes = {}  # type: Dict[object, Union[List[float], Exception]]
        functions_by_key = dict(functions)  # type: Dict[object, Callable[[], object]]
        if cold:
            functions_by_key[None] = lambda: None  # a graph that only flushes
        for name, function in functions_by_key.items():
            try:
                samplers[name] = prepare(function)
            except Exception as exc:  # noqa: BLE001  out of memory, not capturable: part of the result
                outcomes[name] = exc
                self._settle()
        self._sample(samplers, outcomes)
        less = 0.0
        if cold:
            alone = outcomes.pop(None)
            if isinstance(alone, Exception):
                return {name: alone for name in functions}
            less = summary(alone).median
        return {
            name: found if isinstance(found, Exception) else summary(found, less)
            for name, found in outcomes.items()
        }

    def _preparer(self, mode):
        # type: (str) -> Callable[[Callable[[], object]], Callable[[], float]]
        if not self.on_gpu or mode == CLOCK:
            return self._clocked
        if mode in ("plain", "plain cold"):
            return lambda function: self._plain(function, mode == "plain cold")
        # One pool of memory for all: their results are never read, so they may overwrite each other.
        pool = torch.cuda.graph_pool_handle()
        return lambda function: self._replayed(function, mode == "replay cold", pool)

    def _sample(self, samplers, outcomes):
        # type: (Dict[object, Callable[[], float]], Dict[object, Union[List[float], Exception]]) -> None
        wanted = {}
        for index in range(self.samples):
            for name, sampler in samplers.items():
                found = outcomes.setdefault(name, [])
                if isinstance(found, Exception) or len(found) >= wanted.get(name, 1):
                    continue
                start = time.perf_counter()
                try:
                    with self.range("flush alone" if name is None else name):
                        found.append(sampler())
                except Exception as exc:  # noqa: BLE001  out of memory, not capturable: part of the result
                    outcomes[name] = exc
                    self._settle()
                if index == 0:
                    affordable = int(self.seconds / max(time.perf_counter() - start, 1e-9))
                    wanted[name] = max(FEWEST_SAMPLES, min(self.samples, affordable))

    def _settle(self):
        # type: () -> None
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def _clocked(self, function):
        # type: (Callable[[], object]) -> Callable[[], float]
        function()
        start = time.perf_counter()
        function()
        calls = max(1, int(CLOCK_SECONDS / max(time.perf_counter() - start, 1e-9)))

        def sample():
            # type: () -> float
            start = time.perf_counter()
            for _ in range(calls):
                function()
            return (time.perf_counter() - start) * 1e6 / calls

        return sample

    def _plain(self, function, cold):
        # type: (Callable[[], object], bool) -> Callable[[], float]
        function()
        slow = self._seconds_of(function) > SLOW_SECONDS
        before = self._flush if cold else function

        def sample():
            # type: () -> float
            if cold or not slow:
                before()
            torch.cuda.synchronize(self.device)
            return self._between_events(function)

        return sample

    def _replayed(self, function, cold, pool):
        # type: (Callable[[], object], bool, object) -> Callable[[], float]
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(2):
                function()
            short = self._seconds_of(function) * 1e6 < LONG_MICROSECONDS
            if cold:
                self._flush()  # takes its memory outside of the graph's
        torch.cuda.current_stream(self.device).wait_stream(side)
        calls = CALLS_IN_A_GRAPH if short or cold else CALLS_IF_LONG
        graph = torch.cuda.CUDAGraph()
        own_stream = torch.cuda.current_stream(self.device)
        try:
            with torch.cuda.graph(graph, pool=pool):
                for _ in range(calls):
                    if cold:
                        self._flush()
                    function()
        finally:
            torch.cuda.set_stream(own_stream)  # a capture that fails leaves its own one behind

        def sample():
            # type: () -> float
            graph.replay()
            return self._between_events(graph.replay) / calls

        return sample

    def _between_events(self, function):
        # type: (Callable[[], object]) -> float
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        start.record()
        function()
        stop.record()
        stop.synchronize()
        return start.elapsed_time(stop) * 1e3

    def _seconds_of(self, function):
        # type: (Callable[[], object]) -> float
        torch.cuda.synchronize(self.device)
        start = time.perf_counter()
        function()
        torch.cuda.synchronize(self.device)
        return time.perf_counter() - start

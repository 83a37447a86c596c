"""Times of GPU work, by CUDA events; on the CPU by a clock."""

import time
from typing import NamedTuple

import torch

FLUSH_BYTES = 256 * 2**20  # more than any L2 holds
CALLS_IN_A_GRAPH = 20
MODES = ("replay", "replay cold", "plain", "plain cold")


class Time(NamedTuple):
    """Microseconds of one call: the median, and the 10th and 90th of a hundred."""

    median: float
    low: float
    high: float


def summary(samples):
    # type: (List[float]) -> Time
    ordered = sorted(samples)
    last = len(ordered) - 1
    return Time(*(ordered[round(last * share)] for share in (0.5, 0.1, 0.9)))


class Timer:
    """Times functions of no argument on one device.

    "plain" is a call from Python, from event to event. "replay" is a CUDA graph of twenty calls,
    divided by twenty: what the GPU needs, without Python and launches. "cold" fills the L2 cache with
    something else before each call; in a graph that costs time of its own, which is measured in a
    graph that does nothing else and taken off.
    """

    def __init__(self, device, samples=30):
        # type: (torch.device, int) -> None
        self.device = device
        self.samples = samples
        self.on_gpu = device.type == "cuda"
        if self.on_gpu:
            self._other = torch.empty(FLUSH_BYTES // 4, device=device)
            self._flush_time = 0.0
            self._flush_time = self._replay(self._flush).median

    def _flush(self):
        # type: () -> None
        self._other.fill_(1.0)

    def time(self, function, mode):
        # type: (Callable[[], object], str) -> Time
        """Of one call of ``function`` in one of MODES, after warming up."""
        if not self.on_gpu:
            return self._clock(function)
        torch.cuda.nvtx.range_push(mode)
        try:
            if mode == "replay":
                return self._replay(function)
            if mode == "replay cold":
                times = self._replay(lambda: (self._flush(), function()))
                return Time(*(value - self._flush_time for value in times))
            return self._plain(function, cold=mode == "plain cold")
        finally:
            torch.cuda.nvtx.range_pop()

    def _clock(self, function):
        # type: (Callable[[], object]) -> Time
        function()
        samples = []
        for _ in range(self.samples):
            start = time.perf_counter()
            function()
            samples.append((time.perf_counter() - start) * 1e6)
        return summary(samples)

    def _plain(self, function, cold):
        # type: (Callable[[], object], bool) -> Time
        for _ in range(3):
            function()
        samples = []
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(self.samples):
            if cold:
                self._flush()
            torch.cuda.synchronize(self.device)
            start.record()
            function()
            stop.record()
            stop.synchronize()
            samples.append(start.elapsed_time(stop) * 1e3)
        return summary(samples)

    def _replay(self, function):
        # type: (Callable[[], object]) -> Time
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            for _ in range(3):
                function()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(CALLS_IN_A_GRAPH):
                function()
        graph.replay()
        samples = []
        start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        for _ in range(self.samples):
            start.record()
            graph.replay()
            stop.record()
            stop.synchronize()
            samples.append(start.elapsed_time(stop) * 1e3 / CALLS_IN_A_GRAPH)
        return summary(samples)

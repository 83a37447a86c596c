"""Frames through FrameIngest, with copies under the computation and without."""

import time

import torch

from jetops import FrameIngest

from .measure import Contender, row_of
from .timing import CLOCK, summary

NAME = "ingest"
SIZE = (1080, 1920, 3)
CASE = "1920x1080x3 frame"
DEPTH = 3
ABOUT = [
    (
        "Microseconds a frame, by a clock around all frames, which ends when the device has. FrameIngest "
        "cannot be faster than the longest of its parts, some of which are timed *alone*."
    ),
]
CONTENDERS = {
    "one after another": "takes each frame to the device from where the camera left it and computes then",
    "pinned, one after another": "does so by way of a pinned buffer, on one stream",
    "FrameIngest": "copies the next frames meanwhile, to a GPU on a stream of its own",
    "host copy alone": "is that into the pinned buffer",
}


def run(bench):
    # type: (Bench) -> None
    setting = Setting(bench.device, 10 if bench.quick else 60)
    loops = {
        "one after another": setting.serial,
        "FrameIngest": setting.overlapped,
        "computation alone": setting.compute_alone,
    }
    if bench.device.type == "cuda":
        loops["pinned, one after another"] = setting.pinned_serial
        loops["host copy alone"] = setting.host_copy_alone
        loops["copy to the GPU alone"] = setting.device_copy_alone
    samples = {name: [] for name in loops}
    with bench.timer.range(CASE):
        for again in range(3 if bench.quick else 6):
            for name, loop in loops.items():
                with bench.timer.range(name):
                    us = setting.time(loop)
                if again:  # the first warms up
                    samples[name].append(us)
    for name, loop in loops.items():
        contender = Contender(name, loop)
        bench.keep(row_of(NAME, CASE, contender, CLOCK, bench.device, summary(samples[name])))


class Setting:
    """Frames, buffers, and a computation of about a millisecond on an H200."""

    def __init__(self, device, count):
        # type: (torch.device, int) -> None
        self.device = device
        self.on_gpu = device.type == "cuda"
        self.count = count
        self.frames = [torch.randint(255, SIZE, dtype=torch.uint8) for _ in range(4)]
        side = 2048 if self.on_gpu else 256
        self.weight = torch.randn(side, side, device=device)
        self.pinned = torch.empty(SIZE, dtype=torch.uint8, pin_memory=self.on_gpu)
        self.pinned.copy_(self.frames[0])
        self.copied = self.pinned.to(device, copy=True)

    def time(self, loop):
        # type: (Callable[[], object]) -> float
        """Microseconds a frame."""
        self._settle()
        start = time.perf_counter()
        loop()
        self._settle()
        return (time.perf_counter() - start) / self.count * 1e6

    def _settle(self):
        # type: () -> None
        if self.on_gpu:
            torch.cuda.synchronize(self.device)

    def _source(self):
        # type: () -> Iterator[torch.Tensor]
        return (self.frames[index % len(self.frames)] for index in range(self.count))

    def compute(self, frame):
        # type: (torch.Tensor) -> torch.Tensor
        pixels = frame.view(-1)[: self.weight.numel()].view(self.weight.shape).float()
        for _ in range(4):
            pixels = torch.tanh(pixels @ self.weight * 1e-3)
        return pixels.mean()

    def serial(self):
        # type: () -> object
        means = [self.compute(frame.to(self.device)) for frame in self._source()]
        return torch.stack(means).cpu()

    def pinned_serial(self):
        # type: () -> object
        means = []
        for frame in self._source():
            self._settle()  # the buffer is free then
            self.pinned.copy_(frame)
            self.copied.copy_(self.pinned, non_blocking=True)
            means.append(self.compute(self.copied))
        return torch.stack(means).cpu()

    def overlapped(self):
        # type: () -> object
        with FrameIngest(self._source(), self.device, depth=DEPTH) as ingest:
            means = [self.compute(frame.tensor) for frame in ingest]
        return torch.stack(means).cpu()

    def compute_alone(self):
        # type: () -> object
        return torch.stack([self.compute(self.copied) for _ in range(self.count)]).cpu()

    def host_copy_alone(self):
        # type: () -> None
        for frame in self._source():
            self.pinned.copy_(frame)

    def device_copy_alone(self):
        # type: () -> None
        for _ in range(self.count):
            self.copied.copy_(self.pinned, non_blocking=True)

"""Frames through FrameIngest, with copies under the computation and without."""

import time

import torch

from jetops import FrameIngest

from .measure import Row

FRAMES = 60
SIZE = (1080, 1920, 3)


def run(bench):
    # type: (Bench) -> None
    frames = [torch.randint(255, SIZE, dtype=torch.uint8) for _ in range(4)]
    weight = torch.randn(2048, 2048, device=bench.device)
    for name, loop in (("one after another", _serial), ("FrameIngest", _overlapped)):
        loop(frames, weight, bench.device)
        start = time.perf_counter()
        loop(frames, weight, bench.device)
        us = (time.perf_counter() - start) / FRAMES * 1e6
        row = Row("ingest", "1920x1080x3 frame", name, "clock", us, us, us, None, "")
        bench.rows.append(row)
        print(f"ingest   {row.case:34} {name:20} {us:11.1f} us a frame")


def _compute(frame, weight):
    # type: (torch.Tensor, torch.Tensor) -> torch.Tensor
    pixels = frame.view(-1)[: weight.shape[0] ** 2].view(weight.shape).float()
    for _ in range(4):
        pixels = torch.tanh(pixels @ weight * 1e-3)
    return pixels.mean()


def _source(frames):
    # type: (list) -> object
    return (frames[index % len(frames)] for index in range(FRAMES))


def _serial(frames, weight, device):
    # type: (list, torch.Tensor, torch.device) -> None
    means = [_compute(frame.to(device), weight) for frame in _source(frames)]
    torch.stack(means).cpu()


def _overlapped(frames, weight, device):
    # type: (list, torch.Tensor, torch.device) -> None
    with FrameIngest(_source(frames), device, depth=3) as ingest:
        means = [_compute(frame.tensor, weight) for frame in ingest]
    torch.stack(means).cpu()

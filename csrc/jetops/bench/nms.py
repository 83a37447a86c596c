"""fused_attn_nms against separate kernels and a loop in Python."""

import torch

import jetops
from jetops import reference

from .measure import copy_of

COUNTS = (500, 1000, 2000, 4000, 8000)
THRESHOLD = 0.5
SIDE = 120.0
FIELD = 1920.0
LONGEST_LOOP = 2000


def boxes_of(density, count, seed=0):
    # type: (str, int, int) -> torch.Tensor
    """[count, 4]: "clusters" is 20 boxes an object, "dense" 100, "uniform" one."""
    generator = torch.Generator().manual_seed(seed)
    objects = {"clusters": count // 20, "dense": count // 100, "uniform": count}[density]
    centres = torch.rand(max(objects, 1), 2, generator=generator) * FIELD
    home = torch.randint(len(centres), (count,), generator=generator)
    corner = centres[home]
    if density != "uniform":
        corner = corner + torch.randn(count, 2, generator=generator) * 20.0
    return torch.cat([corner, corner + SIDE], 1).contiguous()


def inputs(density, count, device, dtype=torch.float32):
    # type: (str, int, torch.device, torch.dtype) -> tuple
    generator = torch.Generator().manual_seed(count)
    scores = torch.rand(count, generator=generator)
    attn_map = torch.softmax(torch.randn(count, count, generator=generator), 1)
    return (
        boxes_of(density, count).to(device),
        scores.to(device, dtype),
        attn_map.to(device, dtype),
    )


def loop(boxes, scores, attn_map):
    # type: (torch.Tensor, torch.Tensor, torch.Tensor) -> torch.Tensor
    """A Python loop over the boxes, all tensors where they are."""
    weighted = scores * (attn_map @ scores)
    area = reference.areas(boxes)
    keep = torch.zeros(len(boxes), dtype=torch.bool, device=boxes.device)
    alive = torch.ones_like(keep)
    for index in torch.argsort(weighted, descending=True, stable=True).tolist():
        if alive[index]:
            keep[index] = True
            alive &= reference.iou_with_all(index, boxes, area) <= THRESHOLD
    return keep


def run(bench):
    # type: (Bench) -> None
    for density in ("clusters", "dense", "uniform"):
        for count in COUNTS:
            _one_count(bench, density, count, torch.float32)
    if bench.device.type == "cuda":
        _one_count(bench, "clusters", 2000, torch.float16)


def _one_count(bench, density, count, dtype):
    # type: (Bench, str, int, torch.dtype) -> None
    tensors = inputs(density, count, bench.device, dtype)
    case = f"{density} {count}" + ("" if dtype == torch.float32 else " float16")
    size = attn_bytes = tensors[2].numel() * tensors[2].element_size()
    keep = jetops.fused_attn_nms(*tensors, THRESHOLD)
    print(f"{case}: {int(keep.sum())} kept")
    fused = {"jetops": lambda: jetops.fused_attn_nms(*tensors, THRESHOLD)}
    if bench.device.type == "cuda":
        fused["copy"] = copy_of(attn_bytes, bench.device)
    bench.add("nms", case, fused, ["replay", "replay cold", "plain"], size)
    others = {}
    separate = _separate_kernels(tensors)
    if separate is not None:
        others["separate kernels"] = separate
    if count == LONGEST_LOOP and dtype == torch.float32 and not bench.quick:
        samples, bench.timer.samples = bench.timer.samples, 3
        bench.add("nms", case, {"Python loop": lambda: loop(*tensors)}, ["plain"], size)
        bench.timer.samples = samples
    bench.add("nms", case, others, ["plain"], size)


def _separate_kernels(tensors):
    # type: (tuple) -> object
    try:
        from torchvision.ops import nms
    except ImportError:
        return None
    boxes, scores, attn_map = tensors
    return lambda: nms(boxes, (scores * (attn_map @ scores)).float(), THRESHOLD)

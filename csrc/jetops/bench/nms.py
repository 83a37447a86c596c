"""fused_attn_nms against separate kernels and a loop in Python."""

from typing import NamedTuple

import torch

import jetops
from jetops import reference

from . import work
from .measure import Contender, copy_of

NAME = "nms"
COUNTS = (500, 1000, 2000, 4000, 8000)
QUICK_COUNTS = (500, 2000)
THRESHOLD = 0.5
SIDE = 120.0
FIELD = 1920.0
CHAIN_STEP = 0.3 * SIDE
JUDGED = [("clusters", 2000), ("clusters", 8000), ("chain scrambled", 2000)]

DENSITIES = {
    "clusters": "20 boxes an object, their corners spread with a deviation of 20 px around its own",
    "dense": "100 boxes an object, spread in the same way",
    "uniform": "each box anywhere",
    "chain": "each box overlaps the next one in a row (IoU 0.54) and no other enough; scores fall "
    "along the row and attention is equal everywhere, so whether the last box stays is known only "
    "after all before it: the longest dependency there can be",
    "chain scrambled": "the same boxes and scores in a random order of indices",
}
ABOUT = [
    (
        f"{int(SIDE)} px boxes in a field of {int(FIELD)} x {int(FIELD)} px, attention a softmax of "
        f"normal numbers, IoU threshold {THRESHOLD}, float32 unless said otherwise:"
    ),
] + [f"**{name}**: {text}" for name, text in DENSITIES.items()]
CONTENDERS = {
    "separate kernels": "is `torchvision.ops.nms(boxes, scores * (attn_map @ scores), threshold)`, which "
    "waits for the GPU and cannot be captured in a graph",
    "Python loop": "visits the boxes one by one with tensors on the GPU",
    "copy": "moves as many bytes as attn_map has",
}


class Problem(NamedTuple):
    boxes: torch.Tensor
    scores: torch.Tensor
    attn_map: torch.Tensor


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


def attention(count):
    # type: (int) -> torch.Tensor
    """[count, count]: each row a softmax. Takes a second for 8000 boxes, so cases share it."""
    generator = torch.Generator().manual_seed(count)
    return torch.softmax(torch.randn(count, count, generator=generator), 1)


def problem(density, count, attn_map):
    # type: (str, int, torch.Tensor) -> Problem
    """On the CPU. A chain has an attention of its own, of the same size."""
    if not density.startswith("chain"):
        generator = torch.Generator().manual_seed(count + 1)
        return Problem(boxes_of(density, count), torch.rand(count, generator=generator), attn_map)
    left = torch.arange(count, dtype=torch.float32) * CHAIN_STEP
    top = torch.zeros(count)
    boxes = torch.stack([left, top, left + SIDE, top + SIDE], 1)
    scores = torch.linspace(1.0, 0.1, count)
    if density == "chain scrambled":
        order = torch.randperm(count, generator=torch.Generator().manual_seed(count))
        boxes, scores = boxes[order], scores[order]
    return Problem(boxes.contiguous(), scores, torch.full((count, count), 1.0 / count))


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


def torchvision_nms(bench):
    # type: (Bench) -> Optional[Callable]
    """torchvision's nms, or None with a remark that says why it cannot be had."""
    try:
        from torchvision.ops import nms
    except Exception as exc:  # noqa: BLE001  if it is for another torch, it fails in many ways
        bench.remark(
            f"nothing is compared with torchvision's nms, as importing it failed: {exc}; `python -m pip "
            f"install torchvision` gets one, and it must be the release for torch {torch.__version__}"
        )
        return None
    return nms


def separate_kernels(nms, tensors):
    # type: (Callable, Problem) -> Callable[[], object]
    """What one writes today."""
    boxes, scores, attn_map = tensors
    return lambda: nms(boxes, (scores * (attn_map @ scores)).float(), THRESHOLD)


def run(bench):
    # type: (Bench) -> None
    theirs = torchvision_nms(bench)
    for count in QUICK_COUNTS if bench.quick else COUNTS:
        attn_map = attention(count)
        kept = []
        for density in DENSITIES:
            here = _one_case(bench, theirs, density, problem(density, count, attn_map))
            kept.append(f"{density} {here}")
        bench.remark(f"kept of {count} boxes: {', '.join(kept)}")
        if count == 2000:
            boxes, scores, attn_map = problem("clusters", count, attn_map)
            half = Problem(boxes, scores.half(), attn_map.half())
            _one_case(bench, theirs, "clusters", half, " float16")


def _one_case(bench, theirs, density, tensors, suffix=""):
    # type: (Bench, Optional[Callable], str, Problem, str) -> int
    """Returns how many boxes are kept."""
    count = len(tensors.boxes)
    case = f"{density} {count}{suffix}"
    tensors = Problem(*(tensor.to(bench.device) for tensor in tensors))
    kept = checked(case, tensors)
    todo = work.nms(count, tensors.attn_map.element_size())
    op = f"fused_attn_nms, {case}" if (density, count) in JUDGED else ""
    contenders = [
        Contender(
            "jetops", lambda: jetops.fused_attn_nms(*tensors, iou_threshold=THRESHOLD), todo, op
        ),
        copy_of(tensors.attn_map.numel() * tensors.attn_map.element_size(), bench.device),
    ]
    if theirs is not None:
        separate = separate_kernels(theirs, tensors)
        contenders.append(
            Contender("separate kernels", separate, todo, modes=("plain", "plain cold"))
        )
    contenders.append(Contender("Python loop", lambda: loop(*tensors), todo, modes=("plain",)))
    bench.add(NAME, case, contenders, ["replay", "replay cold", "plain", "plain cold"])
    return kept


def checked(case, tensors):
    # type: (str, Problem) -> int
    """How many boxes are kept, having made sure that what is timed is right.

    Raises:
        RuntimeError: a keep mask is not that of the sequential reference for the scores that the op
            itself made.
    """
    keep, weighted = jetops.fused_attn_nms_scored(*tensors, iou_threshold=THRESHOLD)
    alone = jetops.fused_attn_nms(*tensors, iou_threshold=THRESHOLD)
    expected = reference.greedy_nms(tensors.boxes, weighted, THRESHOLD)
    wrong = int(((keep.cpu() != expected) | (alone.cpu() != expected)).sum())
    if wrong:
        raise RuntimeError(f"fused_attn_nms is wrong for {wrong} boxes of {case}")
    return int(expected.sum())

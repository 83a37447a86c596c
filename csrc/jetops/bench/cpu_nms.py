"""fused_attn_nms on the CPU against the sequential reference and against separate operators."""

import torch

import jetops
from jetops import reference

from . import nms, work
from .measure import Contender

NAME = "cpu-nms"
COUNTS = (500, 1000, 2000, 4000)
QUICK_COUNTS = (500, 2000)
DENSITIES = ("clusters", "dense", "uniform", "chain scrambled")
ABOUT = [
    "The cases of the group nms on the CPU. *Python reference* is `jetops.reference.fused_attn_nms`, "
    "which visits the boxes one by one and compares each kept one with all at once; *separate "
    "kernels* is `torchvision.ops.nms(boxes, scores * (attn_map @ scores), threshold)`.",
]


def run(bench):
    # type: (Bench) -> None
    bench.remark(f"{torch.get_num_threads()} threads")
    for count in QUICK_COUNTS if bench.quick else COUNTS:
        attn_map = nms.attention(count)
        for density in DENSITIES:
            _one_case(bench, f"{density} {count}", nms.problem(density, count, attn_map))


def _one_case(bench, case, tensors):
    # type: (Bench, str, nms.Problem) -> None
    nms.check(bench, case, tensors)
    count = len(tensors.boxes)
    todo = work.nms(count, tensors.attn_map.element_size())
    op = "fused_attn_nms on the CPU, " + case if case == "clusters 2000" else ""
    ours = lambda: jetops.fused_attn_nms(*tensors, iou_threshold=nms.THRESHOLD)  # noqa: E731
    theirs = lambda: reference.fused_attn_nms(*tensors, iou_threshold=nms.THRESHOLD)  # noqa: E731
    contenders = [
        Contender("jetops", ours, todo, op),
        Contender("Python reference", theirs, todo),
    ]
    separate = nms.separate_kernels(tensors)
    if separate is not None:
        contenders.append(Contender("separate kernels", separate, todo))
    bench.add(NAME, case, contenders, [])

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
ABOUT = ["The cases of the group nms on the CPU."]
CONTENDERS = {
    "Python reference": "is `jetops.reference.fused_attn_nms`, which visits the boxes one by one and "
    "compares each kept one with all at once",
    "separate kernels": "is `torchvision.ops.nms(boxes, scores * (attn_map @ scores), threshold)`",
}


def run(bench):
    # type: (Bench) -> None
    bench.remark(f"{torch.get_num_threads()} threads")
    torchvision_nms = nms.torchvision_nms(bench)
    for count in QUICK_COUNTS if bench.quick else COUNTS:
        attn_map = nms.attention(count)
        kept = []
        for density in DENSITIES:
            tensors = nms.problem(density, count, attn_map)
            here = _one_case(bench, torchvision_nms, f"{density} {count}", tensors)
            kept.append(f"{density} {here}")
        bench.remark(f"kept of {count} boxes: {', '.join(kept)}")


def _one_case(bench, torchvision_nms, case, tensors):
    # type: (Bench, Optional[Callable], str, nms.Problem) -> int
    kept = nms.checked(case, tensors)
    count = len(tensors.boxes)
    todo = work.nms(count, tensors.attn_map.element_size())
    op = "fused_attn_nms on the CPU, " + case if case == "clusters 2000" else ""
    ours = lambda: jetops.fused_attn_nms(*tensors, iou_threshold=nms.THRESHOLD)
    theirs = lambda: reference.fused_attn_nms(*tensors, iou_threshold=nms.THRESHOLD)
    contenders = [
        Contender("jetops", ours, todo, op),
        Contender("Python reference", theirs, todo),
    ]
    if torchvision_nms is not None:
        separate = nms.separate_kernels(torchvision_nms, tensors)
        contenders.append(Contender("separate kernels", separate, todo))
    bench.add(NAME, case, contenders, [])
    return kept

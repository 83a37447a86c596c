"""gelu against torch.nn.functional.gelu and a copy of the same bytes."""

import torch
from torch.nn import functional

import jetops

from .measure import copy_of

SIZES = (2**10, 2**16, 2**20, 2**24, 2**28)
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def run(bench):
    # type: (Bench) -> None
    for dtype in DTYPES:
        for size in SIZES if bench.device.type == "cuda" else SIZES[:4]:
            _one_size(bench, dtype, size)


def _one_size(bench, dtype, size):
    # type: (Bench, torch.dtype, int) -> None
    name = str(dtype).replace("torch.", "")
    x = torch.randn(size, device=bench.device).to(dtype)
    moved = 2 * x.numel() * x.element_size()
    modes = ["replay", "plain"] if size < 2**24 else ["replay"]
    contenders = {}
    for form in ("none", "tanh"):
        contenders["F.gelu " + form] = lambda form=form: functional.gelu(x, approximate=form)
        contenders["jetops " + form] = lambda form=form: jetops.gelu(x, form)
    contenders["copy"] = copy_of(moved, bench.device)
    bench.add("gelu", f"{name} {size}", contenders, modes, moved)
    if size >= 2**20:
        _backward(bench, f"{name} {size} backward", x, moved // 2 * 3)


def _backward(bench, case, x, moved):
    # type: (Bench, str, torch.Tensor, int) -> None
    grad = torch.randn_like(x)
    contenders = {}
    for form in ("none", "tanh"):
        contenders["F.gelu " + form] = lambda form=form: torch.ops.aten.gelu_backward(
            grad, x, approximate=form
        )
        contenders["jetops " + form] = lambda form=form: torch.ops.jetops.gelu_backward(
            grad, x, approximate=form
        )
    contenders["copy"] = copy_of(moved, bench.device)
    bench.add("gelu", case, contenders, ["replay"], moved)

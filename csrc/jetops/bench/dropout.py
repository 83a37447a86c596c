"""bias_gelu_dropout against eager torch and torch.compile."""

import torch
from torch.nn import functional

import jetops

from .measure import copy_of

SHAPES = ((8192, 16384), (8192, 4096), (1024, 4096))
P = 0.1


def run(bench):
    # type: (Bench) -> None
    shapes = SHAPES if bench.device.type == "cuda" else ((512, 1024),)
    for dtype in (torch.bfloat16, torch.float32):
        for shape in shapes[:1] if bench.quick else shapes:
            for form in ("tanh",) if bench.quick else ("tanh", "none"):
                _one_shape(bench, dtype, shape, form)


def _compiled(function, mode):
    # type: (object, str) -> object
    torch._dynamo.reset()
    return torch.compile(function, mode=mode)


def _one_shape(bench, dtype, shape, form):
    # type: (Bench, torch.dtype, tuple, str) -> None
    x = torch.randn(shape, device=bench.device).to(dtype)
    bias = torch.randn(shape[1], device=bench.device).to(dtype)
    seed = torch.tensor([1, 2], device=bench.device)
    case = "{} {}x{} {}".format(str(dtype).replace("torch.", ""), shape[0], shape[1], form)

    def eager(x, bias):
        return functional.dropout(functional.gelu(x + bias, approximate=form), P)

    def ours(x, bias):
        return jetops.bias_gelu_dropout(x, bias, P, approximate=form, seed=seed)

    functions = {"eager": eager, "jetops": ours}
    if bench.device.type == "cuda":
        functions["compile"] = _compiled(eager, "default")
        if not bench.quick:
            functions["compile max-autotune"] = _compiled(eager, "max-autotune-no-cudagraphs")
    size = x.numel() * x.element_size()
    forward = {name: lambda f=f: f(x, bias) for name, f in functions.items()}
    forward["copy"] = copy_of(2 * size, bench.device)
    bench.add("dropout", case, forward, ["replay", "plain"], 2 * size)

    leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
    grad = torch.randn_like(x)

    def both(function):
        return lambda: torch.autograd.grad(function(*leaves), leaves, grad)

    training = {name: both(f) for name, f in functions.items()}
    training["copy"] = copy_of(5 * size, bench.device)
    bench.add("dropout", case + " fwd+bwd", training, ["replay", "plain"], 5 * size)

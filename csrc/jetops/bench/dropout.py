"""bias_gelu_dropout against eager torch and torch.compile."""

import time

import torch
from torch.nn import functional

import jetops

from . import work
from .measure import Contender, copy_of, name_of

NAME = "dropout"
LARGE = (8192, 16384)
SHAPES = (LARGE, (8192, 4096), (1024, 4096))
CPU_SHAPE = (512, 1024)
DTYPES = (torch.bfloat16, torch.float32)
P = 0.1
AUTOTUNE = "compile max-autotune"
REDUCED = "compile reduce-overhead"
PLAIN = ("plain",)
ABOUT = [f"`F.dropout(F.gelu(x + bias), {P})`; fwd+bwd also makes the gradients of x and bias."]
CONTENDERS = {
    "jetops": "draws a new seed in each call, as eager draws its random numbers",
    "jetops, seed given": "does not",
    "compile": "is torch.compile of the eager function",
    AUTOTUNE: "is its mode max-autotune-no-cudagraphs, which a graph of ours can hold",
    REDUCED: "replays graphs of its own, so it stands beside plain calls",
    "copy": "reads and writes as many bytes as the fused operator must (x and y; with the backward x, "
    "the gradient of y and that of x besides)",
}


def run(bench):
    # type: (Bench) -> None
    shapes = SHAPES if bench.device.type == "cuda" else (CPU_SHAPE,)
    for dtype in DTYPES:
        for shape in shapes[:1] if bench.quick else shapes:
            for form in ("tanh",) if bench.quick else ("tanh", "none"):
                _one_case(bench, dtype, shape, form)


def _modes_of(bench, dtype, shape, form):
    # type: (Bench, torch.dtype, tuple, str) -> Dict[str, str]
    """With which modes torch.compile is tried: a compilation takes seconds, so not all everywhere.

    A remark says where it is left out.
    """
    if not hasattr(torch, "compile"):
        bench.remark(f"torch.compile is left out: torch {torch.__version__} has none")
        return {}
    on_gpu = bench.device.type == "cuda"
    if bench.quick and not on_gpu:
        bench.remark("torch.compile is left out with --quick: to compile takes seconds each time")
        return {}
    modes = {}
    if shape in (LARGE, CPU_SHAPE) or (dtype == torch.bfloat16 and form == "tanh"):
        modes["compile"] = "default"
    else:
        bench.remark(
            "torch.compile takes seconds to compile each case, so it is left out of some: *compile* is "
            f"there for all of {LARGE[0]}x{LARGE[1]} and for bfloat16 tanh, *{AUTOTUNE}* for "
            f"{LARGE[0]}x{LARGE[1]} alone, and *{REDUCED}* there for bfloat16 tanh alone"
        )
    if on_gpu and shape == LARGE and not bench.quick:
        modes[AUTOTUNE] = "max-autotune-no-cudagraphs"
        if dtype == torch.bfloat16 and form == "tanh":
            modes[REDUCED] = "reduce-overhead"
    return modes


def _one_case(bench, dtype, shape, form):
    # type: (Bench, torch.dtype, tuple, str) -> None
    x = torch.randn(shape, device=bench.device).to(dtype)
    bias = torch.randn(shape[1], device=bench.device).to(dtype)
    seed = torch.tensor([1, 2], device=bench.device)
    case = f"{name_of(dtype)} {shape[0]}x{shape[1]} {form}"

    def eager(x, bias):
        return functional.dropout(functional.gelu(x + bias, approximate=form), P)

    functions = {
        "eager": eager,
        "jetops": lambda x, bias: jetops.bias_gelu_dropout(x, bias, P, approximate=form),
        "jetops, seed given": lambda x, bias: jetops.bias_gelu_dropout(
            x, bias, P, approximate=form, seed=seed
        ),
    }
    modes = _modes_of(bench, dtype, shape, form)
    if modes:
        torch._dynamo.reset()  # or it would compile for any size after the second
    for name, mode in modes.items():
        functions[name] = torch.compile(eager, mode=mode)

    todo = work.bias_gelu_dropout(shape[0], shape[1], x.element_size(), form)
    calls = {name: lambda f=f: f(x, bias) for name, f in functions.items()}
    _add(bench, case, calls, todo, f"bias_gelu_dropout {form} {name_of(dtype)}")

    leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
    grad = torch.randn(shape, device=bench.device).to(dtype)
    todo = work.bias_gelu_dropout_both(shape[0], shape[1], x.element_size(), form)
    calls = {
        name: lambda f=f: torch.autograd.grad(f(*leaves), leaves, grad)
        for name, f in functions.items()
    }
    _add(
        bench, case + " fwd+bwd", calls, todo, f"bias_gelu_dropout {form} fwd+bwd {name_of(dtype)}"
    )


def _add(bench, case, calls, todo, op):
    # type: (Bench, str, Dict[str, Callable[[], object]], work.Work, str) -> None
    contenders = []
    for name, call in calls.items():
        if name.startswith("compile"):
            _compile(bench, f"{case}, {name}", call)
        modes = PLAIN if name == REDUCED else None
        contenders.append(Contender(name, call, todo, op if name == "jetops" else "", modes))
    contenders.append(copy_of(todo.bytes, bench.device))
    own_graphs = [one for one in contenders if one.modes == PLAIN]
    others = [one for one in contenders if one.modes != PLAIN]
    bench.add(NAME, case, others, ["replay", "replay cold", "plain"])
    if own_graphs:  # apart, as its graphs and ours would share the allocator's state
        bench.add(NAME, case, own_graphs, list(PLAIN))


def _compile(bench, name, call):
    # type: (Bench, str, Callable[[], object]) -> None
    """Compile before timing. What fails here fails again where it is timed, and is a row then."""
    start = time.perf_counter()
    try:
        call()
    except Exception:  # noqa: BLE001  of any kind
        return
    bench.remark(f"{name}: {time.perf_counter() - start:.1f} s to compile")

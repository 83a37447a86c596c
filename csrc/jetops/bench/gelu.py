"""gelu against torch.nn.functional.gelu and a copy of the same bytes."""

import torch
from torch.nn import functional

import jetops

from . import work
from .measure import Contender, copy_of, name_of

NAME = "gelu"
SIZES = (2**10, 2**16, 2**20, 2**24, 2**28)
LARGEST_ON_CPU = 2**24
LARGEST_QUICK_ON_CPU = 2**20
SMALLEST_BACKWARD = 2**20
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
FORMS = ("none", "tanh")
ABOUT = [
    (
        "*none* is the form with erf, *tanh* the one with tanh; backward is the gradient of x from x and "
        "the gradient of y."
    ),
]
CONTENDERS = {"copy": "reads and writes as many bytes as the operator must"}


def run(bench):
    # type: (Bench) -> None
    largest = SIZES[-1]
    if bench.device.type == "cpu":
        largest = LARGEST_QUICK_ON_CPU if bench.quick else LARGEST_ON_CPU
    for dtype in DTYPES:
        for size in SIZES:
            if size <= largest:
                _forward_and_backward(bench, dtype, size)


def _forward_and_backward(bench, dtype, size):
    # type: (Bench, torch.dtype, int) -> None
    case = f"{name_of(dtype)} {size}"
    x = torch.randn(size, device=bench.device).to(dtype)
    bytes_each = x.element_size()

    def forward(form):
        # type: (str) -> list
        todo = work.gelu(size, bytes_each, form)
        op = f"gelu {form} {name_of(dtype)}" if size >= SMALLEST_BACKWARD else ""
        return [
            Contender("F.gelu " + form, lambda: functional.gelu(x, approximate=form), todo),
            Contender("jetops " + form, lambda: jetops.gelu(x, form), todo, op),
        ]

    _add(bench, case, forward, 2 * size * bytes_each)
    if size < SMALLEST_BACKWARD:
        return
    grad = torch.randn(size, device=bench.device).to(dtype)
    theirs, ours = torch.ops.aten.gelu_backward, torch.ops.jetops.gelu_backward

    def backward(form):
        # type: (str) -> list
        todo = work.gelu_backward(size, bytes_each, form)
        op = f"gelu {form} backward {name_of(dtype)}"
        return [
            Contender("F.gelu " + form, lambda: theirs(grad, x, approximate=form), todo),
            Contender("jetops " + form, lambda: ours(grad, x, approximate=form), todo, op),
        ]

    _add(bench, case + " backward", backward, 3 * size * bytes_each)


def _add(bench, case, contenders_of, moved):
    # type: (Bench, str, Callable[[str], list], int) -> None
    contenders = [one for form in FORMS for one in contenders_of(form)]
    contenders.append(copy_of(moved, bench.device))
    bench.add(NAME, case, contenders, ["replay", "replay cold", "plain"])

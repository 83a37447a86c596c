"""What this machine can do at most, measured: bytes a second, fp32 arithmetic, the shortest kernel."""

from typing import NamedTuple, Optional

import torch

from .measure import copy_of, say

COPIED_BYTES = 2**30  # read and written together
CPU_COPIED_BYTES = 2**28
CACHED_BYTES = 2**24  # fits the L2 cache of every GPU on which copy_of is near its speed
FMA_UNROLLED, FMA_ROUNDS = 128, 32
FMA_VALUES = 2**24
MATRIX_SIDE, CPU_MATRIX_SIDE = 4096, 2048


class Ceilings(NamedTuple):
    """Of one device. GB/s count bytes read and written; GFLOP/s count an FMA as two."""

    copy_gbps: float
    fma_gflops: float
    fma_how: str
    cached_gbps: Optional[float] = None  # where the data stays in the L2 cache
    smallest_us: Optional[float] = None  # a kernel on one number, by graph replay


def measure(bench):
    # type: (Bench) -> Ceilings
    """Seconds of work. Prints what it finds."""
    with bench.timer.range("ceilings"):
        found = _of_gpu(bench) if bench.device.type == "cuda" else _of_cpu(bench)
    say(f"ceilings {found}")
    return found


def _of_gpu(bench):
    # type: (Bench) -> Ceilings
    copy = _us(bench, copy_of(COPIED_BYTES, bench.device).function, "replay")
    cached = _us(bench, copy_of(CACHED_BYTES, bench.device).function, "replay")
    smallest = _us(bench, copy_of(8, bench.device).function, "replay")
    gflops, how = _fma_rate(bench)
    return Ceilings(COPIED_BYTES / copy / 1e3, gflops, how, CACHED_BYTES / cached / 1e3, smallest)


def _of_cpu(bench):
    # type: (Bench) -> Ceilings
    copy = _us(bench, copy_of(CPU_COPIED_BYTES, bench.device).function, "clock")
    gflops = _matrix_rate(bench, CPU_MATRIX_SIDE, "clock")
    how = f"product of fp32 matrices of side {CPU_MATRIX_SIDE}, {torch.get_num_threads()} threads"
    return Ceilings(CPU_COPIED_BYTES / copy / 1e3, gflops, how)


def _us(bench, function, mode):
    # type: (Bench, Callable[[], object], str) -> float
    outcome = bench.timer.time_all({"ceiling": function}, mode)["ceiling"]
    if isinstance(outcome, Exception):
        raise outcome
    return outcome.median


def _fma_rate(bench):
    # type: (Bench) -> Tuple[float, str]
    """By a kernel of nothing but FMAs, which torch compiles at run time; else by a matrix product."""
    steps = FMA_UNROLLED * FMA_ROUNDS
    try:
        kernel = torch.cuda.jiterator._create_jit_fn(_fma_source())
        x = torch.rand(FMA_VALUES, device=bench.device)
        us = _us(bench, lambda: kernel(x), "plain")
        how = f"kernel of {steps} dependent FMAs for each of {FMA_VALUES} numbers"
        return 2.0 * steps * FMA_VALUES / us / 1e3, how
    except Exception as exc:  # noqa: BLE001  old torch, or no run-time compiler
        reason = str(exc).strip().split("\n")[0][:80]
    gflops = _matrix_rate(bench, MATRIX_SIDE, "plain")
    how = f"product of fp32 matrices of side {MATRIX_SIDE}, tf32 off (no FMA kernel: {reason})"
    return gflops, how


def _fma_source():
    # type: () -> str
    """v = v * x + x over and over, with x in [0, 1): near 1, v grows to the number of steps at most."""
    body = "v = v * x + x; " * FMA_UNROLLED
    return (
        "template <typename T> T jetops_fma(T x) { T v = x; "
        f"for (int i = 0; i < {FMA_ROUNDS}; ++i) {{ {body} }} return v; }}"
    )


def _matrix_rate(bench, side, mode):
    # type: (Bench, int, str) -> float
    a, b = (torch.rand(side, side, device=bench.device) for _ in range(2))
    matmul = torch.backends.cuda.matmul
    before = getattr(matmul, "allow_tf32", None)
    if before is not None:
        matmul.allow_tf32 = False
    try:
        us = _us(bench, lambda: torch.mm(a, b), mode)
    finally:
        if before is not None:
            matmul.allow_tf32 = before
    return 2.0 * side**3 / us / 1e3

"""Which ceiling holds an operator back, from a row and the ceilings of its device."""

from typing import NamedTuple

NEAR = 0.6  # of a ceiling, from where on it is what bounds
SMALLEST_KERNELS = 3.0  # a time of up to so many of the shortest kernels is that of a launch


class Verdict(NamedTuple):
    """Shares are of the copy bandwidth, and of the fp32 instructions that the FMA rate implies."""

    op: str
    case: str
    mode: str
    us: float
    intensity: float  # operations a byte
    gflops: float
    gbps: float
    memory_share: float
    compute_share: float
    bound: str


def judged_rows(rows):
    # type: (List[dict]) -> List[dict]
    """Of each operator that is to be judged the case with most bytes, with a cold cache if there is."""
    preferred = {"replay cold": 0, "replay": 1, "clock": 2, "plain": 3}
    best = {}  # type: Dict[str, dict]
    for row in rows:
        if not row.get("op") or row["us"] is None or row["us"] <= 0 or row["mode"] not in preferred:
            continue
        old = best.get(row["op"])
        rank = (row["bytes"], -preferred[row["mode"]])
        if old is None or rank > (old["bytes"], -preferred[old["mode"]]):
            best[row["op"]] = row
    return list(best.values())


def judge(row, ceilings):
    # type: (dict, dict) -> Verdict
    """Of a row with work and a time."""
    gbps = row["bytes"] / row["us"] / 1e3
    memory_share = gbps / ceilings["copy_gbps"]
    # An FMA is two operations in one instruction, so there are half as many instructions a second.
    most_instructions = ceilings["fma_gflops"] / 2.0
    compute_share = row["instructions"] / row["us"] / 1e3 / most_instructions
    return Verdict(
        op=row["op"],
        case=row["case"],
        mode=row["mode"],
        us=row["us"],
        intensity=row["operations"] / row["bytes"],
        gflops=row["operations"] / row["us"] / 1e3,
        gbps=gbps,
        memory_share=memory_share,
        compute_share=compute_share,
        bound=_bound(row["us"], memory_share, compute_share, ceilings.get("smallest_us")),
    )


def _bound(us, memory_share, compute_share, smallest_us):
    # type: (float, float, float, Optional[float]) -> str
    if max(memory_share, compute_share) >= NEAR:
        return "memory-bound" if memory_share >= compute_share else "compute-bound"
    if smallest_us is None:
        return "neither"  # a CPU's code may be slow for many reasons
    return "launch-bound" if us <= SMALLEST_KERNELS * smallest_us else "latency-bound"


def verdicts(result):
    # type: (dict) -> List[Verdict]
    found = result.get("ceilings", {})
    return [
        judge(row, found[row["device"]])
        for row in judged_rows(result["rows"])
        if row["device"] in found
    ]

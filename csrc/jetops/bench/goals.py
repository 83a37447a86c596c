"""What the operators are meant to reach, each goal compared with the rows of one run."""

from typing import NamedTuple, Optional

NMS_DENSITIES = ("clusters", "dense", "uniform")
NMS_COUNTS = (500, 1000, 2000, 4000, 8000)
GELU_DTYPES = ("float32", "float16", "bfloat16")
GELU_SIZES = (2**10, 2**16, 2**20, 2**24, 2**28)
LARGE_GELU_SIZES = (2**24, 2**28)
FORMS = ("none", "tanh")
DROPOUT_CASE = "bfloat16 8192x16384"
OTHERS_BY_MODE = {
    "replay": ("eager", "compile", "compile max-autotune"),
    "plain": ("eager", "compile", "compile max-autotune", "compile reduce-overhead"),
}


class Outcome(NamedTuple):
    """A goal and what was measured: the worst of its cases. ``met`` is None where nothing was."""

    goal: str
    measured: str
    where: str
    met: Optional[bool]


class Rows:
    """The rows of a run, to be asked for by name."""

    def __init__(self, rows):
        # type: (List[dict]) -> None
        self._by_name = {
            (row["group"], row["case"], row["contender"], row["mode"]): row
            for row in rows
            if row["us"] is not None and row["us"] > 0
        }

    def get(self, group, case, contender, mode):
        # type: (str, str, str, str) -> Optional[dict]
        return self._by_name.get((group, case, contender, mode))

    def ratio(self, group, case, slower, faster):
        # type: (str, str, Tuple[str, str], Tuple[str, str]) -> Optional[float]
        """How many times the first, a contender and its mode, takes as long as the second."""
        one, other = (self.get(group, case, *which) for which in (slower, faster))
        return one["us"] / other["us"] if one and other else None


def outcomes(rows):
    # type: (List[dict]) -> List[Outcome]
    """Of all goals, in their order."""
    found = Rows(rows)
    return _nms(found) + _gelu(found) + _dropout(found) + [_cpu_nms(found)]


def _worst(goal, values, bar, at_least=True, unit=" times", limits=None):
    # type: (str, Dict[str, Optional[float]], float, bool, str, Optional[dict]) -> Outcome
    """Of values by case, compared with the bar; cases without a value are counted and not judged.

    ``limits`` are what the values would be at the speed of a copy.
    """
    known = {case: value for case, value in values.items() if value is not None}
    if not known:
        return Outcome(goal, "not measured", "", None)
    case = (min if at_least else max)(known, key=lambda name: known[name])
    value = known[case]
    where = case
    if len(values) > 1:
        of = "" if len(known) == len(values) else f" of {len(values)}"
        where = f"{case}, the worst of {len(known)}{of}"
    if limits and limits.get(case) is not None:
        where += f"; at the speed of a copy of the same bytes it would be {limits[case]:.2f}"
    met = value >= bar if at_least else value <= bar
    return Outcome(goal, f"{value:.2f}{unit}", where, met)


# ---------------------------------------------------------------- fused_attn_nms


def _nms(rows):
    # type: (Rows) -> List[Outcome]
    found = []
    for bar, counts, said in ((20, (2000,), "N=2000"), (10, NMS_COUNTS, "N=500 to 8000")):
        for mode, how in (
            ("replay", "its graph replay, as torchvision's cannot be captured"),
            ("plain", "both called from Python"),
        ):
            values = {
                f"{density} {count}": rows.ratio(
                    "nms",
                    f"{density} {count}",
                    ("separate kernels", "plain"),
                    ("jetops", mode),
                )
                for count in counts
                for density in NMS_DENSITIES
            }
            goal = (
                f"fused_attn_nms, {said}, all but chains: at least {bar} times faster than separate "
                f"kernels ({how})"
            )
            found.append(_worst(goal, values, bar))
    values = {}
    for density in NMS_DENSITIES:
        row = rows.get("nms", f"{density} 2000", "jetops", "replay")
        values[f"{density} 2000"] = row and row["us"]
    goal = "fused_attn_nms, N=2000, all but chains: at most 25 us by graph replay"
    return found[:2] + [_worst(goal, values, 25.0, at_least=False, unit=" us")] + found[2:]


def _cpu_nms(rows):
    # type: (Rows) -> Outcome
    values = {
        f"{density} 2000": rows.ratio(
            "cpu-nms", f"{density} 2000", ("Python reference", "clock"), ("jetops", "clock")
        )
        for density in NMS_DENSITIES
    }
    goal = "fused_attn_nms on the CPU, N=2000: at least 50 times faster than the Python reference"
    return _worst(goal, values, 50.0)


# ---------------------------------------------------------------- gelu


def _gelu(rows):
    # type: (Rows) -> List[Outcome]
    found = [_never_slower(rows, ""), _never_slower(rows, " backward")]
    large = [f"{dtype} {size}" for dtype in GELU_DTYPES[1:] for size in LARGE_GELU_SIZES]
    for form, bar in (("none", 1.2), ("tanh", 1.08)):
        values = {
            case: rows.ratio(
                "gelu", case, ("F.gelu " + form, "replay"), ("jetops " + form, "replay")
            )
            for case in large
        }
        goal = f"gelu {form}, 16 bits, 2^24 and 2^28: at least {bar} times faster than F.gelu (graph replay)"
        found.append(_worst(goal, values, bar))
    values = {
        f"{case} {form}": rows.ratio("gelu", case, ("jetops " + form, "replay"), ("copy", "replay"))
        for case in large
        for form in FORMS
    }
    goal = "gelu, 16 bits, 2^24 and 2^28: within 10 % of a copy of the same bytes"
    return found + [_worst(goal, values, 1.1, at_least=False, unit=" times the copy")]


def _never_slower(rows, backward):
    # type: (Rows, str) -> Outcome
    """Slower is a case whose quick samples take longer than the slow ones of F.gelu."""
    goal = (
        f"gelu{backward}, all sizes, dtypes and forms: never slower than F.gelu beyond the spread "
        "(graph replay)"
    )
    worst = None  # type: Optional[Tuple[float, str]]
    slower, count = [], 0
    for dtype in GELU_DTYPES:
        for size in GELU_SIZES:
            for form in FORMS:
                case = f"{dtype} {size}{backward}"
                ours = rows.get("gelu", case, "jetops " + form, "replay")
                theirs = rows.get("gelu", case, "F.gelu " + form, "replay")
                if not ours or not theirs:
                    continue
                count += 1
                ratio = ours["us"] / theirs["us"]
                if worst is None or ratio > worst[0]:
                    worst = (ratio, f"{case} {form}")
                if ours["low"] > theirs["high"]:
                    slower.append(f"{case} {form}")
    if worst is None:
        return Outcome(goal, "not measured", "", None)
    where = f"{worst[1]}, the worst of {count}"
    if slower:
        where += "; slower: " + ", ".join(slower)
    return Outcome(goal, f"{worst[0]:.2f} times F.gelu's time", where, not slower)


# ---------------------------------------------------------------- bias_gelu_dropout


def _dropout(rows):
    # type: (Rows) -> List[Outcome]
    found = []
    for bar, backward, said in ((4, "", "forward"), (3, " fwd+bwd", "forward and backward")):
        for mode, others in OTHERS_BY_MODE.items():
            values, limits = {}, {}
            for form in FORMS:
                case = f"{DROPOUT_CASE} {form}{backward}"
                values[case] = _best_over(rows, case, mode, others, "jetops")
                limits[case] = _best_over(rows, case, mode, others, "copy")
            goal = (
                f"bias_gelu_dropout {said}, {DROPOUT_CASE}: at least {bar} times faster than the best "
                f"of eager and torch.compile ({'graph replay' if mode == 'replay' else 'plain calls'})"
            )
            found.append(_worst(goal, values, bar, limits=limits))
    values = {
        f"{DROPOUT_CASE} {form}": rows.ratio(
            "dropout", f"{DROPOUT_CASE} {form}", ("jetops", "replay"), ("copy", "replay")
        )
        for form in FORMS
    }
    goal = f"bias_gelu_dropout forward, {DROPOUT_CASE}: within 1.3 of a copy of the same bytes"
    copied = _worst(goal, values, 1.3, at_least=False, unit=" times the copy")
    return found[:2] + [copied] + found[2:]


def _best_over(rows, case, mode, others, ours):
    # type: (Rows, str, str, Tuple[str, ...], str) -> Optional[float]
    """The quickest of the others over ours, in time.

    None unless both eager and torch.compile were measured: one alone is not the better of two.
    """
    ours = rows.get("dropout", case, ours, mode)
    times = {}
    for name in others:
        row = rows.get("dropout", case, name, mode)
        if row:
            times[name] = row["us"]
    if not ours or "eager" not in times or len(times) < 2:
        return None
    return min(times.values()) / ours["us"]

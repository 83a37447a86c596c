"""Results as a page of Markdown, and what changed between two of them."""

import math

from . import goals, roofline

WIDE_SPREAD = 0.5  # of the median, from the 10th of a hundred samples to the 90th
MANY = 0.2  # of all times
MODES = {
    "replay": "a CUDA graph of several calls, divided by their number: what the GPU needs, without "
    "Python and launches; inputs are in the L2 cache where they fit",
    "replay cold": "the same with the L2 cache filled with something else before each call, the time of "
    "which is taken off; left out where the data is several times the cache",
    "plain": "a call from Python to an idle GPU, from event to event, so dispatch and launch count",
    "plain cold": "the same with the L2 cache filled with something else before",
    "clock": "wall clock",
}


def page(result, plots, changes=""):
    # type: (dict, List[str], str) -> str
    """``plots`` are names of files beside the page; ``changes`` is the text of a comparison."""
    machine = ", ".join(
        f"{key} {value}" for key, value in result["machine"].items() if value is not None
    )
    parts = [
        f"# jetops on {result['machine']['device']}\n",
        (
            f"{machine}. Medians in microseconds, by `python -m jetops.bench`; bench.json beside this has "
            "the spread as well.\n"
        ),
    ]
    noisy = noise(result)
    if noisy:
        parts.append(f"**{noisy}**\n")
    quick = [name for name, about in result.get("groups", {}).items() if about.get("quick")]
    if quick:
        parts.append(f"With --quick, so fewer cases and samples: {', '.join(quick)}.\n")
    if changes:
        parts.append(f"## Changes\n\n```\n{changes}\n```\n")
    parts += [_goals(result), _verdicts(result)]
    if "roofline.png" in plots:
        parts.append("![roofline](roofline.png)\n")
    parts += [_modes(result), _groups(result, plots)]
    return "\n".join(part for part in parts if part)


def noise(result):
    # type: (dict) -> str
    """A sentence about results of which many vary widely, and nothing about others."""
    timed = [row for row in result["rows"] if not _is_missing(row["us"])]
    wide = [row for row in timed if row["high"] - row["low"] > WIDE_SPREAD * row["us"]]
    if len(wide) <= MANY * len(timed):
        return ""
    return (
        f"{len(wide)} of {len(timed)} times have a spread of more than {WIDE_SPREAD:.0%} of their median: "
        "the machine was busy or its clock changes, and differences of that size mean nothing."
    )


def _grid(head, aligns, lines):
    # type: (List[str], List[str], List[List[str]]) -> str
    rows = [head] + lines
    text = ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join([text[0], "|" + "|".join(aligns) + "|"] + text[1:]) + "\n"


def _goals(result):
    # type: (dict) -> str
    found = goals.outcomes(result["rows"])
    lines = [
        [one.goal, one.measured, one.where, "yes" if one.met else "**no**"]
        for one in found
        if one.met is not None
    ]
    text = "## Goals\n\n"
    if lines:
        head, aligns = ["goal", "measured", "where", "met"], ["---", "---:", "---", "---"]
        text += "Both sides of a ratio are of this run.\n\n" + _grid(head, aligns, lines) + "\n"
    missing = len(found) - len(lines)
    if missing:
        text += f"{missing} of {len(found)} goals are about cases that these results do not have.\n"
    return text


def _verdicts(result):
    # type: (dict) -> str
    found = roofline.verdicts(result)
    if not found:
        return ""
    text = ["## What bounds each operator\n"]
    for device, ceilings in result["ceilings"].items():
        text.append(_ceilings(device, ceilings))
    text.append(
        f"A share of {roofline.NEAR:.0%} or more of a ceiling is bound by it. Below, latency-bound "
        "means that the time goes into steps which wait for each other, and launch-bound that the "
        f"whole call takes no longer than {roofline.SMALLEST_KERNELS:.0f} of the shortest kernels; on a "
        "CPU it is called neither. "
        "Bytes are those of inputs and outputs, each moved once; fp32 instructions are counted from the "
        "formulas (jetops/bench/work.py has the derivation).\n"
    )
    lines = [
        [
            one.op,
            f"{one.case}, {one.mode}",
            _number(one.us),
            f"{one.intensity:.1f}",
            f"{one.gbps:.0f} GB/s",
            f"{one.memory_share:.0%}",
            f"{one.compute_share:.0%}",
            one.bound,
        ]
        for one in found
    ]
    head = ["operator", "case", "us", "operations a byte", "moved", "of copy", "of fp32", "verdict"]
    text.append(_grid(head, ["---", "---", "---:", "---:", "---:", "---:", "---:", "---"], lines))
    return "\n".join(text)


def _ceilings(device, found):
    # type: (str, dict) -> str
    parts = [f"a copy by a kernel moves {found['copy_gbps']:.0f} GB/s (read and written)"]
    if found.get("cached_gbps"):
        parts.append(f"{found['cached_gbps']:.0f} GB/s where all stays in the L2 cache")
    parts.append(
        f"fp32 arithmetic is {found['fma_gflops'] / 1e3:.2f} TFLOP/s by a {found['fma_how']}"
    )
    if found.get("smallest_us"):
        parts.append(f"the shortest kernel takes {found['smallest_us']:.2f} us")
    return f"Ceilings of this machine's {device}, measured: {'; '.join(parts)}.\n"


def _modes(result):
    # type: (dict) -> str
    used = {row["mode"] for row in result["rows"]}
    lines = [f"- **{mode}**: {text}." for mode, text in MODES.items() if mode in used]
    return "## How it is measured\n\n" + "\n".join(lines) + "\n"


def _groups(result, plots):
    # type: (dict, List[str]) -> str
    tables = {}  # type: dict
    for row in result["rows"]:
        modes = tables.setdefault(row["group"], {})
        modes.setdefault(row["mode"], {}).setdefault(row["case"], {})[row["contender"]] = row
    parts = []
    for group, modes in tables.items():
        about = result.get("groups", {}).get(group, {})
        parts.append(f"## {group}\n")
        parts += [f"{line}\n" for line in about.get("about", [])]
        if f"{group}.png" in plots:
            parts.append(f"![{group}]({group}.png)\n")
        for mode, table in modes.items():
            parts.append(f"### {group}, {mode}\n\n{_table(table)}")
        notes = _notes(table for table in modes.values())
        remarks = about.get("remarks", [])
        if notes or remarks:
            parts.append("\n".join(f"- {line}" for line in notes + remarks) + "\n")
    return "\n".join(parts)


def _table(table):
    # type: (dict) -> str
    contenders = []  # type: List[str]
    for rows in table.values():
        contenders += [name for name in rows if name not in contenders]
    lines = [
        [case] + [_cell(rows.get(name)) for name in contenders] for case, rows in table.items()
    ]
    return _grid(["case"] + contenders, ["---"] + ["---:"] * len(contenders), lines)


def _cell(row):
    # type: (dict) -> str
    if row is None:
        return ""
    return "cannot" if _is_missing(row["us"]) else _number(row["us"])


def _number(us):
    # type: (float) -> str
    return f"{us:.0f}" if us >= 1e4 else f"{us:.1f}" if us >= 10 else f"{us:.2f}"


def _is_missing(us):
    # type: (Optional[float]) -> bool
    return us is None or math.isnan(us)


def _notes(tables):
    # type: (Iterable[dict]) -> List[str]
    """Why something could not run, each reason once."""
    found = {}  # type: dict
    for table in tables:
        for case, rows in table.items():
            for name, row in rows.items():
                if row["note"]:
                    found.setdefault((name, row["mode"], row["note"]), []).append(case)
    return [
        f"{name}, {mode}, cannot: {note} ({', '.join(cases)})"
        for (name, mode, note), cases in found.items()
    ]


def comparison(old, new):
    # type: (dict, dict) -> str
    """Rows of both runs whose spreads do not touch, the largest change first."""

    def key(row):
        # type: (dict) -> Tuple[str, ...]
        return tuple(row[name] for name in ("group", "case", "contender", "mode"))

    lines = []
    was, now = old["machine"], new["machine"]
    differing = [
        f"{name} {was[name]} -> {now[name]}"
        for name in now
        if now[name] != was.get(name, now[name])
    ]
    if differing:
        lines.append("not of the same machine and versions: " + ", ".join(differing))
    before = {key(row): row for row in old["rows"]}
    changes, compared, failed = [], 0, []
    for row in new["rows"]:
        past = before.get(key(row))
        if past is None or _is_missing(past["us"]):
            continue
        if _is_missing(row["us"]):
            failed.append(f"now it cannot: {' '.join(key(row))} ({row['note']})")
            continue
        compared += 1
        apart = row["low"] > past["high"] or row["high"] < past["low"]
        if apart and row["us"] > 0 and past["us"] > 0:
            changes.append((row["us"] / past["us"], past["us"], row))
    lines.append(
        f"{compared} times compared, {len(changes)} changed beyond the spread of both runs"
    )
    changes.sort(key=lambda change: -abs(math.log(change[0])))
    lines += failed
    lines += [
        f"{ratio:5.2f}x  {was:10.1f} -> {row['us']:10.1f} us  {' '.join(key(row))}"
        for ratio, was, row in changes
    ]
    return "\n".join(lines)

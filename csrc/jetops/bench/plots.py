"""The results as pictures: bars for each group, and a roofline for each device. By matplotlib."""

from . import results, roofline

MISSING = (
    "matplotlib is not installed, so the plots are left out; after `python -m pip install matplotlib`, "
    "`python -m jetops.bench --from {path}` draws them"
)
COLOURS = {
    "Python loop": "#8c6d46",
    "Python reference": "#8c6d46",
    "separate kernels": "#7f7f7f",
    "eager": "#7f7f7f",
    "F.gelu none": "#7f7f7f",
    "F.gelu tanh": "#bdbdbd",
    "compile": "#4c78a8",
    "compile max-autotune": "#7ba7d0",
    "compile reduce-overhead": "#a9c8e6",
    "jetops": "#2e8b57",
    "jetops, plain": "#8fd0ad",
    "jetops none": "#2e8b57",
    "jetops tanh": "#74c69d",
    "copy": "#d9d9d9",
}
OTHER = "#4c78a8"
DPI = 90


class Panel:
    """Bars of one picture: categories along the axis, series side by side; None leaves a gap."""

    def __init__(self, title, categories, series):
        # type: (str, List[str], Dict[str, List[Optional[float]]]) -> None
        self.title = title
        self.categories = categories
        self.series = {
            name: values for name, values in series.items() if any(v is not None for v in values)
        }


def available():
    # type: () -> bool
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return False
    return True


def draw(result, folder):
    # type: (dict, str) -> List[str]
    """Write the pictures of all groups that were measured; returns the names of the files."""
    names = []
    times = {
        (row["group"], row["case"], row["contender"], row["mode"]): row["us"]
        for row in result["rows"]
    }
    for group, make in GROUPS.items():
        panels, label, is_log, line = make(result["rows"], times)
        panels = [panel for panel in panels if panel.series]
        if panels:
            where = _place(result["machine"], "cpu" if group == "cpu-nms" else None)
            figure = _bars(f"{group} on {where}", panels, label, is_log, line)
            names.append(_save(figure, folder, f"{group}.png"))
    if roofline.verdicts(result):
        names.append(_save(_roofline(result), folder, "roofline.png"))
    return names


def _place(machine, device=None):
    # type: (dict, Optional[str]) -> str
    """Where rows of ``device`` were measured: by name, which a GPU's old results lack for the CPU."""
    if device != "cpu" or "capability" not in machine:
        return machine["device"]
    return machine.get("processor") or f"the CPU beside {machine['device']}"


def _save(figure, folder, name):
    # type: (Figure, str, str) -> str
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    with results.replacing(folder, name) as part:
        # matplotlib would write its version there; so the same results make the same bytes.
        figure.savefig(part, format="png", dpi=DPI, metadata={"Software": "jetops.bench"})
    return name


# ---------------------------------------------------------------- what is drawn of each group


def _cases(rows, group):
    # type: (List[dict], str) -> List[str]
    found = []  # type: List[str]
    for row in rows:
        if row["group"] == group and row["case"] not in found:
            found.append(row["case"])
    return found


def _by_density(rows, times, group, series):
    # type: (List[dict], dict, str, Dict[str, Tuple[str, str]]) -> List[Panel]
    """Cases are called "density count"; those with more after the count are left out."""
    counts = {}  # type: Dict[str, List[str]]
    for case in _cases(rows, group):
        density, _, count = case.rpartition(" ")
        if count.isdigit():
            counts.setdefault(density, []).append(count)
    panels = []
    for density, found in counts.items():
        found.sort(key=int)
        values = {
            label: [times.get((group, f"{density} {count}") + which) for count in found]
            for label, which in series.items()
        }
        panels.append(Panel(density, found, values))
    return panels


def _nms(rows, times):
    # type: (List[dict], dict) -> tuple
    series = {
        "Python loop": ("Python loop", "plain"),
        "separate kernels": ("separate kernels", "plain"),
        "jetops, plain": ("jetops", "plain"),
        "jetops": ("jetops", "replay"),
        "copy": ("copy", "replay"),
    }
    label = "us a call (jetops, copy: graph replay)"
    return _by_density(rows, times, "nms", series), label, True, None


def _cpu_nms(rows, times):
    # type: (List[dict], dict) -> tuple
    names = ("Python reference", "separate kernels", "jetops")
    series = {name: (name, "clock") for name in names}
    return _by_density(rows, times, "cpu-nms", series), "us a call", True, None


def _over_the_copy(times, group, cases, names, mode):
    # type: (dict, str, List[str], Iterable[str], str) -> Dict[str, List[Optional[float]]]
    def over(case, name):
        # type: (str, str) -> Optional[float]
        one = times.get((group, case, name, mode))
        copy = times.get((group, case, "copy", mode))
        return one / copy if one and copy else None

    return {name: [over(case, name) for case in cases] for name in names}


def _mode_of(rows, group):
    # type: (List[dict], str) -> str
    modes = {row["mode"] for row in rows if row["group"] == group}
    return "replay" if "replay" in modes else "clock"


def _gelu(rows, times):
    # type: (List[dict], dict) -> tuple
    names = ("F.gelu none", "jetops none", "F.gelu tanh", "jetops tanh")
    mode = _mode_of(rows, "gelu")
    panels = {}  # type: Dict[str, List[str]]
    for case in _cases(rows, "gelu"):
        dtype, _, rest = case.partition(" ")
        panels.setdefault(dtype + (" backward" if "backward" in rest else ""), []).append(case)
    found = []
    for title, cases in panels.items():
        sizes = [f"2^{int(case.split()[1]).bit_length() - 1}" for case in cases]
        found.append(Panel(title, sizes, _over_the_copy(times, "gelu", cases, names, mode)))
    return found, f"time / that of a copy of the same bytes ({mode})", False, 1.0


def _dropout(rows, times):
    # type: (List[dict], dict) -> tuple
    names = ("eager", "compile", "compile max-autotune", "jetops")
    mode = _mode_of(rows, "dropout")
    panels = {}  # type: Dict[str, List[str]]
    for case in _cases(rows, "dropout"):
        dtype, _, form = case.split()[:3]
        panels.setdefault(f"{dtype} {form}", []).append(case)
    found = []
    for title, cases in panels.items():
        labels = [
            case.split()[1].replace("x", "\nx ") + ("\nfwd+bwd" if case.endswith("fwd+bwd") else "")
            for case in cases
        ]
        found.append(Panel(title, labels, _over_the_copy(times, "dropout", cases, names, mode)))
    return found, f"time / that of a copy of the same bytes ({mode})", False, 1.0


def _ingest(rows, times):
    # type: (List[dict], dict) -> tuple
    panels = []
    for case in _cases(rows, "ingest"):
        names = [row["contender"] for row in rows if row["group"] == "ingest"]
        values = [times.get(("ingest", case, name, "clock")) for name in names]
        labels = [name.replace(", ", ",\n").replace(" alone", "\nalone") for name in names]
        panels.append(Panel(case, labels, {"us": values}))
    return panels, "us a frame", False, None


GROUPS = {
    "nms": _nms,
    "cpu-nms": _cpu_nms,
    "gelu": _gelu,
    "dropout": _dropout,
    "ingest": _ingest,
}


# ---------------------------------------------------------------- how it is drawn


def _bars(title, panels, label, is_log, line):
    # type: (str, List[Panel], str, bool, Optional[float]) -> Figure
    from matplotlib.figure import Figure

    columns = 2 if len(panels) in (2, 4) else min(3, len(panels))
    lines = -(-len(panels) // columns)
    figure = Figure(figsize=(4.2 * columns + 0.4 if len(panels) > 1 else 9.0, 3.1 * lines + 0.7))
    legend = {}  # type: dict
    for index, panel in enumerate(panels):
        axes = figure.add_subplot(lines, columns, index + 1)
        _one_panel(axes, panel, is_log, line, legend)
        if index % columns == 0:
            axes.set_ylabel(label, fontsize=7)
    figure.suptitle(title, fontsize=10)
    if len(legend) > 1:
        figure.legend(
            list(legend.values()), list(legend), loc="lower center", ncol=len(legend), fontsize=7
        )
    figure.tight_layout(rect=(0, 0.06, 1, 0.96))
    return figure


def _one_panel(axes, panel, is_log, line, legend):
    # type: (Axes, Panel, bool, Optional[float], dict) -> None
    width = 0.84 / len(panel.series)
    for place, (name, values) in enumerate(panel.series.items()):
        shift = (place - (len(panel.series) - 1) / 2.0) * width
        known = [(spot, value) for spot, value in enumerate(values) if value is not None]
        bars = axes.bar(
            [spot + shift for spot, _ in known],
            [value for _, value in known],
            width,
            color=COLOURS.get(name, OTHER),
        )
        legend.setdefault(name, bars)
    axes.set_title(panel.title, fontsize=9)
    axes.set_xticks(range(len(panel.categories)))
    axes.set_xticklabels(panel.categories, fontsize=7)
    axes.tick_params(axis="y", labelsize=7)
    most = max(value for values in panel.series.values() for value in values if value is not None)
    if is_log or (line is not None and most > LARGEST_LINEAR * line):
        axes.set_yscale("log")
    if len(panel.series) == 1:
        for bar, (_, value) in zip(bars, known):
            middle = bar.get_x() + bar.get_width() / 2
            axes.text(middle, value, f"{value:.0f}", fontsize=7, ha="center", va="bottom")
    if line is not None:
        axes.axhline(line, color="#444444", linewidth=0.8, linestyle="--")
    axes.grid(axis="y", linewidth=0.3)
    axes.set_axisbelow(True)


LARGEST_LINEAR = 20.0  # times the line; what is larger still would hide all others
MARKERS = "osD^v<>Pphd*X8"
BEYOND_THE_RIDGE = 2.0  # how far a roofline goes on, with room for the words on it


def _roofline(result):
    # type: (dict) -> Figure
    from matplotlib.figure import Figure

    by_device = {}  # type: dict
    devices = {row["op"]: row["device"] for row in result["rows"] if row.get("op")}
    for one in roofline.verdicts(result):
        by_device.setdefault(devices[one.op], []).append(one)
    figure = Figure(figsize=(11.5, 4.8 * len(by_device)))
    for place, (device, found) in enumerate(by_device.items()):
        axes = figure.add_subplot(len(by_device), 1, place + 1)
        _roofs(axes, result["ceilings"][device], found)
        axes.set_title(_place(result["machine"], device), fontsize=9)
    figure.subplots_adjust(left=0.07, right=0.6, bottom=0.11, top=0.93)
    return figure


def _roofs(axes, ceilings, found):
    # type: (Axes, dict, List[roofline.Verdict]) -> None
    """Slopes are bandwidths, the flat lines fp32 with FMAs alone and without any."""
    most = ceilings["fma_gflops"]
    ridges = [most / ceilings[name] for name in ("copy_gbps", "cached_gbps") if ceilings.get(name)]
    intensities = [one.intensity for one in found]
    left = min(0.1, min(intensities) / 2)
    right = BEYOND_THE_RIDGE * max(ridges + intensities)

    def slope(gbps, style, label):
        # type: (float, str, str) -> None
        ridge = most / gbps
        axes.plot([left, ridge], [left * gbps, most], style, linewidth=1.2, label=label)

    slope(ceilings["copy_gbps"], "k-", f"copy {ceilings['copy_gbps']:.0f} GB/s")
    if ceilings.get("cached_gbps"):
        slope(ceilings["cached_gbps"], "k:", f"copy in L2 {ceilings['cached_gbps']:.0f} GB/s")
    axes.plot([left, right], [most, most], "-", color="#c44e52", linewidth=1.2)
    axes.plot([left, right], [most / 2, most / 2], "--", color="#c44e52", linewidth=0.8)
    axes.text(right, most * 1.08, f"fp32 FMA {most / 1e3:.3g} TFLOP/s", fontsize=7, ha="right")
    axes.text(right, most / 2 * 1.08, "fp32 without FMA", fontsize=7, ha="right")
    for index, one in enumerate(found):
        axes.plot(
            [one.intensity],
            [one.gflops],
            MARKERS[index % len(MARKERS)],
            markersize=5,
            linestyle="none",
            label=f"{one.op}: {one.bound}, {max(one.memory_share, one.compute_share):.0%}",
        )
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(left, right)
    axes.set_xlabel("operations a byte", fontsize=8)
    axes.set_ylabel("GFLOP/s", fontsize=8)
    axes.tick_params(labelsize=7)
    axes.grid(which="both", linewidth=0.2)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), fontsize=6.5, frameon=False)

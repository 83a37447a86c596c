"""Times the operators of jetops against what one would use without them, on one device.

Writes bench.json, bench.md and, where matplotlib is installed, plots.
"""

import argparse
import os
import platform
import re
import sys
import time
import traceback

import torch

import jetops

from . import ceilings, cpu_nms, dropout, gelu, ingest, nms, plots, report, results
from .measure import Bench, explained, say

GROUPS = {module.NAME: module for module in (nms, gelu, dropout, ingest, cpu_nms)}
PAGE = "bench.md"
EXIT_FAILED = 1
EXIT_MISUSED = 2
EXIT_INTERRUPTED = 130


def groups_for(device):
    # type: (torch.device) -> List[str]
    """The CPU's NMS is a group of its own, and a GPU's run has it as well."""
    return [name for name in GROUPS if device.type == "cuda" or name != nms.NAME]


def machine(device):
    # type: (torch.device) -> dict
    """What the results depend on. They are put together only where all of it is the same."""
    found = {
        "device": _processor(),
        "torch": torch.__version__,
        "jetops": jetops.__version__,
        "cuda": torch.version.cuda,
        "cores": os.cpu_count(),
    }
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["processor"] = found["device"]  # the group cpu-nms runs there
        found["device"] = properties.name
        found["capability"] = f"{properties.major}.{properties.minor}"
        found["processors"] = properties.multi_processor_count
    return found


def _processor():
    # type: () -> str
    """As Linux names it; Arm's machines often do not."""
    try:
        with open("/proc/cpuinfo") as stream:
            for line in stream:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def parsed(words):
    # type: (Optional[List[str]]) -> argparse.Namespace
    parser = argparse.ArgumentParser(prog="python -m jetops.bench", description=__doc__)
    default = "cuda" if torch.cuda.is_available() else "cpu"
    parser.add_argument("--device", help=f"default here: {default}")
    parser.add_argument("--only", help="groups, with commas, of " + ", ".join(GROUPS))
    parser.add_argument("--quick", action="store_true", help="fewer samples and cases")
    parser.add_argument(
        "--out",
        help="folder for the results (default: this one, or that of --from); with --only, other groups "
        "there stay",
    )
    parser.add_argument("--compare", metavar="OLD.json", help="show changes since that run")
    parser.add_argument(
        "--from",
        dest="source",
        metavar="BENCH.json",
        help="measure nothing: make page and plots of these results again, beside them or in --out",
    )
    options = parser.parse_args(words)
    _refuse_empty(parser, options)
    if options.source is not None:
        _refuse_measuring(parser, options)
        options.out = options.out or os.path.dirname(options.source) or "."
        return options
    options.out = options.out or "."
    options.device = _device(parser, options.device or default)
    known = groups_for(options.device)
    options.names = known if options.only is None else _words(options.only)
    unknown = [name for name in options.names if name not in known]
    if unknown:
        parser.error(f"no group {unknown[0]} on {options.device}; there are {', '.join(known)}")
    return options


def _words(text):
    # type: (str) -> List[str]
    """What stands between commas; nothing may stand there, as after the last."""
    return [word.strip() for word in text.split(",") if word.strip()]


def _refuse_empty(parser, options):
    # type: (argparse.ArgumentParser, argparse.Namespace) -> None
    """It may have been meant to be a shell variable; the default would be a surprise."""
    for option, value in (
        ("--device", options.device),
        ("--only", options.only),
        ("--out", options.out),
        ("--compare", options.compare),
        ("--from", options.source),
    ):
        if value is not None and not value.strip(" ," if option == "--only" else None):
            parser.error(f"{option} is empty; leave it out or give a value")


def _refuse_measuring(parser, options):
    # type: (argparse.ArgumentParser, argparse.Namespace) -> None
    for option, value in (
        ("--device", options.device),
        ("--only", options.only),
        ("--quick", options.quick),
    ):
        if value:
            parser.error(
                f"{option} says how to measure, and --from measures nothing; leave out one"
            )


def _device(parser, word):
    # type: (argparse.ArgumentParser, str) -> torch.device
    """torch knows more devices than there are kernels for."""
    if not re.match(r"(cpu|cuda(:(0|[1-9][0-9]{0,2}))?)\Z", word):
        parser.error(f"no device {word}; it is cuda, cuda:0, ... or cpu")
    if word == "cpu":
        return torch.device(word)
    if not torch.cuda.is_available():
        parser.error("torch sees no GPU here; --device cpu measures what makes sense without one")
    index = int(word.partition(":")[2] or 0)
    if index >= torch.cuda.device_count():
        parser.error(f"no device {word}; GPUs that torch sees here: {torch.cuda.device_count()}")
    return torch.device(word)


def measured(options, saved):
    # type: (argparse.Namespace, List[str]) -> dict
    """Run the groups. Each one's rows are on the disk, and its name in ``saved``, as soon as it ends."""
    bench = Bench(options.device, options.quick)
    result = results.begin(options.out, machine(options.device), only_some=options.only is not None)
    for index, name in enumerate(options.names):
        group = GROUPS[name]
        own = bench.on(torch.device("cpu")) if group is cpu_nms else bench.on(options.device)
        if index == 0 or own.device.type not in result["ceilings"]:
            found = ceilings.measure(own)
            result["ceilings"] = dict(result["ceilings"], **{own.device.type: found._asdict()})
        say(f"[{index + 1}/{len(options.names)}] {name}")
        about = _run_one(group, own, options.quick)
        rows = [dict(row._asdict()) for row in own.rows]
        result = results.with_group(result, name, rows, about)
        results.save(options.out, result)
        saved.append(name)
        say(f"         {name} took {about['seconds']:.0f} s")
    return result


def _run_one(group, bench, quick):
    # type: (ModuleType, Bench, bool) -> dict
    """What there is to say of a group's rows. If it breaks off, the other groups may still run."""
    about = {"quick": quick, "remarks": bench.remarks}
    start = time.perf_counter()
    try:
        with bench.timer.range(group.NAME):
            group.run(bench)
    except Exception as exc:  # noqa: BLE001  a kernel that breaks can raise anything
        traceback.print_exc()
        about["failed"] = str(exc).split("\n")[0]
        bench.remark(f"**broken off**: {about['failed']}")
    about["about"] = group.ABOUT + explained(group.CONTENDERS, bench.rows)
    about["seconds"] = round(time.perf_counter() - start, 1)
    return about


def publish(result, folder, source, old):
    # type: (dict, str, str, Optional[dict]) -> Tuple[str, List[str]]
    """Write page and plots; returns the page, and the names of the files.

    ``source`` is the file of the results, ``old`` are other ones to compare with.
    """
    drawn = []
    if plots.available():
        drawn = plots.draw(result, folder)
    else:
        say(plots.MISSING.format(path=source))
    page = report.page(result, drawn, report.comparison(old, result) if old else "")
    results.write_text(folder, PAGE, page)
    return page, drawn + [PAGE]


def main(words=None):
    # type: (Optional[List[str]]) -> int
    options = parsed(words)
    source = options.source or os.path.join(options.out, results.FILE)
    saved = []  # type: List[str]
    try:
        # Now, and not after minutes of work, which may write to this very file.
        old = None if options.compare is None else results.read(options.compare)
        result = None if options.source is None else results.read(options.source)
        results.prepare(options.out)
        result = result or measured(options, saved)
        page, written = publish(result, options.out, source, old)
        print(page)
    except results.ResultsError as exc:
        say(f"python -m jetops.bench: error: {exc}")
        return EXIT_MISUSED
    except results.WriteError as exc:
        again = f"; after that, `python -m jetops.bench --from {source}` makes page and plots"
        say(
            f"python -m jetops.bench: error: {exc}; make room there or name another folder with --out"
            + (again if saved or options.source is not None else "; nothing of this run was saved")
        )
        return EXIT_FAILED
    except KeyboardInterrupt:
        say(f"python -m jetops.bench: interrupted; {_kept(saved, source)}")
        return EXIT_INTERRUPTED
    noise = report.noise(result)
    if noise:
        say(f"python -m jetops.bench: warning: {noise}")
    written += [results.FILE] if options.source is None else []
    say(f"written to {options.out}: {', '.join(sorted(written))}")
    failed = failures(result)
    for line in failed:
        say(f"python -m jetops.bench: error: {line}")
    return EXIT_FAILED if failed else 0


def _kept(saved, source):
    # type: (List[str], str) -> str
    """What an interrupted run leaves, where ``source`` is the file of the results."""
    if saved:
        return f"{', '.join(saved)} of this run is in {source}"
    return f"{source} is as it was" if os.path.exists(source) else "nothing was saved"


def failures(result):
    # type: (dict) -> List[str]
    """What of jetops itself could not be measured; that others cannot run is a result."""
    broken = [
        f"{name} broke off: {about['failed']}"
        for name, about in result["groups"].items()
        if "failed" in about
    ]
    return broken + [
        f"{row['group']}, {row['case']}, {row['contender']}, {row['mode']}: {row['note']}"
        for row in result["rows"]
        if row["us"] is None and row["contender"].startswith("jetops")
    ]


if __name__ == "__main__":
    sys.exit(main())

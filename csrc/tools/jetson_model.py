"""A model of how long jetops takes on Jetsons that nobody measured, as Markdown:

    python csrc/tools/jetson_model.py --bench docs/benchmarks/h200/bench.json docs/benchmarks/jetson-model.md

Bytes and instructions of each piece of work are known: the first by what it reads and writes, the
second from the machine code for each GPU (instructions.json, which kernel_instructions.py writes).
What a GPU could do at best is in jetson_model.yaml. How near to that a kernel comes is measured: on
the GPU that the benchmark ran on, by `python -m jetops.bench`. Needs PyYAML and no GPU.

    memory      bytes / (bandwidth of the data sheet * share of it that a copy reached, measured)
    arithmetic  instructions of the busiest pipe / (its threads a clock * processors * clock)
    elementwise the longer of the two, summed over its kernels, / efficiency
    efficiency  the same quotient where it was measured: the longer of the two / time
    nms         the longer of memory and arithmetic + the rest, which is measured in clocks
"""

from __future__ import annotations

import argparse
import difflib
import json
import math
import sys
from pathlib import Path
from typing import Any, NamedTuple, Sequence

import yaml
from kernels_by_arch import CompileError, add_page, require_writable, write_page

TOOLS = Path(__file__).resolve().parent
INSTRUCTIONS = TOOLS.parents[1] / "docs/benchmarks/instructions.json"
STORE_BYTES = 16  # what instructions.json counts for


class ModelError(Exception):
    """Something that the model needs is missing or makes no sense."""


class Gpu(NamedTuple):
    """A GPU: GB/s of memory, processors (SM), MHz, and threads a clock and processor by pipe."""

    title: str
    board: str
    arch: str
    cuda: str
    bandwidth: float
    processors: int
    clock: float
    source: str
    pipes: dict[str, float]
    shared: tuple[tuple[str, ...], ...]

    def microseconds(self, counts: dict[str, float]) -> float:
        """Of the busiest pipe, for that many instructions of threads in each."""
        clocks = {pipe: count / self.pipes[pipe] for pipe, count in counts.items()}
        together = [sum(clocks.get(pipe, 0.0) for pipe in pipes) for pipes in self.shared]
        return max(*clocks.values(), *together) / self.processors / self.clock


class Row(NamedTuple):
    """A row of the benchmark, as far as the model reads it."""

    group: str
    case: str
    contender: str
    mode: str
    us: float
    bytes: float | None

    @property
    def key(self) -> tuple[str, str, str, str]:
        return (self.group, self.case, self.contender, self.mode)

    @property
    def said(self) -> str:
        return f"{self.group} {self.case}: {self.contender} ({self.mode})"


class Bench:
    """The rows of a benchmark, and the machine that it ran on."""

    def __init__(self, machine: dict[str, Any], rows: Sequence[dict[str, Any]]) -> None:
        self.machine = machine
        # What could not be timed is NaN, which JSON need not know.
        kept = [
            Row(**{**{name: row[name] for name in Row._fields}, "us": row["us"] or math.nan})
            for row in rows
        ]
        self.rows = {row.key: row for row in kept}

    def find(self, group: str, case: str, contender: str, mode: str) -> Row:
        """A row that was timed.

        Raises:
            ModelError: there is none; names the nearest.
        """
        key = (group, case, contender, mode)
        row = self.rows.get(key)
        if row is None:
            known = [" / ".join(one) for one in self.rows]
            near = difflib.get_close_matches(" / ".join(key), known, n=3, cutoff=0)
            raise ModelError(
                f"the benchmark has no row {' / '.join(key)}; its nearest are "
                f"{'; '.join(near) or 'none'}. Correct `measured` in jetson_model.yaml"
            )
        if not row.us > 0:
            raise ModelError(f"the benchmark could not time {' / '.join(key)}")
        return row

    def copy_rate(self, contender: str) -> float:
        """GB/s of the fastest copy of those that moved most, reading and writing counted."""
        copies = [row for row in self.rows.values() if row.contender == contender and row.us > 0]
        if not copies or not max(row.bytes or 0 for row in copies):
            raise ModelError(f"the benchmark has no timed row of a {contender}")
        largest = max(copies, key=lambda row: (row.bytes or 0, -row.us))
        return (largest.bytes or 0) / largest.us / 1e3


class Estimate(NamedTuple):
    """Microseconds, and what they are spent on: memory, arithmetic or order."""

    us: float
    bound: str


class Case(NamedTuple):
    """A piece of work: what was measured, what that says, and what follows for each Jetson.

    What was measured may be of another element type than the work. `efficiency` is what the best
    possible time is of the measured one, for elementwise work.
    """

    title: str
    measured: Row
    bound: str
    finding: str
    efficiency: float | None
    estimates: tuple[Estimate, ...]


class Model:
    """The facts of jetson_model.yaml with a benchmark and the counts of instructions.

    Raises:
        ModelError: the benchmark ran on another GPU than the facts say.
    """

    def __init__(
        self, facts: dict[str, Any], bench: Bench, instructions: Sequence[dict[str, Any]]
    ) -> None:
        self.facts = facts
        self.bench = bench
        self.reference = _gpu(facts, facts["reference"])
        self.gpus = tuple(_gpu(facts, row) for row in facts["gpus"])
        device = bench.machine.get("device")
        if device != facts["reference"]["device"]:
            raise ModelError(
                f"the benchmark ran on {device}; jetson_model.yaml knows "
                f"{facts['reference']['device']}: describe that GPU under `reference`"
            )
        self.counts = {
            (row["kernel"], row["arguments"], row["arch"], row["cuda"]): row for row in instructions
        }
        self.copy_share = bench.copy_rate(facts["copy_contender"]) / self.reference.bandwidth

    def cases(self) -> list[Case]:
        """All that is modelled."""
        nms = self.facts["nms"]
        return [self._elementwise(one) for one in self.facts["elementwise"]] + [
            self._nms(nms, boxes) for boxes in nms["boxes"]
        ]

    def memory(self, gpu: Gpu, size: float) -> float:
        """Microseconds for reading and writing so many bytes."""
        return size / (gpu.bandwidth * self.copy_share) / 1e3

    def _elementwise(self, case: dict[str, Any]) -> Case:
        row = self.bench.find(**case["measured"])
        copy = self.bench.find(**{**case["measured"], "contender": self.facts["copy_contender"]})
        steps = case["steps"]
        tensors = sum(step["tensors"] for step in steps)
        best = [
            (copy.us * step["tensors"] / tensors, self._arithmetic(self.reference, case, step))
            for step in steps
        ]
        efficiency = sum(map(max, best)) / row.us
        share = [sum(times) / row.us for times in zip(*best)]
        return Case(
            case["title"],
            row,
            _bound(best),
            f"{share[0]:.0%} of a copy's rate, {share[1]:.0%} of the instruction rate: "
            f"efficiency {efficiency:.0%}",
            efficiency,
            tuple(self._scaled(gpu, case, efficiency) for gpu in self.gpus),
        )

    def _scaled(self, gpu: Gpu, case: dict[str, Any], efficiency: float) -> Estimate:
        size = case["elements"] * case["element_bytes"]
        best = [
            (self.memory(gpu, size * step["tensors"]), self._arithmetic(gpu, case, step))
            for step in case["steps"]
        ]
        return Estimate(sum(map(max, best)) / efficiency, _bound(best))

    def _arithmetic(self, gpu: Gpu, case: dict[str, Any], step: dict[str, Any]) -> float:
        arguments = step["arguments"]
        if gpu is self.reference:
            arguments = step.get("reference_arguments", arguments)
        key = (step["kernel"], arguments, gpu.arch, gpu.cuda)
        if key not in self.counts:
            raise ModelError(
                f"instructions.json has no row {' / '.join(key)}: write it anew with "
                "kernel_instructions.py, or correct `steps` in jetson_model.yaml"
            )
        stores = case["elements"] * case["element_bytes"] / STORE_BYTES
        return gpu.microseconds({pipe: self.counts[key][pipe] * stores for pipe in gpu.pipes})

    def _nms(self, case: dict[str, Any], boxes: int) -> Case:
        words = {key: text.format(boxes=boxes) for key, text in case["measured"].items()}
        row = self.bench.find(**words)
        copy = self.bench.find(**{**words, "contender": self.facts["copy_contender"]})
        pairs = boxes * (boxes - 1) / 2 * case["pair_instructions"]
        arithmetic = self.reference.microseconds({"issued": pairs})
        rest = row.us - max(copy.us, arithmetic)
        if rest < 0:
            raise ModelError(f"{row.key} was faster than a copy of attn_map: {row.us} us")
        clocks = rest * self.reference.clock
        size = boxes * boxes * case["attn_element_bytes"]
        estimates = []
        for gpu in self.gpus:
            parts = {
                "memory": self.memory(gpu, size),
                "arithmetic": gpu.microseconds({"issued": pairs}),
                "order": clocks / gpu.clock,
            }
            total = max(parts["memory"], parts["arithmetic"]) + parts["order"]
            estimates.append(Estimate(total, max(parts, key=lambda name: parts[name])))
        measured = {"memory": copy.us, "arithmetic": arithmetic, "order": rest}
        return Case(
            case["title"].format(boxes=boxes),
            row,
            max(measured, key=lambda name: measured[name]),
            f"{copy.us:.1f} us a copy of attn_map, {arithmetic:.1f} us arithmetic, "
            f"{clocks / 1e3:.0f} thousand clocks besides",
            None,
            tuple(estimates),
        )


def _bound(best: Sequence[tuple[float, float]]) -> str:
    """What most of the time goes into, of (memory, arithmetic) of each kernel."""
    memory = sum(one for one, other in best if one >= other)
    return "memory" if memory >= sum(map(max, best)) / 2 else "arithmetic"


def _gpu(facts: dict[str, Any], row: dict[str, Any]) -> Gpu:
    named = {name: row[name] for name in Gpu._fields if name in row}
    arch, cuda = str(row["arch"]), str(row["cuda"])
    shared = tuple(tuple(pipes) for pipes in facts["shared"][arch])
    return Gpu(
        **{**named, "arch": arch, "cuda": cuda, "pipes": facts["pipes"][arch], "shared": shared}
    )


HEADING = """\
# jetops on Jetsons: a model, not a measurement

    python csrc/tools/jetson_model.py --bench {bench} docs/benchmarks/jetson-model.md

**No Jetson was at hand.** The times for Jetsons below are computed, from the bytes and instructions of
the work, the data sheets of the boards and the efficiency that the same kernels reached on {reference}.
`csrc/tools/jetson_model.py` says how, and `jetson_model.yaml` beside it where each number was read. What
the model takes for granted: that a copy reaches the same share of the data sheet's bandwidth on
LPDDR as on HBM ({share:.0%}), that kernels come as near to what is possible as there, that the
power mode is the fastest, and that nothing else uses the memory, which CPU and GPU share. Launches are
not counted. A real board is likely slower; what limits it, and by how much, is what this is for.
"""

NOTES = """\
\\* bound by something else than on the {reference}, so that its efficiency is that of another limit.
*Order* is what the NMS does besides: it decides about boxes that depend on each other, and blocks wait
for each other. Its clocks were measured and are taken to be the same on every GPU, which is too kind
to those of few processors.
"""


def page(model: Model, bench: str) -> str:
    """The whole page."""
    reference = model.reference.title
    parts = [HEADING.format(bench=bench, reference=f"an {reference}", share=model.copy_share)]
    cases = model.cases()
    parts.append(f"## Measured on the {reference}\n")
    parts.append(_table(
        ["case of the benchmark", "stands for", "us", "bound by", "share reached"],
        [[case.measured.said, case.title, f"{case.measured.us:.1f}", case.bound, case.finding]
         for case in cases],
    ))  # fmt: skip
    parts.append("## Model: microseconds, and what bounds them\n")
    parts.append(_table(
        ["work", *(gpu.title for gpu in model.gpus)],
        [[case.title, *(_cell(case, one) for one in case.estimates)] for case in cases],
    ))  # fmt: skip
    parts.append(NOTES.format(reference=reference))
    parts.append("## The boards\n")
    parts.append(_table(
        ["board", "capability", "GB/s", "GB/s of a copy (model)", "SM", "MHz", "source"],
        [_facts(model, gpu) for gpu in (model.reference, *model.gpus)],
    ))  # fmt: skip
    return "\n".join(parts)


def _cell(case: Case, estimate: Estimate) -> str:
    borrowed = "\\*" if case.efficiency and estimate.bound != case.bound else ""
    return f"{_three_digits(estimate.us)} {estimate.bound}{borrowed}"


def _three_digits(us: float) -> str:
    if us < 100:
        return f"{us:.1f}"
    places = 2 - math.floor(math.log10(us))
    return f"{round(us, places):.0f}"


def _facts(model: Model, gpu: Gpu) -> list[str]:
    copy = gpu.bandwidth * model.copy_share
    numbers = [f"{gpu.bandwidth:g}", f"{copy:.0f}", f"{gpu.processors}", f"{gpu.clock:g}"]
    return [gpu.title, gpu.arch, *numbers, gpu.source]


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines)


def read(bench: Path, instructions: Path) -> Model:
    """Put a model together from its files.

    Raises:
        ModelError: a file is missing or not what it should be.
    """
    facts = yaml.safe_load((TOOLS / "jetson_model.yaml").read_text())
    measured = _document(bench, ("machine", "rows"), "`python -m jetops.bench`")
    counted = _document(instructions, ("rows",), "kernel_instructions.py")
    try:
        benchmark = Bench(measured["machine"], measured["rows"])
    except (KeyError, TypeError) as error:
        raise ModelError(f"{bench} has a row without {error}: measure again") from error
    try:
        return Model(facts, benchmark, counted["rows"])
    except (KeyError, TypeError) as error:
        raise ModelError(
            f"jetson_model.yaml or a row of {instructions} is without {error}: write the latter anew "
            "with kernel_instructions.py"
        ) from error


def _document(file: Path, parts: Sequence[str], writer: str) -> dict[str, Any]:
    """A JSON file that has these parts; `writer` is named to whoever gave another."""
    try:
        document = json.loads(file.read_text())
    except OSError as error:
        raise ModelError(f"{file} cannot be read ({error.strerror}): {writer} writes it") from error
    except ValueError as error:
        raise ModelError(f"{file} is no JSON ({error}): {writer} writes it") from error
    for part in parts:
        if not isinstance(document, dict) or part not in document:
            raise ModelError(f"{file} has no `{part}`: name a file that {writer} wrote")
    return document


def main() -> None:
    """Read, compute, and write or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_page(parser)
    parser.add_argument("--bench", type=Path, required=True, help="what jetops.bench wrote")
    parser.add_argument("--instructions", type=Path, default=INSTRUCTIONS)
    arguments = parser.parse_args()
    if arguments.page:
        require_writable(arguments.page)
    text = page(read(arguments.bench, arguments.instructions), str(arguments.bench))
    write_page(text, arguments.page)


if __name__ == "__main__":
    try:
        main()
    except (CompileError, ModelError) as error:
        sys.exit(f"error: {error}")

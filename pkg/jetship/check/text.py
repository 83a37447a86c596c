"""Reports for people who read a terminal or a log."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from jetship.check.findings import Outcome, Report
from jetship.check.fold import Folded, blocking_first, fold, fold_all, sentence
from jetship.check.matrix import Column, Matrix
from jetship.check.rules_torch import RULE as TORCH_CODE

_SHOWN = 8
_MOST_BOARDS = 4
_DERIVED = (
    "[derived]: proved with upstream's build of the same release, not with the device's own "
    "libraries; --image, or --sysroot and --torch-wheel, or --libraries with what `invoke probe` "
    "has read of a device, name those"
)
MARKS: Mapping[Outcome, str] = {"pass": "ok", "fail": "FAIL", "unknown": "????"}
_ORDER: Mapping[Outcome, int] = {"pass": 0, "unknown": 1, "fail": 2}
NOT_ASKED = "-"


def render(report: Report) -> str:
    """Return one report: what blocks first, a sentence each; what passed in a line."""
    derived = " [derived]" if report.passes_derived else ""
    lines = [f"{report.wheel} for {report.target}: {report.outcome}{derived}"]
    rows = fold(report)
    for row in blocking_first(rows):
        lines += _lines(row)
    passed = [row for row in rows if row.outcome == "pass"]
    for rule in dict.fromkeys(row.rule for row in passed):
        lines += _passes([row for row in passed if row.rule == rule])
    if report.is_derived:
        lines.append(_DERIVED)
    return "\n".join(lines)


def _passes(rows: list[Folded]) -> Iterable[str]:
    files = sum(len(row.subjects) for row in rows)
    if files > _SHOWN:
        yield f"ok   {rows[0].rule}: {files} files"
        return
    for row in rows:
        grade = f" [{row.grade}]" if row.grade == "derived" else ""
        for subject in row.subjects:
            yield f"ok   {row.rule}: {subject}: {row.reason}{grade}"


def _lines(row: Folded, *, targets: str = "") -> Iterable[str]:
    accepted = row.outcome == "unknown" and row.accepted is not None
    mark = "ok ?" if accepted else MARKS[row.outcome]
    yield f"{mark:<4} {row.rule}: {row.subject}: {row.reason}"
    if targets:
        yield f"     on {targets}"
    yield from (f"       {text}" for text in row.evidence[:_SHOWN])
    if len(row.evidence) > _SHOWN:
        yield f"       and {len(row.evidence) - _SHOWN} more"
    if accepted:
        yield f"     accepted: {row.accepted}"
    elif row.fix:
        yield f"     fix: {row.fix}"


def table(matrix: Matrix) -> tuple[list[str], list[list[str]]]:
    """Return the head and the rows of wheels x targets; the longer side goes down."""
    subjects = [number for number, one in enumerate(matrix.subjects) if one.question != "platforms"]
    columns = [
        place
        for place in range(len(matrix.columns))
        if any((number, place) in matrix.reports for number in subjects)
    ]
    names = {number: matrix.subjects[number].name for number in subjects}
    ids = {place: matrix.columns[place].target.id for place in columns}
    cells = {key: _cell(report) for key, report in matrix.reports.items()}
    errors = {number for number in subjects if matrix.subjects[number].error is not None}
    if len(columns) > len(subjects):
        return ["", *names.values()], [
            [
                ids[place],
                *("no wheel" if number in errors else cells.get((number, place), NOT_ASKED)
                  for number in subjects),
            ]
            for place in columns
        ]  # fmt: skip
    return ["", *ids.values()], [
        [
            names[number],
            *("no wheel" if number in errors else cells.get((number, place), NOT_ASKED)
              for place in columns),
        ]
        for number in subjects
    ]  # fmt: skip


def _cell(report: Report) -> str:
    derived = " (derived)" if report.passes_derived else ""
    return MARKS[report.outcome] + derived


def reasons(matrix: Matrix, subject: int) -> str:
    """Return what keeps a wheel from its targets, each sentence once for all of them."""
    reports = [report for _, report in matrix.of(subject)]
    failed = [report for report in reports if report.outcome != "pass"]
    if not failed:
        return ""
    lines = [f"{matrix.subjects[subject].name}:"]
    for row in blocking_first(fold_all(failed)):
        if row.blocks:
            on = "" if len(reports) == 1 else _targets(row.targets, len(reports))
            lines += _lines(row, targets=on)
    return "\n".join(lines)


def _targets(names: Sequence[str], count: int) -> str:
    if len(names) == count:
        return f"all {count} targets"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def platform_rows(matrix: Matrix, subject: int) -> list[tuple[Outcome, str, str, str]]:
    """Return outcome, platform, boards and reason for the question on what a wheel runs.

    Boards of one platform that have the same answer share a row; what it runs on comes first.
    """
    rows: dict[tuple[str, Outcome, str], list[Column]] = {}
    for column, report in matrix.of(subject):
        name = column.target.platform.name
        said = sentence(report).replace(report.target, name)
        said = said or "; ".join(_remarks(report))
        rows.setdefault((name, report.outcome, said), []).append(column)
    found = [
        (outcome, name, _boards(columns), said) for (name, outcome, said), columns in rows.items()
    ]
    return sorted(found, key=lambda row: _ORDER[row[0]])


def _remarks(report: Report) -> Iterator[str]:
    """Yield what has to be known of a platform on which the wheel runs."""
    if report.is_derived:
        yield "proved with another build of the same release"
    for finding in report.findings:
        if finding.rule == TORCH_CODE and finding.outcome == "unknown":
            yield finding.reason


def _boards(columns: Sequence[Column]) -> str:
    boards = list(dict.fromkeys(name for column in columns for name in column.boards))
    if not boards:
        return "(emulation)"
    if len(boards) > _MOST_BOARDS:
        return f"{', '.join(boards[: _MOST_BOARDS - 1])} and {len(boards) - _MOST_BOARDS + 1} more"
    return ", ".join(boards)


def runs_on(matrix: Matrix, subject: int) -> str:
    """Return in one sentence on which platforms a wheel runs."""
    rows = platform_rows(matrix, subject)
    fits = list(dict.fromkeys(row[1] for row in rows if row[0] == "pass"))
    open_ = list(dict.fromkeys(row[1] for row in rows if row[0] == "unknown"))
    name = matrix.subjects[subject].name
    said = f"{name} runs on {', '.join(fits)}" if fits else f"{name} runs on nothing that is known"
    if matrix.emulated_alone(subject):
        said += f", which {'is' if len(fits) == 1 else 'are'} for emulation and CI, and on no board"
    if open_:
        head = name if not fits else ""
        told = f"of {len(open_)} it cannot be told: {', '.join(open_)}"
        said = f"{said}; {told}" if fits else f"{head}: {told}"
    return said


def plain(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table as aligned text, for what is no terminal."""
    every = [list(head), *map(list, rows)] if any(head) else list(map(list, rows))
    widths = [max(len(row[place]) for row in every) for place in range(len(every[0]))]
    return "\n".join(
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    )

"""The answer of a check as one page: a matrix whose cells open their reasons.

Everything that is shown may come out of a wheel, whose member names are anybody's; so all of it is
escaped by the template engine, and the page's own policy lets no script run but the one in it.
"""

import base64
import functools
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path

from jinja2 import Environment, StrictUndefined, Template
from markupsafe import Markup
from packaging.utils import InvalidWheelFilename, parse_wheel_filename

import jetship
from jetship.check.explain import explanations
from jetship.check.findings import Outcome, Report
from jetship.check.fold import Folded, blocking_first, fold, sentence
from jetship.check.matrix import Column, Matrix, Subject
from jetship.errors import ConfigError
from jetship.hints import spoken
from jetship.nofile import why_no_file
from jetship.store import write_atomically

_SYMBOLS = {"pass": "✓", "derived": "≈", "unknown": "?", "fail": "✕"}
_WORDS = {
    "pass": "pass",
    "derived": "pass, on derived evidence",
    "unknown": "cannot be told",
    "fail": "fail",
}
_SHOWN = 8
# What page.html.j2 says of itself, in its first lines: a page may take the place of another alone.
_MARK = b'<meta name="generator" content="jetship check">'
_HEAD_BYTES = 1024


@dataclass(frozen=True)
class _Side:
    """One wheel or one target, as the head of a row or of a column."""

    key: str
    title: str
    details: str
    group: str
    name: str

    @property
    def text(self) -> str:
        """What the filter looks in."""
        return f"{self.title} {self.details} {self.group} {self.name}".lower()


@dataclass(frozen=True)
class _Passes:
    rule: str
    said: str


class _Looks:
    """What has a `look`: the outcome of a report, or "derived" for such a pass."""

    look: str

    @property
    def symbol(self) -> str:
        return _SYMBOLS[self.look]

    @property
    def word(self) -> str:
        return _WORDS[self.look]


@dataclass(frozen=True)
class _Panel(_Looks):
    """The reasons of one report, or of several that have the same."""

    id: str
    look: str
    wheel: str
    targets: tuple[str, ...]
    blocking: tuple[Folded, ...]
    passes: tuple[_Passes, ...]


@dataclass(frozen=True)
class _Cell(_Looks):
    """One report in the matrix; `panel` has its reasons."""

    panel: str
    look: str
    wheel: str
    target: str
    sentence: str


@dataclass(frozen=True)
class _Row:
    side: _Side
    cells: tuple[_Cell | None, ...]
    begins: str
    """The group that begins with this row, or ""."""


def require_writable(path: Path) -> None:
    """Make sure that a page can be written, before anything is checked.

    Raises:
        ConfigError: it is a folder, its folder is missing, or there is a file that is no earlier
            page: a wheel, say, as `check --html *` would name one.
    """
    problem = why_no_file(path)
    if path.is_dir():
        raise ConfigError(f"--html: {path} is a folder", fix=f"name a file: {path}/check.html")
    if problem and problem != "does not exist":
        raise ConfigError(f"--html: {path} {problem}", fix="name a file")
    if not problem and not _is_page(path):
        raise ConfigError(
            f"--html: {path} is there already, and is no earlier page of `invoke check`",
            why="the page would take its place",
            fix="name another file, or delete that one first",
        )
    if not path.absolute().parent.is_dir():
        raise ConfigError(
            f"--html: there is no folder {path.parent}", fix="make it, or name another file"
        )


def _is_page(path: Path) -> bool:
    """Return whether a file is a page that `write` wrote, or is empty."""
    with path.open("rb") as stream:
        head = stream.read(_HEAD_BYTES)
    return not head or _MARK in head


def write(matrix: Matrix, path: Path) -> None:
    """Write the page; `path` holds what was there before, or all of the new one."""
    write_atomically(path, html(matrix).encode())


def html(matrix: Matrix) -> str:
    """Return the page: one text that needs nothing from elsewhere."""
    panels, cells = _panels(matrix)
    wheels = [_wheel_side(number, one) for number, one in enumerate(matrix.subjects)]
    targets = [_target_side(place, one) for place, one in enumerate(matrix.columns)]
    targets_down = len(targets) > len(wheels)
    if targets_down:
        rows = _rows(targets, [[cells.get((n, p)) for n in range(len(wheels))]
                               for p in range(len(targets))])  # fmt: skip
    else:
        rows = _rows(wheels, [[cells.get((n, p)) for p in range(len(targets))]
                              for n in range(len(wheels))])  # fmt: skip
    style, script = Markup(_file("page.css")), Markup(_file("page.js"))  # noqa: S704 - our own files
    return _template().render(
        style=style,
        script=script,
        policy=f"default-src 'none'; style-src '{_digest(style)}'; script-src '{_digest(script)}'; "
        "base-uri 'none'; form-action 'none'",
        heads=wheels if targets_down else targets,
        rows=rows,
        side="target" if targets_down else "wheel",
        panels=panels,
        counts=[(look, _SYMBOLS[look], _WORDS[look], count) for look, count in _counts(cells)],
        errors=[one for one in matrix.subjects if one.error is not None],
        outcomes=[(one.name, matrix.outcome(n)) for n, one in enumerate(matrix.subjects)],
        rules=explanations(),
        version=jetship.__version__,
        wheels=len(wheels),
        targets=len(targets),
        shown=_SHOWN,
    )


def _counts(cells: "dict[tuple[int, int], _Cell]") -> Iterator[tuple[str, int]]:
    for look in _SYMBOLS:
        count = sum(cell.look == look for cell in cells.values())
        if count:
            yield look, count


def _rows(sides: Sequence[_Side], cells: Sequence[Sequence[_Cell | None]]) -> list[_Row]:
    before = ["", *(side.group for side in sides)]
    return [
        _Row(side, tuple(row), side.group if side.group != previous else "")
        for side, row, previous in zip(sides, cells, before, strict=False)
    ]


def _wheel_side(number: int, subject: Subject) -> _Side:
    title, details = subject.name, ""
    if subject.kind == "installed":
        title, _, details = subject.name.rpartition("-")
    else:
        try:
            name, version, _, _ = parse_wheel_filename(subject.name)
        except InvalidWheelFilename:
            pass
        else:
            python, abi, _ = subject.name.removesuffix(".whl").rsplit("-", 3)[1:]
            title, details = (
                str(name),
                f"{version} · {python if python == abi else f'{python}-{abi}'}",
            )
    return _Side(f"w{number}", title, details, "", subject.name)


def _target_side(place: int, column: Column) -> _Side:
    target = column.target
    what = target.arch_list.replace(";", ", ") or (
        "any" if target.platform.kind == "emulation" else "no device code"
    )
    return _Side(f"t{place}", what, ", ".join(column.boards), target.platform.title, target.id)


def _look_of(report: Report) -> str:
    return "derived" if report.passes_derived else report.outcome


def _panels(matrix: Matrix) -> "tuple[list[_Panel], dict[tuple[int, int], _Cell]]":
    """Return the reasons, once for all targets of a wheel that have the same, and the cells."""
    found: dict[tuple[object, ...], list[tuple[int, int]]] = {}
    contents: dict[tuple[object, ...], tuple[tuple[Folded, ...], tuple[_Passes, ...]]] = {}
    for key in sorted(matrix.reports):
        report = matrix.reports[key]
        rows = fold(report)
        blocking = tuple(
            replace(row, fix=row.fix.replace(report.target, "the target"))
            for row in blocking_first(rows)
        )
        content = (blocking, tuple(_passes(rows)))
        place = (key[0], _look_of(report), *content)
        found.setdefault(place, []).append(key)
        contents[place] = content
    panels, cells = [], {}
    for same, keys in found.items():  # in the order of their first cell
        first = keys[0]
        wheel = matrix.subjects[first[0]].name
        targets = tuple(matrix.reports[key].target for key in keys)
        panel = _Panel(f"c{first[0]}-{first[1]}", str(same[1]), wheel, targets, *contents[same])
        panels.append(panel)
        for key in keys:
            report = matrix.reports[key]
            said = spoken(sentence(report).replace(report.target, "the target"))
            cells[key] = _Cell(panel.id, panel.look, wheel, report.target, said)
    return panels, cells


def _passes(rows: Sequence[Folded]) -> Iterator[_Passes]:
    passed = [row for row in rows if row.outcome == "pass"]
    for rule in dict.fromkeys(row.rule for row in passed):
        own = [row for row in passed if row.rule == rule]
        files = sum(len(row.subjects) for row in own)
        yield _Passes(rule, own[0].reason if len(own) == 1 else f"{files} files")


def _symbol(outcome: Outcome) -> str:
    return _SYMBOLS[outcome]


@functools.cache
def _file(name: str) -> str:
    return resources.files("jetship.check").joinpath(name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    """Return what a content security policy calls a text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


@functools.cache
def _template() -> Template:
    environment = Environment(
        autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["spoken"] = spoken
    environment.filters["symbol"] = _symbol
    return environment.from_string(_file("page.html.j2"))

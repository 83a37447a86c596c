"""Findings that say the same of several files or targets, as one."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from jetship.check.findings import Finding, Grade, Outcome, Report

# What their evidence says explains more than their reason does.
_TOLD_BY_EVIDENCE = frozenset({"record", "metadata", "tags", "requires-torch", "pin"})
_TOLD = 2


@dataclass(frozen=True)
class Folded:
    """What one rule says of some files, for some targets."""

    rule: str
    outcome: Outcome
    reason: str
    fix: str
    accepted: str | None
    grade: Grade
    subjects: tuple[str, ...]
    evidence: tuple[str, ...]
    targets: tuple[str, ...] = ()

    @property
    def blocks(self) -> bool:
        return self.outcome == "fail" or (self.outcome == "unknown" and self.accepted is None)

    @property
    def subject(self) -> str:
        """The file, or how many of them and the first."""
        first, *more = self.subjects
        if not more:
            return first
        return f"{len(self.subjects)} files ({first}{', …' if len(more) > 1 else f', {more[0]}'})"


def fold(report: Report) -> list[Folded]:
    """Return a report's findings, those that differ in nothing but the file told once."""
    return fold_all([report])


def fold_all(reports: Sequence[Report]) -> list[Folded]:
    """Return the findings of several reports, each told once for all files and targets.

    A fix that names its target names "the target" where there are several. What holds for
    all files of one target and for some of another stays apart.
    """
    several = len(reports) > 1
    targets: dict[Folded, list[str]] = {}
    for report in reports:
        for row in _rows(report, several=several):
            targets.setdefault(row, []).append(report.target)
    return [replace(row, targets=tuple(names)) for row, names in targets.items()]


def _rows(report: Report, *, several: bool) -> Iterator[Folded]:
    """Yield a report's findings, of no target yet, with all files of which they say the same."""
    alike: dict[Finding, list[Finding]] = {}
    for one in report.findings:
        words = replace(one, subject="", evidence=(), fix=_without_name(one.fix, one.subject))
        alike.setdefault(words, []).append(one)
    for words, findings in alike.items():
        fix = findings[0].fix if len(findings) == 1 else words.fix
        yield Folded(
            words.rule,
            words.outcome,
            words.reason,
            fix.replace(report.target, "the target") if several else fix,
            words.accepted,
            words.grade,
            tuple(dict.fromkeys(one.subject for one in findings)),
            tuple(dict.fromkeys(text for one in findings for text in one.evidence)),
        )


def _without_name(fix: str, subject: str) -> str:
    """Return what is to be done, without the name of the file that it is to be done to."""
    stem = _file(subject).partition(".")[0]
    return re.sub(rf"(?<![\w.-]){re.escape(stem)}(?=\.)", "NAME", fix) if stem else fix


def blocking_first(rows: Sequence[Folded]) -> list[Folded]:
    """Return what did not pass: failures, then what blocks unknown, then what is accepted."""
    order = {"fail": 0, "unknown": 1}
    bad = [row for row in rows if row.outcome != "pass"]
    return sorted(bad, key=lambda row: (order[row.outcome], not row.blocks))


def sentence(report: Report) -> str:
    """Return in one sentence what keeps a wheel from its target; empty where nothing does.

    A failure is told before what is unknown, in the order of the rules.
    """
    rows = [row for row in blocking_first(fold(report)) if row.blocks]
    if not rows:
        return "" if report.findings else "no rule had anything to say about it"
    first = rows[0]
    said = first.reason
    if first.rule in _TOLD_BY_EVIDENCE and first.evidence:
        said = "; ".join(first.evidence[:_TOLD])
        said += f"; and {len(first.evidence) - _TOLD} more" if len(first.evidence) > _TOLD else ""
    elif first.subjects != (report.wheel,):
        said = f"{_file(first.subjects[0])}: {said}"
    rules = {row.rule for row in rows if row.outcome == first.outcome} - {first.rule}
    return said + (f" (also: {', '.join(sorted(rules))})" if rules else "")


def _file(subject: str) -> str:
    return subject.rpartition("/")[2]

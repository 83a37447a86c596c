"""Many wheels against many targets: the document that `invoke check` answers with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import jetship
from jetship.check.findings import Outcome, Report
from jetship.errors import JetshipError
from jetship.targets.model import Target

SCHEMA_VERSION = 1
# What is asked of a wheel: whether it fits the targets that were named, the one that it was
# built for, those of deploy.yaml; or which of all that are known it fits.
Question = Literal["named", "pin", "deploy", "platforms"]


@dataclass(frozen=True)
class Subject:
    """A wheel, or a distribution that is installed, under the name that people know it by.

    `place` is where it lies: a file, a folder, or an image's folder.
    """

    place: str
    name: str
    kind: Literal["wheel", "installed"]
    question: Question
    sha256: str = ""
    error: JetshipError | None = None


@dataclass(frozen=True)
class Column:
    """A target, and the boards that it stands for where the question was which boards."""

    target: Target
    boards: tuple[str, ...] = ()

    @property
    def is_board(self) -> bool:
        """Whether it is a device's, and not an open userland for emulation and CI."""
        return self.target.platform.kind != "emulation"


@dataclass(frozen=True)
class Matrix:
    """All reports, by the number of their subject and of their column."""

    subjects: tuple[Subject, ...]
    columns: tuple[Column, ...]
    reports: Mapping[tuple[int, int], Report]

    def of(self, subject: int) -> Iterator[tuple[Column, Report]]:
        """Return the columns that a subject was checked against, in order."""
        for number, column in enumerate(self.columns):
            report = self.reports.get((subject, number))
            if report is not None:
                yield column, report

    def outcome(self, subject: int) -> Outcome:
        """The answer to a subject's question.

        Where targets were named it has to pass on each. Where the question was on what it
        runs, one board is enough: a wheel that none takes is what nobody wants to ship.
        """
        rows = list(self.of(subject))
        outcomes = {report.outcome for _, report in rows}
        if self.subjects[subject].error is not None or not rows:
            return "fail"
        if self.subjects[subject].question == "platforms":
            outcomes = {report.outcome for column, report in rows if column.is_board}
            order: tuple[Outcome, ...] = ("pass", "unknown", "fail")
        else:
            order = ("fail", "unknown", "pass")
        return next((one for one in order if one in outcomes), "unknown")

    def emulated_alone(self, subject: int) -> bool:
        """Whether what was asked is on what a wheel runs, and that is emulation and no board."""
        if self.subjects[subject].question != "platforms":
            return False
        fits = [column for column, report in self.of(subject) if report.outcome == "pass"]
        return bool(fits) and not any(column.is_board for column in fits)

    @property
    def rejected(self) -> list[int]:
        """The subjects whose answer is not a pass."""
        return [number for number in range(len(self.subjects)) if self.outcome(number) != "pass"]

    def to_json(self) -> dict[str, Any]:
        """Return the document that check.schema.json describes."""
        return {
            "schema_version": SCHEMA_VERSION,
            "jetship": jetship.__version__,
            "outcome": self._whole,
            "wheels": [
                {
                    "place": subject.place,
                    "name": subject.name,
                    "kind": subject.kind,
                    "question": subject.question,
                    "sha256": subject.sha256 or None,
                    "outcome": self.outcome(number),
                    "targets": [column.target.id for column, _ in self.of(number)],
                }
                for number, subject in enumerate(self.subjects)
            ],
            "targets": [
                {
                    "id": column.target.id,
                    "platform": column.target.platform.name,
                    "title": column.target.platform.title,
                    "kind": column.target.platform.kind,
                    "boards": list(column.boards),
                }
                for column in self.columns
            ],
            "reports": [
                {"place": subject.place, **report.to_json()}
                for number, subject in enumerate(self.subjects)
                for _, report in self.of(number)
            ],
            "errors": [
                {"wheel": subject.place, **subject.error.to_json()}
                for subject in self.subjects
                if subject.error is not None
            ],
        }

    @property
    def _whole(self) -> Outcome:
        outcomes = {self.outcome(number) for number in range(len(self.subjects))}
        order: tuple[Outcome, ...] = ("fail", "unknown", "pass")
        return next(one for one in order if one in outcomes)

"""The answer of a check: one finding for each rule and file, and the report that holds them."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

Outcome = Literal["pass", "fail", "unknown"]
Grade = Literal["exact", "derived", "none"]

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Finding:
    """One rule's answer about one file of the wheel.

    Args:
        rule: the rule's name.
        outcome: unknown says that nothing at hand can tell; it is never a pass.
        subject: the file in the wheel, or the wheel's name for what is about the whole.
        reason: one sentence.
        evidence: what the answer rests on: symbols, versions, archs.
        fix: what to do next; empty for a pass.
        accepted: why the platform accepts this unknown, or None.
        grade: exact where the target's own libraries were read, derived where another build
            of the same release was, none where no library had to be asked.
    """

    rule: str
    outcome: Outcome
    subject: str
    reason: str
    evidence: tuple[str, ...] = ()
    fix: str = ""
    accepted: str | None = None
    grade: Grade = "none"

    @property
    def blocks(self) -> bool:
        """Whether this finding keeps the wheel from being shipped."""
        return self.outcome == "fail" or (self.outcome == "unknown" and self.accepted is None)


@dataclass(frozen=True)
class Report:
    """All findings about one wheel for one target."""

    wheel: str
    sha256: str
    target: str
    findings: tuple[Finding, ...]

    @property
    def outcome(self) -> Outcome:
        """The whole's answer: a report without findings proves nothing and is unknown."""
        if any(finding.outcome == "fail" for finding in self.findings):
            return "fail"
        if not self.findings or any(finding.blocks for finding in self.findings):
            return "unknown"
        return "pass"

    @property
    def is_derived(self) -> bool:
        """Whether something was proved with another build than the device's own."""
        return any(finding.grade == "derived" for finding in self.findings)

    @property
    def passes_derived(self) -> bool:
        """Whether it is a pass that something else than the device's own libraries bears."""
        return self.outcome == "pass" and self.is_derived

    def to_json(self) -> dict[str, Any]:
        """Return the report as a JSON document; `report` of check.schema.json describes it."""
        return {
            "schema_version": SCHEMA_VERSION,
            "wheel": self.wheel,
            "sha256": self.sha256,
            "target": self.target,
            "outcome": self.outcome,
            "findings": [
                {**asdict(finding), "evidence": list(finding.evidence)} for finding in self.findings
            ],
        }

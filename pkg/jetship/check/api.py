"""Check a wheel against a target, and show the report to people."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from jetship.check import (
    mangled,
    rules_cpu,
    rules_device,
    rules_elf,
    rules_loader,
    rules_requirements,
    rules_symbols,
    rules_vendored,
    rules_wheel,
)
from jetship.check.facts import Facts, Rule
from jetship.check.findings import Finding, Report
from jetship.check.libraries import TargetLibraries
from jetship.check.wheel import read_wheel
from jetship.targets.model import Target

RULES: tuple[Rule, ...] = (
    rules_wheel.record,
    rules_wheel.metadata,
    rules_wheel.tags,
    rules_wheel.requires_torch,
    rules_requirements.requires,
    rules_wheel.pin,
    rules_vendored.vendored_libraries,
    rules_elf.elf,
    rules_elf.machine,
    rules_elf.suffix,
    rules_elf.versions,
    rules_elf.libraries,
    rules_loader.search_path,
    rules_loader.twins,
    rules_symbols.symbols,
    rules_loader.stack,
    rules_loader.text_relocations,
    rules_cpu.cpu,
    rules_device.device_code,
)

_SHOWN = 8
_DERIVED = (
    "[derived]: proved with upstream's build of the same release, not with the device's own "
    "libraries; --image, or --sysroot and --torch-wheel, name those"
)
_MARKS = {"fail": "FAIL", "unknown": "????"}


def check_wheel(wheel: Path, target: Target, libraries: TargetLibraries) -> Report:
    """Check a wheel: all rules, each with its answer.

    Raises:
        CheckError: the file is not a wheel, or is too damaged to look into.
    """
    facts_of_wheel = read_wheel(wheel)
    own = ((member.file, elf) for member, elf in facts_of_wheel.readable)
    facts = Facts(facts_of_wheel, target, libraries.with_wheel(own))
    findings = tuple(finding for rule in RULES for finding in rule(facts))
    return Report(
        wheel.name, facts_of_wheel.sha256, target.id, with_cxx_names(findings, libraries.demangler)
    )


def with_cxx_names(findings: tuple[Finding, ...], demangler: Path | None) -> tuple[Finding, ...]:
    """Return the findings with C++ names in front of the mangled ones in their evidence."""
    blocking = [finding for finding in findings if finding.outcome != "pass"]
    names = {
        name for finding in blocking for text in finding.evidence for name in _mangled_in(text)
    }
    known = mangled.demangle(names, demangler) if names and demangler else {}
    return tuple(
        replace(finding, evidence=tuple(_demangled(text, known) for text in finding.evidence))
        for finding in findings
    )


def render(report: Report) -> str:
    """Return the report as text: what blocks first, a sentence each; what passed in a line."""
    derived = " [derived]" if report.is_derived and report.outcome == "pass" else ""
    lines = [f"{report.wheel} for {report.target}: {report.outcome}{derived}"]
    failed = [finding for finding in report.findings if finding.outcome == "fail"]
    unknown = [finding for finding in report.findings if finding.outcome == "unknown"]
    for finding in (*failed, *sorted(unknown, key=lambda item: not item.blocks)):
        lines += _lines(finding)
    passed = [finding for finding in report.findings if finding.outcome == "pass"]
    for rule in dict.fromkeys(finding.rule for finding in passed):
        lines += _passes([finding for finding in passed if finding.rule == rule])
    if report.is_derived:
        lines.append(_DERIVED)
    return "\n".join(lines)


def _passes(findings: list[Finding]) -> Iterable[str]:
    if len(findings) > _SHOWN:
        yield f"ok   {findings[0].rule}: {len(findings)} files"
        return
    for finding in findings:
        grade = f" [{finding.grade}]" if finding.grade == "derived" else ""
        yield f"ok   {finding.rule}: {finding.subject}: {finding.reason}{grade}"


def _lines(finding: Finding) -> Iterable[str]:
    accepted = finding.outcome == "unknown" and finding.accepted is not None
    mark = "ok ?" if accepted else _MARKS[finding.outcome]
    yield f"{mark:<4} {finding.rule}: {finding.subject}: {finding.reason}"
    yield from (f"       {text}" for text in finding.evidence[:_SHOWN])
    if len(finding.evidence) > _SHOWN:
        yield f"       and {len(finding.evidence) - _SHOWN} more"
    if accepted:
        yield f"     accepted: {finding.accepted}"
    elif finding.fix:
        yield f"     fix: {finding.fix}"


def _mangled_in(text: str) -> list[str]:
    return re.findall(r"\b_Z\w+", text)


def _demangled(text: str, known: Mapping[str, str]) -> str:
    return re.sub(
        r"\b_Z\w+",
        lambda match: f"{known[match[0]]} [{match[0]}]" if match[0] in known else match[0],
        text,
    )

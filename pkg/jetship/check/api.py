"""Check a wheel against a target: all rules, each with its answer."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jetship.check import (
    mangled,
    rules_cpu,
    rules_device,
    rules_elf,
    rules_loader,
    rules_requirements,
    rules_symbols,
    rules_torch,
    rules_vendored,
    rules_wheel,
)
from jetship.check.facts import Facts, Rule
from jetship.check.findings import Finding, Report
from jetship.check.libraries import TargetLibraries
from jetship.check.wheel import Wheel, read_wheel
from jetship.targets.model import Target

RULES: tuple[Rule, ...] = (
    rules_wheel.record,
    rules_wheel.metadata,
    rules_wheel.tags,
    rules_wheel.requires_torch,
    rules_requirements.requires,
    rules_vendored.vendored,
    rules_elf.elf,
    rules_elf.machine,
    rules_wheel.pin,  # after what says that a library could not be read
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
    rules_torch.torch_code,
)

# Rules that ask what the target's libraries are, whatever its GPU. They take nearly all of the
# time, and without libraries only a refusal of theirs counts.
_ASK_LIBRARIES = frozenset({"versions", "libraries", "symbols"})
_NOT_ASKED = "symbols"


@dataclass(frozen=True)
class Unasked:
    """Why the libraries of a target were not asked, and what would let them be."""

    reason: str
    fix: str = ""


def check_wheel(wheel: Path, target: Target, libraries: TargetLibraries) -> Report:
    """Check a wheel file: all rules, each with its answer.

    Raises:
        CheckError: the file is not a wheel, or is too damaged to look into.
    """
    return check_facts(read_wheel(wheel), target, libraries)


def check_facts(
    wheel: Wheel,
    target: Target,
    libraries: TargetLibraries,
    answers: dict[str, tuple[Finding, ...]] | None = None,
) -> Report:
    """Check a wheel that was read before: a wheel is read once for any number of targets.

    Args:
        wheel: what was read.
        target: what it is checked against.
        libraries: the target's.
        answers: what the rules that ask libraries said of this wheel on another target with the
            same platform and libraries; filled where it is empty.
    """
    facts = _facts(wheel, target, libraries)
    known = {} if answers is None else answers
    findings: list[Finding] = []
    for rule in RULES:
        name = rule.__name__  # as the rule is called, but for its dashes
        if name not in _ASK_LIBRARIES:
            findings += rule(facts)
            continue
        if name not in known:
            known[name] = with_cxx_names(tuple(rule(facts)), libraries.demangler)
        findings += known[name]
    return _report(facts, tuple(findings))


def check_without_libraries(wheel: Wheel, target: Target, unasked: Unasked) -> Report:
    """Check a wheel as far as that goes without the target's libraries.

    What only these can tell is one unknown finding. What a file says by itself still fails: the
    versions that it asks for, or the runtime of another CUDA.
    """
    facts = _facts(wheel, target, TargetLibraries())
    findings: list[Finding] = []
    for rule in RULES:
        if rule.__name__ in _ASK_LIBRARIES - {_NOT_ASKED}:
            findings += (finding for finding in rule(facts) if finding.outcome == "fail")
        elif rule.__name__ != _NOT_ASKED:
            findings += rule(facts)
    if any(True for _ in facts.loadable):
        findings.append(Finding(_NOT_ASKED, "unknown", wheel.file, unasked.reason, fix=unasked.fix))
    return _report(facts, tuple(findings))


def _facts(wheel: Wheel, target: Target, libraries: TargetLibraries) -> Facts:
    own = ((member.file, elf) for member, elf in wheel.readable)
    return Facts(wheel, target, libraries.with_wheel(own))


def _report(facts: Facts, findings: tuple[Finding, ...]) -> Report:
    return Report(facts.wheel.file, facts.wheel.sha256, facts.target.id, findings)


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


def _mangled_in(text: str) -> list[str]:
    return re.findall(r"\b_Z\w+", text)


def _demangled(text: str, known: Mapping[str, str]) -> str:
    return re.sub(
        r"\b_Z\w+",
        lambda match: f"{known[match[0]]} [{match[0]}]" if match[0] in known else match[0],
        text,
    )

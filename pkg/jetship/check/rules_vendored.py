"""The rule about libraries that a wheel brings along and that are somebody else's."""

import re
from collections.abc import Iterator

from jetship.check.facts import Facts
from jetship.check.findings import Finding, Outcome
from jetship.check.knowledge import Vendored, vendored_kinds
from jetship.check.wheel import Member

_RULE = "vendored"
# libcudart-1b2c3d4e.so.11.0 (auditwheel), libcudart.41118559.so.12 (torchvision's packaging).
_NAME = re.compile(r"(?P<name>lib[^/]*?|ld-linux[^/]*?)(?:[-.][0-9a-f]{8})?\.so(?:\.[\d.]+)?")


def vendored(facts: Facts) -> Iterator[Finding]:
    """No library of PyTorch, CUDA, the driver or the system comes along in the wheel."""
    found = [
        (member, kind)
        for member in facts.wheel.members
        for kind in vendored_kinds()
        if kind.has(plain_name(member)) and not _is_owners(facts, kind)
    ]
    for kind in dict.fromkeys(kind for _, kind in found):
        yield _finding(kind, [member for member, its in found if its is kind], facts)
    if not found:
        reason = "it brings no library along that PyTorch, CUDA or the system has to provide"
        yield Finding(_RULE, "pass", facts.wheel.file, reason)


def plain_name(member: Member) -> str:
    """Return a library's name without version and without the hash of a repair tool."""
    match = _NAME.fullmatch(member.file)
    return match["name"] if match else ""


def _is_owners(facts: Facts, kind: Vendored) -> bool:
    name = facts.wheel.name
    return bool(kind.owner) and (name == kind.owner or name.startswith(f"{kind.owner}-"))


def _finding(kind: Vendored, members: list[Member], facts: Facts) -> Finding:
    files = ", ".join(member.file for member in members[:3])
    more = f" and {len(members) - 3} more" if len(members) > 3 else ""
    reason = f"it brings {kind.what} libraries along ({files}{more}): {kind.why}"
    subject, evidence = facts.wheel.file, tuple(member.name for member in members)
    accepted = None
    if kind.weight == "noted":
        accepted = "as a rule the program has loaded the system's own by then"
    elif kind.weight == "board" and facts.platform.cuda.from_wheels:
        accepted = f"{facts.platform.name} takes CUDA's libraries out of wheels"
    outcome: Outcome = "fail" if accepted is None else "unknown"
    return Finding(_RULE, outcome, subject, reason, evidence, kind.fix, accepted=accepted)

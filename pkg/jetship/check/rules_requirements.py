"""The rule about what else the wheel requires: whether that can be had on the target."""

import re
from collections.abc import Iterator

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from jetship.check.facts import Facts
from jetship.check.findings import Finding
from jetship.check.knowledge import requirements
from jetship.elf import version_key
from jetship.targets.model import Platform

_RULE = "requires"


def requires(facts: Facts) -> Iterator[Finding]:
    """What the wheel requires besides torch can be had on the target, and fits its torch."""
    wanted = [item for item in applying(facts) if canonicalize_name(item.name) != "torch"]
    problems = [
        problem
        for item in wanted
        for problem in (_cuda_wheel(item, facts.platform), _numpy(item, facts.platform))
        if problem
    ]
    subject = facts.wheel.file
    if problems:
        fix = "correct Requires-Dist, or give the line a marker that leaves the target out"
        reason = problems[0][1] if len(problems) == 1 else "it requires what the target cannot have"
        evidence = tuple(line if len(problems) == 1 else f"{line}: {why}" for line, why in problems)
        yield Finding(_RULE, "fail", subject, reason, evidence, fix)
    else:
        reason = f"what else it requires here: {len(wanted)}, nothing that the target cannot have"
        yield Finding(_RULE, "pass", subject, reason, tuple(map(str, wanted)))


def applying(facts: Facts) -> Iterator[Requirement]:
    """Yield the requirements that hold on the target; rule requires-torch names damaged ones."""
    for line in facts.wheel.metadata.get_all("Requires-Dist", []):
        try:
            item = Requirement(str(line))
        except InvalidRequirement:
            continue
        if item.marker is None or item.marker.evaluate(facts.platform.markers):
            yield item


def _cuda_wheel(item: Requirement, platform: Platform) -> tuple[str, str] | None:
    match = re.fullmatch(requirements().cuda_wheels, canonicalize_name(item.name))
    if match is None:
        return None
    if not platform.cuda.from_wheels:
        why = f"it requires {item.name}, which is CUDA for servers: on {platform.name} it cannot "
        return str(item), f"{why}run and hides the device's own"
    have = platform.cuda.version.partition(".")[0]
    if match["cuda"] and match["cuda"] != have:
        return str(item), f"it requires {item.name}, and CUDA of {platform.name} is {have}"
    return None


def _numpy(item: Requirement, platform: Platform) -> tuple[str, str] | None:
    if canonicalize_name(item.name) != "numpy":
        return None
    known, python = requirements(), platform.python.version
    newest = known.numpy_for_python.get(python)
    if newest and _asks_for_more_than(item, Version(newest)):
        return str(item), f"the newest numpy for Python {python} of the target is {newest}"
    old = version_key(platform.torch.version.split("a")[0].split("+")[0]) < version_key(
        known.numpy_2_since_torch
    )
    if old and _asks_for_more_than(item, Version("1.999")):
        torch = platform.torch.version
        return str(item), f"the target's torch {torch} was compiled for numpy 1, and fails with 2"
    return None


def _asks_for_more_than(item: Requirement, newest: Version) -> bool:
    """Return whether every version that the requirement allows is newer than `newest`."""
    for clause in item.specifier:
        try:
            version = Version(clause.version.removesuffix(".*"))
        except InvalidVersion:  # ===, which compares text
            continue
        beyond = version > newest or (clause.operator == ">" and version >= newest)
        if clause.operator in (">=", ">", "==", "~=") and beyond:
            return True
    return False

"""The rule about instructions that the cores of the target's boards do not have."""

from collections.abc import Iterator

from jetship.check.facts import Facts
from jetship.check.findings import Finding
from jetship.check.wheel import Member
from jetship.instructions import ENOUGH
from jetship.targets.cores import Cores, cores_of

_RULE = "cpu"
_NAMES = {
    "lse": "atomics of Armv8.1 (LSE)",
    "rdm": "vector instructions of Armv8.1 (RDM)",
    "fp16": "half-precision arithmetic of Armv8.2 (FP16)",
    "dotprod": "dot products of Armv8.2 (SDOT, UDOT)",
    "rcpc": "loads of Armv8.3 (LDAPR)",
    "rcpc2": "loads and stores of Armv8.4 (LDAPUR, STLUR)",
    "paca": "signed returns of Armv8.3 (RETAA)",
    "fcma": "complex arithmetic of Armv8.3 (FCMLA)",
    "bf16": "bfloat16 instructions of Armv8.6",
    "i8mm": "matrix instructions of Armv8.6 (I8MM)",
    "sha3": "SHA-3 instructions of Armv8.2",
    "sve": "scalable vectors (SVE)",
    "sme": "scalable matrices (SME)",
}


def cpu(facts: Facts) -> Iterator[Finding]:
    """No file has instructions that the board's cores lack, unless it asks the cores first."""
    if facts.platform.machine != "aarch64":
        return
    cores = cores_of(facts.target)
    asking = _asking(facts)
    for member, file in facts.loadable:
        why = next((asking[name] for name in (member.file, *file.needed) if name in asking), "")
        yield _one(member, cores, why)


def _asking(facts: Facts) -> dict[str, str]:
    """Return by file name what in it chooses code by the cores; others may rely on that."""
    return {
        member.file: f"{member.file}: {member.instructions.dispatch[0]}"
        for member in facts.wheel.members
        if member.instructions.dispatch
    }


def _one(member: Member, cores: tuple[Cores, ...], asks: str) -> Finding:
    counts = member.instructions.counts
    if not member.instructions.known:
        reason = "its instructions cannot be told from data: its section table was stripped"
        fix = "strip it with `strip --strip-unneeded`, which keeps the section table"
        accepted = "compilers use newer instructions only when they are told to"
        return Finding(_RULE, "unknown", member.name, reason, fix=fix, accepted=accepted)
    if not counts:
        reason = "every core of aarch64 has all instructions that were looked for"
        return Finding(_RULE, "pass", member.name, reason)
    listed = ", ".join(_NAMES[name] for name in sorted(counts))
    evidence = tuple(
        f"{name}: {count}{' or more' if count == ENOUGH else ''}"
        for name, count in sorted(counts.items())
    )
    if not cores:
        reason = f"it has {listed}, and what CPU a server has is not known"
        accepted = "a server may have any CPU; nothing at hand says which"
        return Finding(_RULE, "unknown", member.name, reason, evidence, accepted=accepted)
    lacking = {name: [one for one in cores if name not in one.has] for name in sorted(counts)}
    lacking = {name: lack for name, lack in lacking.items() if lack}
    if not lacking:
        reason = f"{' and '.join(map(str, cores))} can do what it uses: {listed}"
        return Finding(_RULE, "pass", member.name, reason, evidence)
    who = " and ".join(dict.fromkeys(str(one) for lack in lacking.values() for one in lack))
    reason = f"it has {', '.join(_NAMES[name] for name in lacking)}, and {who} has not"
    if asks:
        accepted = f"it can choose code by what the core has ({asks})"
        return Finding(_RULE, "unknown", member.name, reason, evidence, accepted=accepted)
    reason += ": the program would end with SIGILL (illegal instruction)"
    fix = "compile without -march or -mcpu of a newer core (-march=armv8-a), or choose by getauxval"
    return Finding(_RULE, "fail", member.name, reason, evidence, fix)

"""The rule about the target's own torch: whether its operators run on the GPU."""

from collections.abc import Iterator

from jetship.check.facts import Facts
from jetship.check.findings import Finding
from jetship.targets.arch import Arch
from jetship.targets.gpucode import runs_machine_code

RULE = "torch-code"
_TORCHS = ("libtorch", "libc10")


def torch_code(facts: Facts) -> Iterator[Finding]:
    """The torch of the platform has code for the target's GPU.

    Says nothing of a torch that nobody looked into, the user's own among them.
    """
    torch = facts.platform.torch
    if not torch.archs or _is_own(facts) or not _uses_torch(facts):
        return
    lacking = [str(code.arch) for code in facts.target.code if not _runs_on(code.arch, torch.archs)]
    subject, evidence = facts.wheel.file, (f"torch {torch.version}: {', '.join(torch.archs)}",)
    if not lacking:
        reason = f"torch's own operators have machine code for {facts.target.arch_list}"
        yield Finding(RULE, "pass", subject, reason, evidence, grade="derived")
        return
    yield Finding(
        RULE,
        "unknown",
        subject,
        f"the torch {torch.version} of {facts.platform.name} has no code for "
        f"{' and '.join(lacking)}: its own CUDA operators fail there; use a build that has (for a "
        "Jetson NVIDIA's)",
        evidence,
        "install such a build, and name it with --torch-wheel or --image",
        accepted="the wheel's own kernels do not need it, and its files do not decide which torch "
        "is on the board",
    )


def _runs_on(gpu: Arch, archs: tuple[str, ...]) -> bool:
    return any(runs_machine_code(gpu, Arch.parse(one), "") for one in archs)


def _is_own(facts: Facts) -> bool:
    """Return whether the target's torch is the user's, or was read of a device."""
    found = facts.libraries.libraries.get("libtorch_cpu.so")
    return found is not None and found.grade == "exact" and facts.platform.evidence == "derived"


def _uses_torch(facts: Facts) -> bool:
    return any(name.startswith(_TORCHS) for _, elf in facts.loadable for name in elf.needed)

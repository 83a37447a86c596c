"""Why builds fail that are not at fault themselves, read from what they print."""

import re
from collections.abc import Callable
from dataclasses import dataclass

# GCC's driver, nvcc, the shell, the kernel's OOM killer through each of them, and Python. A source
# line that a compiler quotes may have std::bad_alloc in it: only the runtime's own words count.
_OUT_OF_MEMORY = re.compile(
    r"Killed signal terminated program (?P<gcc>\S+)|'(?P<nvcc>[^'\n]+)' died due to signal 9"
    r"|virtual memory exhausted|what\(\): +std::bad_alloc|Cannot allocate memory"
    r"|out of memory allocating|catastrophic error: out of memory|^MemoryError\b"
    r"|(?:^|[:\]] )Killed$",
    re.MULTILINE,
)
_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Could not resolve host"
    r"|Network is unreachable|Failed to establish a new connection|urlopen error"
    r"|Max retries exceeded|unable to access 'http|unable to resolve host address"
    r"|curl: \(\d+\) (?:Failed to connect|Connection timed out)"
)
# GNU ld's words for a file of another machine: as an input, and as a library that it passes over
# and then finds nowhere else.
_WRONG_MACHINE = re.compile(
    r"(?P<input>[^\s:]+): (?:file not recognized|error adding symbols): file in wrong format"
    r"|(?P<input2>[^\s:]+): Relocations in generic ELF"
    r"|skipping incompatible (?P<library>\S+) when searching for (?P<name>\S+)$"
    r"(?=(?s:.*)cannot find (?P=name)\b)",
    re.IGNORECASE | re.MULTILINE,
)
_NVIDIA_SMI = re.compile(r"nvidia-smi: .*\(jetship\)")
# A compiler's own error. A project may ask the network or nvidia-smi and go on without an answer.
_COMPILER = re.compile(r"^\S+(?::\d+:\d+|\(\d+\)): (?:fatal |catastrophic )?error\b", re.MULTILINE)


@dataclass(frozen=True)
class Cause:
    """What went wrong, in one sentence, and what to do about it."""

    what: str
    fix: str


def find_cause(log: str, jobs: str) -> Cause | None:
    """Return why a build failed where its log shows a cause that is known, or None.

    Args:
        log: what the build printed.
        jobs: how many compilers ran at once.
    """
    compiled = _COMPILER.search(log) is None
    for pattern, explain in _KNOWN:
        match = pattern.search(log)
        if match and (compiled or pattern not in _SURVIVABLE):
            return explain(match, jobs)
    return None


def _memory(match: re.Match[str], jobs: str) -> Cause:
    program = match["gcc"] or match["nvcc"] or "a compiler"
    fewer = "build on a machine with more" if jobs == "1" else f"set MAX_JOBS to less than {jobs}"
    return Cause(f"the build ran out of memory in {program}, with MAX_JOBS={jobs}", fewer)


def _network(_: re.Match[str], __: str) -> Cause:
    return Cause(
        "the build asked for something on the network, and did not get it",
        "get it beforehand: with `before_build` in deploy.yaml, or a variable by which the project "
        "is told to build without",
    )


def _machine(match: re.Match[str], _: str) -> Cause:
    file = match["input"] or match["input2"] or match["library"]
    return Cause(
        f"the linker was given {file}, which is for another machine than the target",
        "take it out of the project, or bring one that is built for the target",
    )


def _gpu(_: re.Match[str], __: str) -> Cause:
    return Cause(
        "the project asks nvidia-smi of this machine's GPU, which is not the target's",
        "tell it by TORCH_CUDA_ARCH_LIST, which is set, or by a variable of its own under `env` in "
        "deploy.yaml",
    )


_KNOWN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], str], Cause]], ...] = (
    (_OUT_OF_MEMORY, _memory),
    (_WRONG_MACHINE, _machine),
    (_NETWORK, _network),
    (_NVIDIA_SMI, _gpu),
)
_SURVIVABLE = (_NETWORK, _NVIDIA_SMI)

"""Why builds fail that are not at fault themselves, read from what they print."""

import re
from collections.abc import Callable
from dataclasses import dataclass

# GCC's driver, nvcc, the shell, the kernel's OOM killer through each of them, and Python.
_OUT_OF_MEMORY = re.compile(
    r"Killed signal terminated program (?P<gcc>\S+)|'(?P<nvcc>\w+)' died due to signal 9"
    r"|virtual memory exhausted|std::bad_alloc|Cannot allocate memory|^MemoryError\b|: Killed$",
    re.MULTILINE,
)
_NETWORK = re.compile(
    r"Temporary failure in name resolution|Name or service not known|Could not resolve host"
    r"|Network is unreachable|Failed to establish a new connection|urlopen error"
    r"|Max retries exceeded|unable to access 'http"
)
# GNU ld's words for a file of another machine: as an input, and as a library that it passes over.
_WRONG_MACHINE = re.compile(
    r"(?P<input>[^\s:]+): (?:file not recognized|error adding symbols): file in wrong format"
    r"|(?P<input2>[^\s:]+): Relocations in generic ELF"
    r"|skipping incompatible (?P<library>\S+) when searching for",
    re.IGNORECASE,
)
_NVIDIA_SMI = re.compile(r"nvidia-smi: .*\(jetship\)")


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
    for pattern, explain in _KNOWN:
        match = pattern.search(log)
        if match:
            return explain(match, jobs)
    return None


def _memory(match: re.Match[str], jobs: str) -> Cause:
    program = match["gcc"] or match["nvcc"] or "a compiler"
    fewer = f"set MAX_JOBS to less than {jobs}" if jobs != "1" else "build on a machine with more"
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

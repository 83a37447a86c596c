"""Why builds fail that are not at fault themselves, read from what they print."""

import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

REPORT = "report it to the jetship project's issues, with the log"
SETUP = "<string>"  # what setuptools calls setup.py when it runs it

# GCC's driver, nvcc, the shell, the kernel's OOM killer through each of them, and Python. A source
# line that a compiler quotes may have std::bad_alloc in it: only the runtime's own words count.
_OUT_OF_MEMORY = re.compile(
    r"Killed signal terminated program (?P<gcc>\S+)|'(?P<nvcc>[^'\n]+)' died due to signal 9"
    r"|virtual memory exhausted|what\(\): +std::bad_alloc|Cannot allocate memory"
    r"|out of memory allocating|catastrophic error: out of memory|^MemoryError\b"
    r"|(?:^|[:\]] )Killed$",
    re.MULTILINE,
)
# The kernel's OOM killer sends SIGKILL, and hardly anybody else does: subprocess, setuptools, ninja
# and jetship's own word for a compiling process.
_KILLED = re.compile(
    r"died with <Signals\.SIGKILL|failed with exit code -9$|^FAILED: \[code=137\]"
    r"|was ended by SIGKILL \(jetship\)",
    re.MULTILINE,
)
# The same for other signals, GCC's driver of its halves, the signals that they tell themselves, and
# ninja (which adds 128, as shells do), make and shells.
_CRASHED = re.compile(
    r"^(?P<gcc>\S+): internal compiler error: (?P<how>(?!.+ signal terminated).+)"
    r"|(?P<said>[A-Z][\w ]+) signal terminated program (?P<half>\S+)"
    r"|'(?P<nvcc>[^'\n]+)' died due to signal (?P<number>\d+)"
    r"|Command '(?:\[')?(?P<argv>[^'\s]+).* died with <Signals\.(?P<name>SIG\w+)"
    r"|command '(?P<command>[^'\n]+)' failed with exit code -(?P<code>\d+)$"
    r"|(?P<child>a compiling process) was ended by (?P<childs>SIG\w+) \(jetship\)"
    r"|^FAILED: \[code=(?P<ninja>13[2-9])\] (?P<made>\S+)"
    r"|(?:^|[:\]] )(?P<shell>Segmentation fault|Bus error|Illegal instruction|Aborted)"
    r"(?: \(core dumped\))?$",
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
# What a project raises itself counts where it is the end: others it may have caught and shown. Of
# torch's modules the stand-in has those that it answers for.
_NO_MODULE = re.compile(
    r"^ModuleNotFoundError: No module named '(?P<module>(?!torch\b)[\w.]+)'\s*\Z", re.MULTILINE
)
_ASKED = re.compile(r"^EOFError: EOF when reading a line\s*\Z", re.MULTILINE)
_VERSION = re.compile(
    r"^(?:\w+\.)*InvalidVersion: Invalid version: (?P<version>.+)\s*\Z", re.MULTILINE
)
_OTHER_TORCH = re.compile(
    r"^(?:AssertionError|\w*Error|Exception|SystemExit): "
    r"(?=.*\b(?:py)?torch\b)(?=.*(?:[<>=]=?|version|at least|or newer|requires)\s*v?\d).*\s*\Z",
    re.MULTILINE | re.IGNORECASE,
)
_NO_WHEEL = re.compile(r"^ValueError: No distribution was found", re.MULTILINE)
# The stand-in's refusal, where it is what ends the build and not only a note; and an error of the
# stand-in itself, in the innermost frame, that it did not mean to raise.
_UNANSWERED = re.compile(r"^\w*Error: (?P<asks>.+), which jetship cannot answer", re.MULTILINE)
_OWN_DEFECT = re.compile(
    r'^  File "[^"\n]*/jetship/build/standin[^"\n]*", line \d+, in .+\n'
    r"    (?!raise\b).+\n(?:    .*\n)*(?P<error>[A-Za-z_][\w.]*(?:Error|Exception)\b.*)",
    re.MULTILINE,
)
_OWN_FRAME = re.compile(r'^  File "(?P<file>[^"\n]+)", line (?P<line>\d+)', re.MULTILINE)
# A compiler's own error.
_COMPILER = re.compile(r"^\S+(?::\d+:\d+|\(\d+\)): (?:fatal |catastrophic )?error\b", re.MULTILINE)


@dataclass(frozen=True)
class Cause:
    """What went wrong, in one sentence, and what to do about it.

    `why` says it in the log's words; it is empty where the first complaints of the compilers do.
    """

    what: str
    fix: str
    why: str = ""


@dataclass(frozen=True)
class Said:
    """What a failed build left.

    Args:
        log: what it printed.
        jobs: how many compilers ran at once.
        status: how its process ended; the number of a signal is negative, and 0 is an end without
            a result.
        folder: the project, as paths of the log name it.
    """

    log: str
    jobs: str
    status: int = 1
    folder: str = ""

    def line_of(self, match: re.Match[str]) -> str:
        """Return the line of the log that says it, behind the line of the project that led there.

        A traceback has dozens of lines, of which these two are the project's own.
        """
        end = self.log.find("\n", match.start())
        line = self.log[self.log.rfind("\n", 0, match.start()) + 1 : end if end >= 0 else None]
        own = [
            frame
            for frame in _OWN_FRAME.finditer(self.log)
            if frame["file"] == SETUP or (self.folder and frame["file"].startswith(self.folder))
        ]
        if not own:
            return line.strip()
        file = "setup.py" if own[-1]["file"] == SETUP else own[-1]["file"]
        return f"{file}, line {own[-1]['line']}: {line.strip()}"


def find_cause(said: Said) -> Cause | None:
    """Return why a build failed where what it left shows a cause that is known, or None."""
    compiled = _COMPILER.search(said.log) is None
    for pattern, explain in _KNOWN:
        match = pattern.search(said.log)
        if match and (compiled or pattern not in _SURVIVABLE):
            return explain(match, said)
    if said.status < 0:
        return _ended("its process", signal_name(-said.status), said)
    return _nothing_made(said) if said.status == 0 else None


def signal_name(number: int) -> str:
    """Return a signal's name, such as SIGSEGV."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _fewer(said: Said) -> str:
    return (
        "build on a machine with more memory"
        if said.jobs == "1"
        else f"set MAX_JOBS to less than {said.jobs}"
    )


def _memory(match: re.Match[str], said: Said) -> Cause:
    program = match["gcc"] or match["nvcc"] or "a compiler"
    return Cause(
        f"the build ran out of memory in {program}, with MAX_JOBS={said.jobs}", _fewer(said)
    )


def _killed(_: re.Match[str], said: Said) -> Cause:
    return _ended("a process", "SIGKILL", said)


def _ended(process: str, name: str, said: Said) -> Cause:
    """Return the cause where a signal ended the build, or a part of it."""
    if name == "SIGKILL":
        return Cause(
            f"the build did not end by itself: SIGKILL ended {process}, probably because memory "
            f"ran out, with MAX_JOBS={said.jobs}",
            _fewer(said),
        )
    if name in ("SIGTERM", "SIGINT", "SIGHUP"):
        return Cause(f"the build was stopped: somebody sent {name} to {process}", "build again")
    return Cause(
        f"the build crashed: {name} ended {process}",
        "find out with a debugger what crashes in it, which may also be a package that its "
        "setup.py imports",
    )


_SIGNALS = ("how", "said", "name", "childs", "shell")
_PROGRAMS = ("gcc", "half", "nvcc", "argv", "command", "child")


def _crashed(match: re.Match[str], said: Said) -> Cause:
    """Return the cause where a program that the build runs ended by a signal."""
    found = match.groupdict()
    ended = {signal.strsignal(number): signal.Signals(number).name for number in signal.Signals}
    how = next((found[word] for word in _SIGNALS if found[word]), None)
    number = found["number"] or found["code"] or int(found["ninja"] or 128) - 128
    name = ended.get(how, how) or signal_name(int(number))
    made = f"the compiler of {found['made']}" if found["made"] else "a program"
    program = next((found[word] for word in _PROGRAMS if found[word]), made)
    if name in ("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP"):
        return _ended(program, name, said)
    return Cause(
        f"{program} crashed ({name}), with MAX_JOBS={said.jobs}",
        f"build again with MAX_JOBS=1, as too little memory does that as well; a compiler of the "
        f"toolchain that crashes again is not the project's fault: {REPORT}",
    )


def _network(match: re.Match[str], said: Said) -> Cause:
    return Cause(
        "the build asked for something on the network, and did not get it",
        "get it beforehand: with `before_build` in deploy.yaml, or a variable by which the project "
        "is told to build without",
        said.line_of(match),
    )


def _machine(match: re.Match[str], _: Said) -> Cause:
    file = match["input"] or match["input2"] or match["library"]
    return Cause(
        f"the linker was given {file}, which is for another machine than the target",
        "take it out of the project, or bring one that is built for the target; what the build "
        "itself makes is for the target if it calls $CC or gcc, and not if it calls /usr/bin/gcc",
    )


def _gpu(match: re.Match[str], said: Said) -> Cause:
    return Cause(
        "the project asks nvidia-smi of this machine's GPU, which is not the target's",
        "tell it by TORCH_CUDA_ARCH_LIST, which is set, or by a variable of its own under `env` in "
        "deploy.yaml",
        said.line_of(match),
    )


def _no_module(match: re.Match[str], said: Said) -> Cause:
    module = match["module"].partition(".")[0]
    if said.folder and any(Path(said.folder, name).exists() for name in (module, f"{module}.py")):
        return Cause(
            f"the project's setup.py imports {module} from beside it, and is not run from there",
            'write `build-backend = "setuptools.build_meta:__legacy__"` under [build-system] in '
            "its pyproject.toml, which runs it so",
            said.line_of(match),
        )
    return Cause(
        f"the project imports {module} while it is built, and does not require it",
        f"add what brings {module} to `requires` under [build-system] in its pyproject.toml: a "
        "build sees nothing else that is installed here",
        said.line_of(match),
    )


def _asked(match: re.Match[str], said: Said) -> Cause:
    return Cause(
        "the project asks a question while it is built, and there is nobody to answer",
        "tell it the answer in another way: by a variable that it looks at, under `env` in "
        "deploy.yaml, or with `before_build` there",
        said.line_of(match),
    )


def _version(match: re.Match[str], said: Said) -> Cause:
    return Cause(
        f"the project's version {match['version']} is not a version by PEP 440",
        "write it like 1.0, 1.0rc1 or 1.0+local.words",
        said.line_of(match),
    )


def _other_torch(match: re.Match[str], said: Said) -> Cause:
    return Cause(
        "the project refuses the torch of the target",
        "choose a platform with the torch that it wants (`invoke targets`), or a release of the "
        "project for the torch that the target has",
        said.line_of(match),
    )


def _no_wheel(_: re.Match[str], said: Said) -> Cause:
    return _nothing_made(said)


def _nothing_made(said: Said) -> Cause:
    before = said.log.partition("Traceback (most recent call last)")[0].split("\n")
    last = next((line.strip() for line in reversed(before) if line.strip()), "")
    return Cause(
        "the project's setup.py ended, with success, and made no wheel",
        "let it call setup() however it is run, or give it what it ends early for want of (`env` "
        "and `before_build` in deploy.yaml)",
        f"the last that it said: {last}" if last else "it said nothing",
    )


def _unanswered(match: re.Match[str], _: Said) -> Cause:
    return Cause(
        "the project asks of torch what jetship cannot answer",
        f"have the project do without where it can; if it needs the answer, {REPORT}",
        match["asks"],
    )


def _own_defect(match: re.Match[str], _: Said) -> Cause:
    return Cause(
        "jetship's stand-in for torch failed, which is no fault of the project",
        REPORT,
        match["error"],
    )


_KNOWN: tuple[tuple[re.Pattern[str], Callable[[re.Match[str], Said], Cause]], ...] = (
    (_OUT_OF_MEMORY, _memory),
    (_KILLED, _killed),
    (_CRASHED, _crashed),
    (_WRONG_MACHINE, _machine),
    (_OWN_DEFECT, _own_defect),
    (_UNANSWERED, _unanswered),
    (_NETWORK, _network),
    (_NVIDIA_SMI, _gpu),
    (_NO_WHEEL, _no_wheel),
    (_NO_MODULE, _no_module),
    (_ASKED, _asked),
    (_VERSION, _version),
    (_OTHER_TORCH, _other_torch),
)
# What a project may try in vain, and go on; where a compiler complains, that is why it failed.
_SURVIVABLE = (_CRASHED, _UNANSWERED, _NETWORK, _NVIDIA_SMI)

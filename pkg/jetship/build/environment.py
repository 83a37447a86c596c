"""The cross environment: everything that a PEP 517 build of a project sees.

CPython's own switches for cross builds give the target's suffix and flags
(`_PYTHON_SYSCONFIGDATA_NAME`, `_PYTHON_HOST_PLATFORM`), the stand-in gives the target's
torch, and CC, CXX and CUDA_HOME lead to the toolchain. Nothing of the build machine's own
compilers, headers or Python configuration is left in it.
"""

import json
import os
import pprint
import re
import runpy
import shlex
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import ninja

from jetship import console
from jetship.build.torchfacts import torch_facts
from jetship.errors import ConfigError
from jetship.store import write_atomically
from jetship.targets.model import Platform, Target
from jetship.toolchain.layout import write_program
from jetship.toolchain.model import Toolchain

STANDIN = Path(__file__).parent / "standin"
SYSCONFIG_MODULE = "_jetship_sysconfigdata"

# Where nvcc's headers compare the host compiler with the newest that they know.
HOST_CONFIG = Path("crt/host_config.h")
_GCC_LIMIT = re.compile(r"__GNUC__ > (\d+)")

# nvcc hands its own halves to the host compiler; caching those as well would only take space. A
# project's --threads would run as many compilers again in each of MAX_JOBS, which memory decided.
_NVCC = """\
#!/bin/sh
# Written by jetship: nvcc, behind the compiler cache where the build has one.
cache=${{JETSHIP_CCACHE:-}}
unset JETSHIP_CCACHE
before=
for word do
    shift
    case $before$word in
    --threads[0-9]* | -t[0-9]*) case $before in ?*) word=1 ;; esac ;;
    --threads=*) word=--threads=1 ;;
    -t=*) word=-t=1 ;;
    esac
    case $word in --threads | -t) before=$word ;; *) before= ;; esac
    set -- "$@" "$word"
done
{compiler_check}
exec ${{cache:+"$cache"}} {nvcc} "$@"
"""

# A setup.py that asks for the GPU's compute capability means the GPU that it builds for.
_NVIDIA_SMI = """\
#!/bin/sh
# Written by jetship: the build machine's own GPU, where it has one, is not the target's.
case " $* " in
*"--query-gpu=compute_cap "*)
    case " $* " in *noheader*) ;; *) echo compute_cap ;; esac
    {answers}
    ;;
esac
echo "nvidia-smi: the GPU of {target} is not here to be asked (jetship)" >&2
exit 9
"""

# What a setup.py calls by its plain name, as nvcc does without -ccbin, is the target's compiler.
# Not so `as` and `ld`: this machine's GCC, called by its path, looks for them on PATH.
_PLAIN_NAMES = {"gcc": "gcc", "cc": "gcc", "g++": "g++", "c++": "g++", "cpp": "cpp"}
_COMPILER = """\
#!/bin/sh
# Written by jetship: {name} is {compiler}.
exec {compiler} "$@"
"""
MEMORY_PER_JOB_BYTES = 2 << 30

# What would lead a build back to the build machine's own headers, libraries or Python.
LEAKING_VARIABLES = frozenset({
    "CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH",
    "LD_PRELOAD", "CFLAGS",
    "CXXFLAGS", "CPPFLAGS", "LDFLAGS", "CC", "CXX", "LDSHARED", "LDCXXSHARED", "AR",
    "CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDACXX", "CUDNN_HOME", "NVCC_PREPEND_FLAGS",
    "NVCC_APPEND_FLAGS", "PYTHONPATH", "PYTHONHOME", "PYTHONSTARTUP", "VIRTUAL_ENV",
    "TORCH_CUDA_ARCH_LIST", "FORCE_CUDA", "PKG_CONFIG_PATH",
    "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_RUN_PATH", "NVCC_CCBIN", "CUDAHOSTCXX",
})  # fmt: skip


@dataclass(frozen=True)
class CrossEnvironment:
    """A folder with the generated files, and the variables that lead a build to them."""

    folder: Path
    variables: Mapping[str, str]


def create(
    toolchain: Toolchain,
    target: Target,
    folder: Path,
    *,
    jobs: int = 1,
    extra: Mapping[str, str] | None = None,
) -> CrossEnvironment:
    """Write the generated files of a cross environment into `folder`.

    Args:
        toolchain: the target's toolchain.
        target: what to build for.
        folder: where the generated files go.
        jobs: how many compilers may run at once.
        extra: further variables of the environment; its LDFLAGS come behind the target's.

    Raises:
        ConfigError: the toolchain's torch or Python is not what the platform file says.
    """
    folder.mkdir(parents=True, exist_ok=True)
    facts = folder / "torch-facts.json"
    values = torch_facts(toolchain, target)
    write_atomically(facts, json.dumps(values, indent=2).encode())
    _write_torch_metadata(folder, str(values["version"]))
    module = folder / f"{SYSCONFIG_MODULE}.py"
    write_atomically(module, _sysconfig_source(toolchain).encode())
    if target.code:
        _lay_out_cuda(toolchain, folder / "cuda")
    (folder / "bin").mkdir()
    _write_nvidia_smi(target, folder)
    _write_compilers(toolchain, folder)
    variables = _variables(toolchain, target, folder, facts) | {"MAX_JOBS": str(jobs)}
    more = dict(extra or {})
    if "LDFLAGS" in more:
        more["LDFLAGS"] = f"{variables['LDFLAGS']} {more['LDFLAGS']}"
    return CrossEnvironment(folder, {**variables, **more})


def _write_nvidia_smi(target: Target, folder: Path) -> None:
    archs = " ".join(str(code.arch) for code in target.code)
    answers = f"printf '%s\\n' {archs}; exit 0" if target.code else ":"
    write_program(folder / "bin/nvidia-smi", _NVIDIA_SMI.format(answers=answers, target=target.id))


def _write_compilers(toolchain: Toolchain, folder: Path) -> None:
    for name, own in _PLAIN_NAMES.items():
        compiler = shlex.quote(str(toolchain.bin / f"{toolchain.multiarch}-{own}"))
        write_program(folder / "bin" / name, _COMPILER.format(name=name, compiler=compiler))


def _lay_out_cuda(toolchain: Toolchain, view: Path) -> None:
    """Make a CUDA_HOME that is the toolchain's, with a nvcc that asks the compiler cache first."""
    real = toolchain.cuda_home
    (view / "bin").mkdir(parents=True)
    for entry in real.iterdir():
        if entry.name != "bin":
            (view / entry.name).symlink_to(entry)
    _lift_limit(real, view, toolchain.platform)
    for program in (real / "bin").iterdir():
        if program.name != "nvcc":
            (view / "bin" / program.name).symlink_to(program)
    pinned = real.resolve().is_relative_to(toolchain.root.parent)
    # A part's name is made of its packages' digests. Of a user's toolkit ccache reads the programs.
    check = f"string:{real.resolve().name}" if pinned else "content"
    # nvcc takes flags from these as well, which its command line does not show.
    flags = " $NVCC_PREPEND_FLAGS $NVCC_APPEND_FLAGS" if pinned else ""
    text = _NVCC.format(
        nvcc=shlex.quote(str(real / "bin/nvcc")),
        compiler_check=f'export CCACHE_COMPILERCHECK="{check}{flags}"',
    )
    write_program(view / "bin/nvcc", text)


def _lift_limit(real: Path, view: Path, platform: Platform) -> None:
    """Let nvcc take the platform's GCC where its host_config.h refuses all newer than it knew.

    CUDA 10.2 knew GCC up to 8, and the oldest cross GCC that is openly to be had is 9. Headers are
    found by the folder that includes them, so the one with the limit is laid over the toolkit's.
    """
    gcc = platform.toolchain.compiler.part.gcc or 0
    config = real / "include" / HOST_CONFIG
    text = config.read_text(encoding="utf-8", errors="replace") if config.is_file() else ""
    limits = [int(number) for number in _GCC_LIMIT.findall(text)]
    if not limits or gcc <= min(limits):
        return
    console.warn(
        f"this nvcc takes GCC up to {min(limits)}, and {platform.name} is built with GCC {gcc}: "
        "its limit is lifted, which NVIDIA has not tried"
    )
    include = view / "include"
    include.unlink()
    include.mkdir()
    for entry in (real / "include").iterdir():
        if entry.name != HOST_CONFIG.parent.name:
            (include / entry.name).symlink_to(entry)
    (include / HOST_CONFIG.parent).mkdir()
    for entry in config.parent.iterdir():
        (include / HOST_CONFIG.parent / entry.name).symlink_to(entry)
    (include / HOST_CONFIG).unlink()
    lifted = _GCC_LIMIT.sub(f"__GNUC__ > {gcc}", text)
    write_atomically(include / HOST_CONFIG, lifted.encode())


def _write_torch_metadata(folder: Path, version: str) -> None:
    """Let importlib.metadata and pkg_resources, which setup.py files also ask, find torch."""
    metadata = folder / f"torch-{version}.dist-info" / "METADATA"
    metadata.parent.mkdir(exist_ok=True)
    text = f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n"
    write_atomically(metadata, text.encode())


def compose(
    own: Mapping[str, str], cross: CrossEnvironment, extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment of the build: this process's, cleaned, with the cross variables.

    Args:
        own: the environment to start from.
        cross: the cross environment.
        extra: what the PEP 517 front end sets; of it, PATH is kept behind the toolchain's.
    """
    kept = {key: value for key, value in own.items() if key not in LEAKING_VARIABLES}
    kept.update({key: value for key, value in extra.items() if key != "PYTHONPATH"})
    path = kept.get("PATH", os.defpath)
    kept.update(cross.variables)
    kept["PATH"] = os.pathsep.join([cross.variables["PATH"], path])
    return kept


def _sysconfig_source(toolchain: Toolchain) -> str:
    """Return the target's sysconfig data as a module, with all paths led into the sysroot."""
    version = toolchain.platform.python.version
    folder = toolchain.sysroot / f"usr/lib/python{version}"
    found = sorted(folder.glob("_sysconfigdata_*.py"))
    if not found:
        return _sysconfig_module(toolchain, _sysconfig_facts(toolchain))
    values = dict(runpy.run_path(str(found[0]))["build_time_vars"])
    for key, value in values.items():
        if isinstance(value, str):
            # -g is how Debian compiled Python itself; it would multiply a wheel's size.
            plain = re.sub(r"(?<!\S)-g(?!\S)", "", value)
            values[key] = re.sub(
                r"(?<![\w.=/-])(-[IL])?/usr/", rf"\g<1>{toolchain.sysroot}/usr/", plain
            )
    return _sysconfig_module(toolchain, values)


def _sysconfig_module(toolchain: Toolchain, values: Mapping[str, object]) -> str:
    """Return the module's source.

    setuptools makes the wheel's ABI tag out of SOABI, and refuses one that is not of the Python
    that runs it. So SOABI is that one's; the finished wheel gets the target's tags.
    """
    soabi = f"{sys.implementation.cache_tag}-{toolchain.multiarch}"
    own = {**values, **_compilers(toolchain), "SOABI": soabi}
    return f"build_time_vars = {pprint.pformat(own)}\n"


def _sysconfig_facts(toolchain: Toolchain) -> dict[str, object]:
    """Return sysconfig data for a Python of which only the names are known."""
    platform = toolchain.platform
    soabi = f"{platform.python.cache_tag}-{toolchain.multiarch}"
    prefix = f"{toolchain.sysroot}/usr"
    return {
        "EXT_SUFFIX": f".{soabi}.so",
        "SHLIB_SUFFIX": ".so",
        "MULTIARCH": toolchain.multiarch,
        "HOST_GNU_TYPE": toolchain.multiarch,
        "VERSION": platform.python.version,
        "Py_ENABLE_SHARED": 0,
        "OPT": "-DNDEBUG -fwrapv -O2 -Wall",
        "CFLAGS": "-DNDEBUG -fwrapv -O2 -Wall",
        "CCSHARED": "-fPIC",
        "ARFLAGS": "rcs",
        "LIBDIR": f"{prefix}/lib",
        "INCLUDEPY": str(toolchain.python_include),
        "CONFINCLUDEPY": str(toolchain.python_include),
        "prefix": prefix,
        "exec_prefix": prefix,
    }


def _compilers(toolchain: Toolchain) -> dict[str, str]:
    cc = str(toolchain.bin / f"{toolchain.multiarch}-gcc")
    cxx = str(toolchain.bin / f"{toolchain.multiarch}-g++")
    return {
        "CC": cc,
        "CXX": cxx,
        "LDSHARED": f"{cc} -shared",
        "LDCXXSHARED": f"{cxx} -shared",
        "AR": str(toolchain.bin / f"{toolchain.multiarch}-ar"),
    }


def _variables(toolchain: Toolchain, target: Target, folder: Path, facts: Path) -> dict[str, str]:
    return {
        **_compilers(toolchain),
        "PATH": os.pathsep.join(
            [str(folder / "bin"), str(toolchain.bin), str(folder / "cuda/bin"), ninja.BIN_DIR]
        ),
        "PYTHONPATH": os.pathsep.join([str(STANDIN), str(folder)]),
        "LC_ALL": "C.UTF-8",
        "PYTHONNOUSERSITE": "1",
        "GIT_OPTIONAL_LOCKS": "0",  # the copy's .git leads to the project's, which nobody writes to
        "PYTHONDONTWRITEBYTECODE": "1",
        "_PYTHON_SYSCONFIGDATA_NAME": SYSCONFIG_MODULE,
        "_PYTHON_HOST_PLATFORM": f"linux-{toolchain.platform.machine}",
        "JETSHIP_MACHINE": toolchain.platform.machine,
        "JETSHIP_PYTHON_INCLUDE": str(toolchain.python_include),
        "JETSHIP_STANDIN_FACTS": str(facts),
        "JETSHIP_TARGET": target.id,
        **_cuda_variables(target, folder),
        # Import stubs define nothing, so a linker that drops what it sees no use for (Debian's
        # cross GCC asks for that) would drop libc10_cuda from NEEDED, and the loader then looks
        # for its symbols nowhere.
        # nvcc puts its process id into a local symbol: without those, the bytes are the same.
        "LDFLAGS": " ".join(
            ["-Wl,--no-as-needed", "-Wl,--discard-all", *_library_folders(toolchain)]
        ),
        # torch asks whether the compiler is the one that built it; the toolchain chose it.
        "TORCH_DONT_CHECK_COMPILER_ABI": "1",
    }


def _library_folders(toolchain: Toolchain) -> list[str]:
    """Return -L for the target's own CUDA runtime, and behind it for the import stubs."""
    return [f"-L{folder}" for folder in (*toolchain.cuda_libraries, toolchain.stubs)]


def _cuda_variables(target: Target, folder: Path) -> dict[str, str]:
    if not target.code:
        return {"FORCE_CUDA": "0"}
    return {
        "CUDA_HOME": str(folder / "cuda"),
        "FORCE_CUDA": "1",
        "TORCH_CUDA_ARCH_LIST": target.arch_list,
    }


def max_jobs() -> int:
    """Return how many compilers may run at once: a core and 2 GiB of free memory for each.

    MAX_JOBS, which torch also reads, comes first.

    Raises:
        ConfigError: MAX_JOBS is not a number of jobs.
    """
    chosen = os.environ.get("MAX_JOBS")
    if chosen:
        if not chosen.isdecimal() or int(chosen) == 0:
            raise ConfigError(
                f"MAX_JOBS is {chosen!r}, not a number of compilers",
                fix="unset it, or set it to 1 or more",
            )
        return int(chosen)
    free = _available_bytes()
    return max(1, min(len(os.sched_getaffinity(0)), free // MEMORY_PER_JOB_BYTES))


def _available_bytes() -> int:
    """Return the memory that the kernel would give out, its caches counted in."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")

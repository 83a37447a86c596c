"""The CUDA kernels, compiled for one GPU after another: what the tools beside this file look at.

A module of those, and no program of its own. The compilers are those of jetship's toolchains, where
the Python that runs a tool has jetship, or any nvcc that is named with --nvcc. No GPU is asked for.
"""

from __future__ import annotations

import argparse
import json
import re
import runpy
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple, Sequence

CSRC = Path(__file__).resolve().parents[1]
FLAGS = tuple(runpy.run_path(str(CSRC / "jetops/_sources.py"))["NVCC_FLAGS"])
# Every arch by the CUDA that its boards have, or the nearest that jetship has in the open.
OF_JETSHIP = (
    ("sm62-debian-12", ("5.3", "6.2", "7.2", "8.7")),
    ("sm87-debian-13", ("8.7", "9.0", "11.0")),
)


class Toolkit(NamedTuple):
    """An nvcc, the compiler that it hands host code to (None: its own choice), and its archs."""

    nvcc: Path
    version: str
    compiler: Path | None
    archs: tuple[str, ...]

    @property
    def standard(self) -> str:
        """The oldest C++ of any torch with it; CUDA 13's own headers take no older one."""
        return "c++14" if int(self.version.partition(".")[0]) < 13 else "c++17"


class Code(NamedTuple):
    """What nvcc made of one source for one arch, and what it and ptxas -v said."""

    source: str
    arch: str
    cuda: str
    cubin: Path
    said: str

    @property
    def warnings(self) -> list[str]:
        """All that was said, less what ptxas was asked to tell."""
        lines = [line for line in self.said.splitlines() if line.strip()]
        return [line for line in lines if not _TOLD.match(line)]


_TOLD = re.compile(r"ptxas info\s+: |\s+\d+ bytes stack frame, |\s*\d+ bytes cumulative stack size")


class CompileError(Exception):
    """A tool is missing, a source does not compile, or what is made of it cannot be written."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Let a tool's command line name compilers."""
    parser.add_argument(
        "--nvcc",
        action="append",
        metavar="PATH=ARCHS",
        help="an nvcc and what to compile with it, as /usr/local/cuda/bin/nvcc=8.7,9.0; "
        "may be repeated (default: those of jetship)",
    )
    parser.add_argument("--ccbin", help="the compiler that those hand host code to")


def add_page(parser: argparse.ArgumentParser) -> None:
    """Let a tool's command line name the file that its page goes to."""
    parser.add_argument("page", nargs="?", type=Path, help="the file to write")


def write_page(text: str, file: Path | None) -> None:
    """Write a page, or print it where no file was named."""
    if file is None:
        print(text)
    else:
        file.write_text(text)


def require_writable(file: Path) -> None:
    """See that a file can be written, before minutes go into what is to be in it.

    Raises:
        CompileError: it cannot.
    """
    was_there = file.exists()
    try:
        file.open("a").close()
    except OSError as error:
        raise CompileError(
            f"{file} cannot be written ({error.strerror}): name another file"
        ) from error
    if not was_there:
        file.unlink()


def toolkits_of(arguments: argparse.Namespace) -> list[Toolkit]:
    """The toolkits that a command line names, or else jetship's.

    Raises:
        CompileError: one is not there, or the words make no sense.
    """
    if not arguments.nvcc:
        return [_of_jetship(target, archs) for target, archs in OF_JETSHIP]
    compiler = Path(arguments.ccbin) if arguments.ccbin else None
    return [_named(words, compiler) for words in arguments.nvcc]


def _named(words: str, compiler: Path | None) -> Toolkit:
    path, _, listed = words.partition("=")
    archs = tuple(listed.split(",")) if listed else ()
    if not archs or not all(re.match(r"\d+\.\d$", arch) for arch in archs):
        raise CompileError(f"--nvcc {words}: write PATH=ARCHS, such as /usr/bin/nvcc=6.2,8.7")
    return Toolkit(Path(path), _version_of(Path(path)), compiler, archs)


def _of_jetship(target: str, archs: tuple[str, ...]) -> Toolkit:
    words = [sys.executable, "-m", "jetship.tasks", "jetship", "toolchain"]
    done = _run([*words, "--target", target, "--json"], keep_stderr=False)
    if done.returncode != 0:
        raise CompileError(
            f"jetship gives no toolchain of {target}: run this with the Python that jetship is "
            "installed in, or name compilers with --nvcc"
        )
    (row,) = json.loads(done.stdout)["toolchains"]
    nvcc = Path(row["cuda_home"]) / "bin/nvcc"
    return Toolkit(nvcc, _version_of(nvcc), Path(row["compiler"]), archs)


def _version_of(nvcc: Path) -> str:
    try:
        said = _run([nvcc, "--version"]).stdout
    except OSError as error:
        raise CompileError(f"{nvcc} cannot be run: {error.strerror}") from error
    match = re.search(r"release ([\d.]+)", said)
    if match is None:
        raise CompileError(f"{nvcc} does not say which release of CUDA it is")
    return match[1]


def compile_kernels(toolkits: Sequence[Toolkit], folder: Path, jobs: int = 2) -> list[Code]:
    """Compile every kernels/*.cu for every arch, with setup.py's flags.

    Raises:
        CompileError: one does not compile; has what nvcc said.
    """
    sources = sorted((CSRC / "kernels").glob("*.cu"))
    wanted = [(kit, arch, source) for kit in toolkits for arch in kit.archs for source in sources]
    with ThreadPoolExecutor(jobs) as pool:
        return list(pool.map(lambda one: _compile(*one, folder=folder), wanted))


def _compile(toolkit: Toolkit, arch: str, source: Path, folder: Path) -> Code:
    number = arch.replace(".", "")
    cubin = folder / f"{source.stem}.sm_{number}.cuda{toolkit.version}.cubin"
    host = ["-ccbin", toolkit.compiler] if toolkit.compiler else []
    code = f"arch=compute_{number},code=sm_{number}"
    words = [
        toolkit.nvcc,
        *host,
        f"-std={toolkit.standard}",
        *FLAGS,
        "-gencode",
        code,
        "-Xptxas",
        "-v",
    ]
    done = _run([*words, f"-I{source.parent}", "-cubin", "-o", cubin, source])
    if done.returncode != 0:
        raise CompileError(f"nvcc {toolkit.version}: {source.name} for {arch}:\n{done.stdout}")
    return Code(source.name, arch, toolkit.version, cubin, done.stdout)


def demangler_of(toolkits: Sequence[Toolkit]) -> Path:
    """A c++filt: of a toolkit's compiler, of this machine, or CUDA's own.

    Raises:
        CompileError: there is none.
    """
    beside = [
        kit.compiler.with_name(kit.compiler.name.replace("g++", "c++filt"))
        for kit in toolkits
        if kit.compiler and kit.compiler.name.endswith("g++")
    ]
    on_path = [Path(found) for found in (shutil.which("c++filt"),) if found]
    own = [kit.nvcc.with_name("cu++filt") for kit in toolkits]
    for program in (*beside, *on_path, *own):
        if program.is_file():
            return program
    raise CompileError("no c++filt is here: install binutils")


def demangle(program: Path, names: Sequence[str]) -> list[str]:
    """The names as people write them."""
    done = subprocess.run(
        [str(program)], input="\n".join(names), stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout.splitlines()


class Name(NamedTuple):
    """A kernel's own name, and its template's arguments without namespaces: "Float16, 8"."""

    kernel: str
    arguments: str


def short_name(demangled: str) -> Name:
    """The name out of "void (anonymous namespace)::scan<jetops::Float16, 8>(Problem)"."""
    text = demangled.replace("(anonymous namespace)", "unnamed")
    text = re.sub(r"\((?:unsigned )?(?:int|bool|long)\)(?=-?\d)", "", text)
    text = text[: _outside(text, "(", len(text))]
    opening = _outside(text, "<", len(text))
    kernel = re.split(r"[\s:]", text[:opening].strip())[-1]
    arguments = text[opening + 1 : -1].strip() if text.endswith(">") else ""
    return Name(kernel, re.sub(r"\b(?:\w+::)+", "", arguments).replace("> >", ">>"))


def _outside(text: str, letter: str, default: int) -> int:
    """Where a letter first stands outside of angle brackets."""
    depth = 0
    for at, one in enumerate(text):
        if one == letter and depth == 0:
            return at
        depth += {"<": 1, ">": -1}.get(one, 0)
    return default


def _run(words: Sequence[object], keep_stderr: bool = True) -> subprocess.CompletedProcess:
    return subprocess.run(
        [str(word) for word in words],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT if keep_stderr else None,
        text=True,
        check=False,
    )

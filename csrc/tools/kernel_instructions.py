"""Instructions that kernels need for 16 bytes of their result on every GPU, as JSON:

    python csrc/tools/kernel_instructions.py --nvdisasm OLD --nvdisasm NEW docs/benchmarks/instructions.json

They are counted in the machine code, along the way through a kernel that reads and writes most in
accesses of 16 bytes: around the innermost loop that stores so, or from the first instruction to the
last where it has none. Kernels that store nothing in 16 bytes are left out.

No toolchain of jetship has nvdisasm. For code below 7.5 it must be of CUDA 12 or older, such as the
one in Debian's nvidia-cuda-toolkit; nvidia-cuda-nvdisasm on PyPI has a new one.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Iterator, NamedTuple, Sequence

from kernels_by_arch import (
    Code,
    CompileError,
    add_arguments,
    compile_kernels,
    demangle,
    demangler_of,
    require_writable,
    short_name,
    toolkits_of,
)

# The execution pipe of an opcode, by its first letters, the longest that fit; everything else is
# only issued (memory, control, uniform registers). Nsight Compute's Kernel Profiling Guide,
# "Pipelines", for 7.0 and later. Maxwell and Pascal have the same kinds.
_PIPES = {
    "xu": "MUFU RRO F2F F2I I2F FRND POPC",
    "fma": "FADD FMUL FFMA HADD2 HMUL2 HFMA2 XMAD",
    "imad": "IMAD",
    "alu": "IADD LEA LOP ISCADD SEL FSEL PRMT MOV PLOP PSET PSETP P2R R2P F2FP BFE BFI BMSK",
    # A half of the others' rate on Maxwell and Pascal.
    "compare": "FMNMX IMNMX VIMNMX FSET FSETP ISET ISETP ICMP FCMP SHF SHL SHR",
}
PIPES = tuple(_PIPES)
_PIPE_OF = {word: pipe for pipe, words in _PIPES.items() for word in words.split()}

# Where to get what no toolchain of jetship has.
NVDISASM_FROM = (
    "for code below 7.5 take that of CUDA 12 or older, such as Debian's nvidia-cuda-toolkit has, and "
    "for newer code that of nvidia-cuda-nvdisasm on PyPI; name each with --nvdisasm PATH"
)

_FUNCTION = re.compile(r"\.text\.(\S+):$")
_LABEL = re.compile(r"(\.L_\w+):$")
_INSTRUCTION = re.compile(r"/\*[0-9a-f]+\*/\s+\{?\s*(@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)(.*)")
_ENDS = ("EXIT", "RET")
_JUMPS = ("BRA", "SYNC", "BRK", "JMP")


class Instruction(NamedTuple):
    """One instruction; `targets` are the labels that it may jump to."""

    opcode: str
    predicated: bool
    targets: tuple[str, ...]

    @property
    def base(self) -> str:
        return self.opcode.partition(".")[0]

    @property
    def is_wide(self) -> bool:
        return self.base in ("LDG", "STG") and ".128" in self.opcode

    @property
    def is_wide_store(self) -> bool:
        return self.base == "STG" and self.is_wide

    @property
    def pipe(self) -> str | None:
        fitting = [word for word in _PIPE_OF if self.base.startswith(word)]
        return _PIPE_OF[max(fitting, key=len)] if fitting else None


class Function(NamedTuple):
    """A kernel's instructions in order, and at which of them each label stands."""

    name: str
    instructions: list[Instruction]
    labels: dict[str, int]


class Way(NamedTuple):
    """What is met on a way through the code: accesses of 16 bytes, and instructions by pipe."""

    wide: int = 0
    stores: int = 0
    issued: int = 0
    pipes: tuple[int, ...] = (0,) * len(PIPES)

    def after(self, one: Instruction) -> Way:
        """This way and one more instruction."""
        pipes = tuple(count + (one.pipe == pipe) for pipe, count in zip(PIPES, self.pipes))
        wide, stores = self.wide + one.is_wide, self.stores + one.is_wide_store
        return Way(wide, stores, self.issued + 1, pipes)

    @property
    def rank(self) -> tuple[int, int]:
        return (self.wide, -self.issued)


def functions(listing: str) -> Iterator[Function]:
    """The functions in what `nvdisasm -c` prints."""
    current = None
    for line in map(str.strip, listing.splitlines()):
        match = _FUNCTION.match(line)
        if match:
            if current:
                yield current
            current = Function(match[1], [], {})
        elif current:
            _read_line(line, current)
    if current:
        yield current


def _read_line(line: str, into: Function) -> None:
    label = _LABEL.match(line)
    if label:
        into.labels[label[1]] = len(into.instructions)
        return
    match = _INSTRUCTION.match(line)
    if match and match[2] != "NOP":
        jumps = match[2].partition(".")[0] in _JUMPS
        targets = tuple(re.findall(r"\.L_\w+", match[3])) if jumps else ()
        into.instructions.append(Instruction(match[2], match[1] is not None, targets))


def hot_way(function: Function) -> Way | None:
    """The way that reads and writes most in 16 bytes, and of several such the shortest.

    None where the function stores nothing in 16 bytes.
    """
    code = function.instructions
    stores = [at for at, one in enumerate(code) if one.is_wide_store]
    if not stores:
        return None
    loops = [
        (function.labels[label], at)
        for at, one in enumerate(code)
        for label in one.targets
        if one.base == "BRA" and any(function.labels[label] <= store < at for store in stores)
    ]
    if loops:
        first, last = min(loops, key=lambda loop: loop[1] - loop[0])
        return _best(function, first, [last])
    ends = [at for at, one in enumerate(code) if one.base in _ENDS]
    return _best(function, 0, ends)


def _best(function: Function, first: int, ends: Sequence[int]) -> Way | None:
    """The best way from one instruction to one of others, jumping forward only."""
    reached: dict[int, Way] = {first: Way()}
    found = []
    for at in range(first, max(ends) + 1):
        if at not in reached:
            continue
        one = function.instructions[at]
        way = reached[at].after(one)
        if at in ends:
            found.append(way)
        following = [function.labels[label] for label in one.targets]
        if one.predicated or one.base not in (*_ENDS, *_JUMPS):
            following.append(at + 1)
        for place in following:
            if place > at and (place not in reached or way.rank > reached[place].rank):
                reached[place] = way
    return max(found, key=lambda way: way.rank, default=None)


def require_programs(programs: Sequence[str]) -> None:
    """See that every nvdisasm is there, before anything is compiled for it.

    Raises:
        CompileError: one is not; says where to get it.
    """
    for program in programs:
        if shutil.which(program) is None:
            raise CompileError(f"there is no program {program}: {NVDISASM_FROM}")


def disassemble(code: Code, programs: Sequence[str]) -> str:
    """What the first nvdisasm that knows the code's arch prints.

    Raises:
        CompileError: none does.
    """
    said = ""
    for program in programs:
        try:
            done = subprocess.run(
                [program, "-c", str(code.cubin)], capture_output=True, text=True, check=False
            )
        except OSError as error:
            raise CompileError(f"{program} cannot be run: {error.strerror}") from error
        if done.returncode == 0:
            return done.stdout
        said += done.stderr
    raise CompileError(
        f"no nvdisasm here knows code for {code.arch}: {NVDISASM_FROM}\n{said.strip()}"
    )


def rows_of(code: Code, listing: str, demangler: Path) -> list[dict[str, object]]:
    """A row for each kernel that stores in 16 bytes, with its counts for one such store."""
    ways = [(function.name, hot_way(function)) for function in functions(listing)]
    kept = [(name, way) for name, way in ways if way and way.stores]
    names = [short_name(name) for name in demangle(demangler, [name for name, _ in kept])]
    return [
        {
            "source": code.source,
            "kernel": name.kernel,
            "arguments": name.arguments,
            "arch": code.arch,
            "cuda": code.cuda,
            "issued": round(way.issued / way.stores, 2),
            **{pipe: round(n / way.stores, 2) for pipe, n in zip(PIPES, way.pipes)},
        }
        for name, (_, way) in zip(names, kept)
    ]


def main() -> None:
    """Compile, disassemble, count, and write the file."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("file", type=Path, help="the file to write")
    parser.add_argument("--nvdisasm", action="append", help="may be repeated (default: on PATH)")
    add_arguments(parser)
    arguments = parser.parse_args()
    programs = arguments.nvdisasm or ["nvdisasm"]
    require_writable(arguments.file)
    require_programs(programs)
    toolkits = toolkits_of(arguments)
    demangler = demangler_of(toolkits)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for code in compile_kernels(toolkits, Path(folder), jobs=os.cpu_count() or 1):
            listing = disassemble(code, programs)
            rows += rows_of(code, listing, demangler)
    rows.sort(key=lambda row: tuple(map(str, row.values())))
    lines = ",\n".join("  " + json.dumps(row) for row in rows)
    arguments.file.write_text(f'{{"per": "store of 16 bytes", "rows": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    try:
        main()
    except CompileError as error:
        sys.exit(f"error: {error}")

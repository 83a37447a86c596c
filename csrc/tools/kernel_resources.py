"""Registers, shared memory, stack and spills of every CUDA kernel on every GPU, as Markdown:

    python csrc/tools/kernel_resources.py docs/benchmarks/resources.md

Compilers are looked for as kernels_by_arch.py says. Without a file the page is printed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import NamedTuple

from kernels_by_arch import (
    FLAGS,
    Code,
    CompileError,
    add_arguments,
    add_page,
    compile_kernels,
    demangle,
    demangler_of,
    require_writable,
    short_name,
    toolkits_of,
    write_page,
)

HEADING = """\
# Registers, shared memory and spills by GPU

    python csrc/tools/kernel_resources.py docs/benchmarks/resources.md

What ptxas says of every kernel, compiled with `nvcc {flags}`. A template has several
instances, for element types and variants; the one that takes most is shown. Columns are compute
capability and CUDA release. Shared memory is what a kernel declares; what a launch asks for comes on
top.
"""
_ENTRY = re.compile(r"ptxas info\s+: Compiling entry function '(\S+)' for 'sm_\d+'")
_PROPERTIES = re.compile(r"ptxas info\s+: Function properties for (\S+)")
_STACK = re.compile(
    r"\s+(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_USED = re.compile(r"ptxas info\s+: Used (\d+) registers(.*)")
_SHARED = re.compile(r"(\d+)(?:\+(\d+))? bytes smem")


class Resources(NamedTuple):
    """Of one instance of a kernel on one GPU. Registers are a thread's; the rest is bytes."""

    source: str
    kernel: str
    arguments: str
    arch: str
    cuda: str
    registers: int
    shared: int
    stack: int
    spill_stores: int
    spill_loads: int

    @property
    def gpu(self) -> str:
        return f"{self.arch} ({self.cuda})"


def read_ptxas(said: str) -> dict[str, dict[str, int]]:
    """What `ptxas -v` said of each entry function, by its mangled name.

    Raises:
        ValueError: it said nothing of an entry function's registers or stack.
    """
    found: dict[str, dict[str, int]] = {}
    entry = described = ""
    for line in said.splitlines():
        match = _ENTRY.match(line)
        if match:
            entry = match[1]
            found[entry] = {}
            continue
        match = _PROPERTIES.match(line)
        if match:
            described = match[1]  # functions that are called have a stack of their own
            continue
        match = _STACK.match(line)
        if match and described == entry:
            found[entry].update(
                zip(("stack", "spill_stores", "spill_loads"), map(int, match.groups()))
            )
            continue
        match = _USED.match(line)
        if match:
            shared = _SHARED.search(match[2])
            found[entry]["registers"] = int(match[1])
            found[entry]["shared"] = (
                sum(int(part or 0) for part in shared.groups()) if shared else 0
            )
    silent = [name for name, values in found.items() if len(values) != 5]
    if silent:
        raise ValueError(f"ptxas -v did not say what {silent[0]} takes")
    return found


def resources_of(codes: list[Code], demangler: Path) -> list[Resources]:
    """What every kernel takes.

    Raises:
        ValueError: ptxas did not say it, or a source has no kernel.
    """
    rows = []
    for code in codes:
        found = read_ptxas(code.said)
        if not found:
            raise ValueError(f"{code.source} has no kernel for {code.arch}")
        for name, values in zip(demangle(demangler, list(found)), found.values()):
            short = short_name(name)
            rows.append(Resources(code.source, *short, code.arch, code.cuda, **values))
    return rows


def page(rows: list[Resources]) -> str:
    """The whole page."""
    parts = [HEADING.format(flags=" ".join(FLAGS)), _table("Registers a thread", rows, "registers")]
    parts += [_table("Shared memory a block, bytes", rows, "shared"), _spills(rows)]
    return "\n".join(parts)


def _table(title: str, rows: list[Resources], field: str) -> str:
    gpus = list(dict.fromkeys(row.gpu for row in rows))
    groups: dict[tuple[str, str], list[Resources]] = {}
    for row in rows:
        groups.setdefault((row.source, row.kernel), []).append(row)
    lines = [f"## {title}\n", "| kernel | instances | " + " | ".join(gpus) + " |"]
    lines.append("|---|---:|" + "---:|" * len(gpus))
    for (source, kernel), members in groups.items():
        most = [[getattr(row, field) for row in members if row.gpu == gpu] for gpu in gpus]
        cells = [str(max(values)) if values else "" for values in most]
        instances = len({row.arguments for row in members})
        lines.append(f"| {source} `{kernel}` | {instances} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def spilling(rows: list[Resources]) -> list[Resources]:
    """Those that keep something in memory that does not fit into registers."""
    return [row for row in rows if row.stack or row.spill_stores or row.spill_loads]


def _spills(rows: list[Resources]) -> str:
    found = spilling(rows)
    title = "## Stack and spills, bytes a thread\n\n"
    if not found:
        instances = len({(row.source, row.kernel, row.arguments) for row in rows})
        return title + f"None: no stack frame and no spill in {instances} instances on any GPU.\n"
    lines = ["| kernel | GPU | stack | spill stores | spill loads |", "|---|---|---:|---:|---:|"]
    for row in found:
        name = f"{row.kernel}<{row.arguments}>" if row.arguments else row.kernel
        numbers = f"{row.stack} | {row.spill_stores} | {row.spill_loads}"
        lines.append(f"| {row.source} `{name}` | {row.gpu} | {numbers} |")
    return title + "\n".join(lines) + "\n"


def main() -> None:
    """Compile, and write or print the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_page(parser)
    add_arguments(parser)
    arguments = parser.parse_args()
    if arguments.page:
        require_writable(arguments.page)
    toolkits = toolkits_of(arguments)
    with tempfile.TemporaryDirectory() as folder:
        codes = compile_kernels(toolkits, Path(folder), jobs=os.cpu_count() or 1)
    for code in codes:
        for line in code.warnings:
            print(f"{code.source} for {code.arch}: {line}", file=sys.stderr)
    rows = resources_of(codes, demangler_of(toolkits))
    text = page(rows)
    write_page(text, arguments.page)


if __name__ == "__main__":
    try:
        main()
    except (CompileError, ValueError) as error:
        sys.exit(f"error: {error}")

"""Stand-ins for the CUDA half of torch, so that a CUDA wheel loads where torch is a CPU build.

The loader binds function symbols when they are first called, and data symbols at once, so a
CUDA extension does not even load beside a CPU torch. The libraries made here define exactly
the symbols that a wheel lacks: calling one says its name and aborts, and variables are zeros.
They live beside the container for the length of a smoke run, never in an image or a wheel.
"""

import hashlib
import io
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from elftools.elf.elffile import ELFFile
from elftools.elf.relocation import RelocationSection

from jetship import proc
from jetship.elf import ElfError, ElfFile, Undefined, parse_elf, read_elf
from jetship.errors import ImageError, ToolMissingError
from jetship.store import Store
from jetship.toolchain.model import Toolchain

# torch_cuda is linked against c10_cuda, so one of them in a wheel's NEEDED brings both.
STUB_LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so")

R_AARCH64_JUMP_SLOT = 1026
OBJECT_BYTES = 4096

Kind = Literal["function", "object"]


@dataclass(frozen=True, order=True)
class MissingSymbol:
    """A symbol that nothing on the target defines."""

    name: str
    kind: Kind

    @property
    def library(self) -> str:
        """The library that would define it: c10::cuda is c10_cuda's namespace."""
        return STUB_LIBRARIES["3c104cuda" not in self.name]


def emulation_stubs(
    libraries: Mapping[str, bytes], toolchain: Toolchain, store: Store
) -> Path | None:
    """Return a folder with stand-ins for what these libraries of a wheel lack.

    Returns None where the target's torch is a CUDA build, which needs no stand-in.

    Raises:
        ImageError: a library cannot be read, or the stand-ins do not compile.
        ToolMissingError: the toolchain's compiler does not run on this machine.
    """
    if all((toolchain.torch / "lib" / name).exists() for name in STUB_LIBRARIES):
        return None
    missing = missing_symbols(libraries, toolchain)
    sources = {name: stub_source(name, missing) for name in STUB_LIBRARIES}
    digest = hashlib.sha256("\0".join((toolchain.root.name, *sources.values())).encode())
    return store.tree(
        "emulation-stubs", digest.hexdigest(), lambda folder: _compile(folder, sources, toolchain)
    )


def missing_symbols(
    libraries: Mapping[str, bytes], toolchain: Toolchain
) -> tuple[MissingSymbol, ...]:
    """Return what `libraries` (name to content) need and nothing on the target defines, sorted.

    Raises:
        ImageError: a library is damaged.
    """
    own = {name: _parsed(name, data) for name, data in libraries.items()}
    defined = {symbol for elf in own.values() for symbol in elf.exports}
    for elf in _loaded_beside(own.values(), toolchain):
        defined |= elf.exports.keys()
    found: dict[str, Kind] = {}
    for name, elf in own.items():
        called = _called_functions(libraries[name])
        for symbol in elf.undefined:
            if symbol.name not in defined and _may_be_torch(symbol):
                kind = _kind(symbol, called)
                # One library may take the address of what another one calls.
                if found.get(symbol.name) != "function":
                    found[symbol.name] = kind
    return tuple(sorted(MissingSymbol(name, kind) for name, kind in found.items()))


def stub_source(library: str, missing: Iterable[MissingSymbol]) -> str:
    """Return the assembly of one stand-in library."""
    mine = [symbol for symbol in missing if symbol.library == library]
    functions = (
        _FUNCTION.format(name=symbol.name, number=number)
        for number, symbol in enumerate(mine)
        if symbol.kind == "function"
    )
    objects = (
        _OBJECT.format(name=symbol.name, size=OBJECT_BYTES)
        for symbol in mine
        if symbol.kind == "object"
    )
    return _HEAD.format(library=library) + "".join(functions) + "".join(objects)


def is_variable(name: str) -> bool:
    """Tell whether a C++ symbol names data: by its prefix, or because no parameters follow."""
    if name.startswith(("_ZTV", "_ZTI", "_ZTS", "_ZTT", "_ZGV")):
        return True
    nested = re.match(r"_ZN[rVK]*", name)
    if nested is None:
        return False
    rest = name[nested.end() :]
    while length := re.match(r"\d+", rest):
        rest = rest[length.end() + int(length[0]) :]
    # Templates, constructors and operators do not get this far: all of them are functions
    # in what an extension takes from torch.
    return rest == "E"


def _loaded_beside(own: Iterable[ElfFile], toolchain: Toolchain) -> Iterator[ElfFile]:
    """Yield the target's libraries that the loader brings in for `own`, each once."""
    system = Path("usr/lib") / toolchain.multiarch
    folders = (
        toolchain.torch / "lib",
        toolchain.site_packages / "torch.libs",
        toolchain.sysroot / system,
        toolchain.sysroot / "lib" / toolchain.multiarch,
    )
    # libtorch_python is in every process that has imported torch.
    wanted = ["libtorch_python.so", *(name for elf in own for name in elf.needed)]
    seen: set[str] = set()
    while wanted:
        name = wanted.pop()
        if name in seen:
            continue
        seen.add(name)
        path = next((folder / name for folder in folders if (folder / name).exists()), None)
        if path is not None:
            elf = read_elf(path)
            wanted += elf.needed
            yield elf


def _may_be_torch(symbol: Undefined) -> bool:
    """Leave out what may stay undefined, what the interpreter has, and what has another owner."""
    python = re.match(r"_?Py[A-Z_]", symbol.name)
    return not symbol.weak and symbol.library is None and python is None


def _kind(symbol: Undefined, called: frozenset[str]) -> Kind:
    if symbol.kind == "func" or symbol.name in called:
        return "function"
    if symbol.kind in ("object", "tls") or is_variable(symbol.name):
        return "object"
    return "function"


def _called_functions(data: bytes) -> frozenset[str]:
    """Return the names that a library calls through its procedure linkage table."""
    elf = ELFFile(io.BytesIO(data))
    names = set()
    for section in elf.iter_sections():
        if isinstance(section, RelocationSection):
            symbols: Any = elf.get_section(section["sh_link"])
            for relocation in section.iter_relocations():
                if relocation["r_info_type"] == R_AARCH64_JUMP_SLOT:
                    names.add(str(symbols.get_symbol(relocation["r_info_sym"]).name))
    return frozenset(names)


def _parsed(name: str, data: bytes) -> ElfFile:
    try:
        return parse_elf(data)
    except ElfError as error:
        raise ImageError(f"{name} cannot be read as a library", why=str(error)) from error


def _compile(folder: Path, sources: Mapping[str, str], toolchain: Toolchain) -> None:
    compiler = toolchain.bin / f"{toolchain.multiarch}-g++"
    built: list[str | Path] = []
    for name in STUB_LIBRARIES:
        source = folder / f"{name}.S"
        source.write_text(sources[name], encoding="ascii")
        options = ["-shared", "-nostdlib", "-Wl,--no-as-needed", f"-Wl,-soname,{name}"]
        done = proc.run([compiler, *options, "-o", folder / name, source, *built])
        if not done.ok:
            raise ToolMissingError(
                f"the stand-in for {name} does not compile",
                why=done.stderr.strip()[-500:],
                fix="make the toolchain anew: remove its folder from the cache and build again",
            )
        built.append(folder / name)


# Only system calls (write, getpid, kill, exit_group), so that the library needs no C library of
# any version. The last is for a container's first process, to which its own signals do nothing.
_HEAD = """\
// Written by jetship: stands for {library} where torch is a CPU build. See stubs.py.
    .text
    .hidden jetship_refuse
    .globl  jetship_refuse
    .type   jetship_refuse, %function
// x1: the message, x2: its length
jetship_refuse:
    mov     x0, #2
    mov     x8, #64
    svc     #0
    mov     x8, #172
    svc     #0
    mov     x1, #6
    mov     x8, #129
    svc     #0
    mov     x0, #134
    mov     x8, #94
    svc     #0
    .size   jetship_refuse, . - jetship_refuse
    .section .note.GNU-stack, "", %progbits
"""

_FUNCTION = """
    .section .rodata
message{number}:
    .ascii  "jetship: {name} was called, but this machine has no CUDA\\n"
    .set    length{number}, . - message{number}
    .text
    .globl  {name}
    .type   {name}, %function
{name}:
    adrp    x1, message{number}
    add     x1, x1, :lo12:message{number}
    ldr     x2, =length{number}
    b       jetship_refuse
    .size   {name}, . - {name}
"""

_OBJECT = """
    .bss
    .balign 16
    .globl  {name}
    .type   {name}, %object
    .size   {name}, {size}
{name}:
    .skip   {size}
"""

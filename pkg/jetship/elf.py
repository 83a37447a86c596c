"""What an ELF file asks of the dynamic loader, and what it offers to others.

pyelftools lends the names of machines and is the oracle in the tests; why the tables are
read here and not by it stands in `_elftables`.
"""

import mmap
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from jetship._elfbytes import Data, ElfError, Section, Undefined, sections_of, unpack
from jetship._elftables import Tables

__all__ = [
    "Data",
    "ElfError",
    "ElfFile",
    "Section",
    "Undefined",
    "mapped",
    "parse_elf",
    "read_elf",
    "version_key",
]

MAGIC = b"\x7fELF"
_MACHINES = {183: "aarch64", 62: "x86_64"}
_TYPES = {1: "object", 2: "executable", 3: "shared", 4: "core"}


@dataclass(frozen=True)
class ElfFile:
    """The facts of one ELF file.

    Of a 32-bit or big-endian file only the header is read: `dynamic` is False, and every
    table is empty. `exports` maps a name to the versions that answer to it; "" among them
    means that a reference without a version finds it. `abi` is the OS ABI of the header and its
    version; `executable_stack` is None where the file does not say (no PT_GNU_STACK).
    """

    machine: str
    bits: int
    little_endian: bool
    type: str
    dynamic: bool = False
    soname: str | None = None
    needed: tuple[str, ...] = ()
    rpath: str | None = None
    runpath: str | None = None
    version_needs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    version_definitions: tuple[str, ...] = ()
    undefined: tuple[Undefined, ...] = ()
    exports: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    sections: tuple[Section, ...] = ()
    abi: tuple[int, int] = (0, 0)
    executable_stack: bool | None = None
    text_relocations: bool = False

    @classmethod
    def tabled(
        cls,
        machine: str,
        *,
        soname: str | None,
        needed: tuple[str, ...],
        version_definitions: tuple[str, ...],
        exports: Mapping[str, tuple[str, ...]],
    ) -> Self:
        """Return a library for `machine` of which no file is at hand, only what it offers."""
        return cls(
            machine=machine,
            bits=64,
            little_endian=True,
            type="shared",
            dynamic=True,
            soname=soname,
            needed=needed,
            version_definitions=version_definitions,
            exports=exports,
        )

    def floor(self, prefix: str) -> str | None:
        """Return the newest PREFIX_x.y that any library is asked for, as "x.y", or None."""
        pattern = re.compile(rf"{re.escape(prefix)}_(\d+(?:\.\d+)*)")
        asked = [version for versions in self.version_needs.values() for version in versions]
        found = [match[1] for version in asked if (match := pattern.fullmatch(version))]
        return max(found, key=version_key, default=None)


def version_key(version: str) -> tuple[int, ...]:
    """Return what orders dotted versions by number: 2.9 before 2.17."""
    return tuple(int(part) for part in version.split("."))


def mapped(path: Path) -> mmap.mmap:
    """Return the file's bytes as a memory map, which the caller closes.

    Raises:
        ElfError: the file is empty.
    """
    with path.open("rb") as stream:
        try:
            return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError as error:
            raise ElfError("the file is empty") from error


def read_elf(path: Path) -> ElfFile:
    """Read the facts of a file without loading it as a whole.

    Raises:
        ElfError: it is not ELF, or is damaged.
    """
    with mapped(path) as data:
        return parse_elf(data)


def parse_elf(data: Data) -> ElfFile:
    """Read the facts out of an ELF file's bytes.

    Raises:
        ElfError: they are not ELF, or damaged.
    """
    if data[:4] != MAGIC:
        raise ElfError("the file does not begin as an ELF file does")
    bits, order = unpack("BB", data, 4)
    if bits not in (1, 2) or order not in (1, 2):
        raise ElfError(f"ELF class {bits} with byte order {order} does not exist")
    kind, machine, release = unpack("<HHI" if order == 1 else ">HHI", data, 16)
    header: dict[str, Any] = {
        "machine": _machine_name(machine),
        "bits": 32 * bits,
        "little_endian": order == 1,
        "type": _TYPES.get(kind, f"type {kind}"),
        "abi": (data[7], data[8]),
    }
    if (bits, order) != (2, 1):
        return ElfFile(**header)
    sections = sections_of(data)
    tables = Tables.find(data, sections)
    if tables is None:
        return ElfFile(**header, sections=sections)
    # As glibc's loader does: open_verify in elf/dl-load.c.
    if data[6] != 1 or release != 1 or any(data[9:16]):
        raise ElfError("its header is not one of ELF version 1")
    versions = tables.versions()
    return ElfFile(
        **header,
        dynamic=True,
        soname=tables.soname,
        needed=tables.needed,
        rpath=tables.rpath,
        runpath=tables.runpath,
        version_needs=versions.needs,
        version_definitions=versions.definitions,
        undefined=tables.undefined(versions),
        exports=tables.exports(versions),
        sections=sections,
        executable_stack=tables.executable_stack,
        text_relocations=tables.text_relocations,
    )


def _machine_name(number: int) -> str:
    if number in _MACHINES:
        return _MACHINES[number]
    # Some 14 ms, for a name that only what no platform has needs.
    from elftools.elf.enums import ENUM_E_MACHINE  # noqa: PLC0415

    names = [name for name, value in ENUM_E_MACHINE.items() if value == number]
    return names[0].removeprefix("EM_").lower() if names else f"machine {number}"

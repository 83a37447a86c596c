"""Names of libraries that are not at hand, as toolchains/symbols/ has them written down."""

import runpy
from dataclasses import dataclass

from jetship.datafiles import data_dir
from jetship.toolchain.model import Toolchain


@dataclass(frozen=True)
class SymbolTable:
    """Names that a library exports; only some of them where `partial` is set."""

    names: frozenset[str]
    partial: bool


def symbol_table(toolchain: Toolchain, library: str) -> SymbolTable | None:
    """Return the names that another build of the toolchain's torch exports from a library.

    None where none was written down (see toolchains/symbols/extract.py).
    """
    version = str(runpy.run_path(str(toolchain.torch / "version.py"))["__version__"])
    release = version.partition("+")[0]
    path = data_dir("toolchains") / "symbols" / f"torch-{release}" / f"{library}.txt"
    if not path.is_file():
        return None
    lines = path.read_text(encoding="ascii").splitlines()
    names = frozenset(line for line in lines if not line.startswith("#"))
    return SymbolTable(names, any(line.startswith("# partial") for line in lines))

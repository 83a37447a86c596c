"""From the folders of a toolchain's part to the table of the libraries in them."""

import hashlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

from jetship.check.tablefile import SymbolTable, pack
from jetship.elf import MAGIC, ElfError, ElfFile, read_elf
from jetship.errors import CheckError
from jetship.toolchain.model import CUDA, CUDA_TARGET, SITE_PACKAGES, SYSROOT

# Where libraries lie below a link of a toolchain, in the loader's order.
_FOLDERS = {
    SYSROOT: ("lib/{multiarch}", "lib", "usr/lib/{multiarch}", "usr/lib", "usr/bin"),
    SITE_PACKAGES: ("torch/lib", "*.libs", "nvidia/*/lib"),
    CUDA_TARGET: (".",),
    # A toolkit for two machines: aarch64-linux is Tegra, sbsa-linux is servers.
    CUDA: ("targets/aarch64-linux/lib", "targets/sbsa-linux/lib", "lib64"),
}
_TORCH_VERSION = re.compile(r"""^__version__\b.*=\s*['"]([^'"]+)""", re.MULTILINE)


def table_of(root: Path, link: str, machine: str) -> SymbolTable:
    """Return the table of the libraries below `root`, which stands at a link of a toolchain."""
    return SymbolTable.load(packed(root, link, machine))


def packed(root: Path, link: str, machine: str) -> bytes:
    """Read the libraries below `root`, and return their table as it is stored.

    Raises:
        CheckError: one of them is damaged.
    """
    libraries = (
        (str(path.parent.relative_to(root)), elf.soname or path.name, elf)
        for path in _files(root, link, machine)
        if (elf := _read(path)).machine == machine and elf.dynamic
    )
    version = root / "torch/version.py"
    match = _TORCH_VERSION.search(version.read_text()) if version.is_file() else None
    return pack(libraries, {"torch": match[1]} if match else {})


def fingerprint(root: Path, link: str, machine: str) -> str:
    """Return what changes when a library below `root` does, without reading any of them."""
    digest = hashlib.sha256()
    for path in _files(root, link, machine):
        about = path.stat()
        digest.update(f"{path}\0{about.st_size}\0{about.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _files(root: Path, link: str, machine: str) -> Iterator[Path]:
    for pattern in _FOLDERS[link]:
        name = pattern.format(multiarch=f"{machine}-linux-gnu")
        folders = sorted(root.glob(name)) if "*" in name else [root / name]
        for folder in folders:
            yield from _elf_files(folder, root)


def _elf_files(folder: Path, root: Path) -> Iterator[Path]:
    """Yield the ELF files that lie right in `folder`.

    Links are left out: an absolute one would lead to a library of the build machine.
    """
    if not folder.is_dir() or not folder.resolve().is_relative_to(root.resolve()):
        return
    with os.scandir(folder) as entries:
        paths = sorted(entry.path for entry in entries if entry.is_file(follow_symlinks=False))
    for path in map(Path, paths):
        wanted = ".so" in path.name or path.name.startswith("python")
        if wanted and _starts_as_elf(path):
            yield path


def _starts_as_elf(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(len(MAGIC)) == MAGIC


def _read(path: Path) -> ElfFile:
    try:
        return read_elf(path)
    except ElfError as error:
        raise CheckError(
            f"{path} of the toolchain is damaged",
            why=str(error),
            fix="delete its folder in the cache and run the same command again",
        ) from error

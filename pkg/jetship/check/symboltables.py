"""Names of libraries that are not at hand, as toolchains/symbols/ has them written down."""

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from jetship.datafiles import data_dir
from jetship.elf import ElfFile, version_key
from jetship.targets.model import Platform

# How the lines of a table's head begin.
EXPORTED = "# exported by "
SHA256 = "# sha256 "
NEEDS = "# needs "
DEFINES = "# defines "
STRINGS = "# strings "  # of which std::string its names speak: see mangled.string_abi
PARTIAL = "# partial: "

TORCH_LIBRARIES = ("libc10_cuda.so", "libtorch_cuda.so")
# libtorch_cuda exports some 40,000 names, nearly all of them kernels and what the compiler made
# for them, which nobody but torch itself calls.
_TORCHS = re.compile(
    r"_Z(?:T[VIST])?N?[rVK]*[RO]?(?:2at|3c10|5torch|6caffe2|4c10d)(?=\d|[A-Z])|aoti_"
)
_OF_KERNELS = re.compile(
    r"nv_hdl|_GLOBAL__|device_stub|Ul[^_]*E\d*_|2at6native\w*(?:[kK]ernel|[lL]aunch|Functor)"
)


def is_left_out(name: str) -> bool:
    """Return whether the tables of torch's CUDA libraries leave a name out, if it is there."""
    return _TORCHS.match(name) is None or is_of_kernels(name)


def is_of_kernels(name: str) -> bool:
    """Return whether a name is that of a kernel of torch's, or was made for one."""
    return _OF_KERNELS.search(name) is not None


@dataclass(frozen=True)
class WrittenTable:
    """What was written down of a library; only some of its names where `partial` is set.

    `sources` are the digests of the wheels or packages that it was read from, which have the
    same names; `release` is the one that these are of: "cuda-11.2", "torch-2.1.0".
    """

    name: str
    release: str
    sources: frozenset[str]
    exports: Mapping[str, tuple[str, ...]] = field(repr=False)
    needed: tuple[str, ...] = ()
    version_definitions: tuple[str, ...] = ()
    string_abis: tuple[str, ...] = ()
    partial: bool = False

    def elf(self, machine: str) -> ElfFile:
        """Return the table as if it had been read from a library for `machine`."""
        return ElfFile.tabled(
            machine,
            soname=self.name,
            needed=self.needed,
            version_definitions=self.version_definitions,
            exports=self.exports,
        )


@functools.cache
def read_table(path: Path) -> WrittenTable:
    """Read one table, toolchains/symbols/<release>/<library>.txt."""
    lines = path.read_text(encoding="ascii").splitlines()
    head = [line for line in lines if line.startswith("#")]
    exports: dict[str, tuple[str, ...]] = {}
    for line in lines[len(head) :]:
        name, *versions = line.split("@")
        exports[name] = (*versions, "")

    def words(prefix: str) -> tuple[str, ...]:
        found = (line.removeprefix(prefix) for line in head if line.startswith(prefix))
        return tuple(word for text in found for word in text.split())

    return WrittenTable(
        name=path.name.removesuffix(".txt"),
        release=path.parent.name,
        sources=frozenset(words(SHA256)),
        exports=exports,
        needed=words(NEEDS),
        version_definitions=words(DEFINES),
        string_abis=words(STRINGS),
        partial=any(line.startswith(PARTIAL) for line in head),
    )


def tables_of(release: str) -> list[Path]:
    """Return the tables of a release that were written down, in order; none where none were.

    Args:
        release: "torch-2.1.0", the CUDA libraries of upstream's torch; "python-3.10", a Python
            that no shipped sysroot has; "cuda-11.8", the libraries of CUDA.
    """
    return sorted((_folder() / release).glob("*.txt"))


def _folder() -> Path:
    return data_dir("toolchains") / "symbols"


def cuda_release(platform: Platform) -> str | None:
    """Return the newest CUDA with tables that is not newer than the platform's, or None.

    Within a major release of CUDA nothing that a library exports goes away, so what the older
    one has is there; before CUDA 11 each release stood for itself.
    """
    have = version_key(platform.cuda.version)
    kept = 1 if have >= (11,) else 2
    known = [folder.name.removeprefix("cuda-") for folder in _folder().glob("cuda-*")]
    fitting = [
        one for one in known if version_key(one)[:kept] == have[:kept] and version_key(one) <= have
    ]
    return max(fitting, key=version_key, default=None)


@functools.cache
def known_runtimes() -> frozenset[str]:
    """Return the digests of all packages that tables of libcudart were read from."""
    paths = _folder().glob("cuda-*/libcudart.so.*.txt")
    return frozenset(source for path in paths for source in read_table(path).sources)

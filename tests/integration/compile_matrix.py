"""The op pack's sources, compiled and linked against releases of torch that lie years apart.

    python tests/integration/compile_matrix.py docs/benchmarks/compile-matrix.md

writes the page; test_compile_matrix.py compiles the same, and compares. Releases that no shipped
platform has are described in tests/data/releases/releases.yaml.
"""

import argparse
import contextlib
import os
import re
import runpy
import tempfile
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from jetship import proc
from jetship.build import compilercache
from jetship.build.environment import max_jobs
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve_id
from jetship.toolchain.model import Toolchain
from jetship.toolchain.prepare import prepare
from product import ROOT

CSRC = ROOT / "csrc"
LISTED = ROOT / "tests/data/releases/releases.yaml"
PAGE = ROOT / "docs/benchmarks/compile-matrix.md"
SOURCES = runpy.run_path(str(CSRC / "jetops/_sources.py"))

# What is linked out of the objects: what setup.py makes, and what jit_load() makes.
LIBRARIES = {
    "jetops/_C": (*SOURCES["COMMON"], *SOURCES["MODULE"], *SOURCES["CUDA"]),
    "jetops/_C, CPU only": (*SOURCES["COMMON"], *SOURCES["MODULE"], *SOURCES["NO_CUDA"]),
    "jit_load()": (*SOURCES["COMMON"], *SOURCES["PYBIND"], *SOURCES["CUDA"]),
}
# Compiled as a person who looks for warnings does. What headers of others warn of is theirs.
WARNINGS = ("-Wall", "-Wextra")


@dataclass(frozen=True)
class Release:
    """A release of torch, and the target whose toolchain has it."""

    name: str
    target: str


RELEASES = (
    Release("1.10", "sm62-torch-1.10"),
    Release("1.13", "sm62-torch-1.13"),
    Release("2.1", "sm62-debian-11"),
    Release("2.7", "sm62-debian-12"),
    Release("2.11", "sm87-debian-13"),
    Release("2.15", "sm87-torch-2.15"),
)


@dataclass(frozen=True)
class Compiled:
    """What compilers made of the sources, and what they and the linker said."""

    release: Release
    toolchain: Toolchain
    standard: str
    compiler: str
    said: dict[str, str]
    libraries: dict[str, Path]

    @property
    def row(self) -> str:
        """The release's line of the page."""
        platform = self.toolchain.platform
        arch = self.release.target.partition("-")[0].removeprefix("sm")
        sources = [name for name in self.said if name not in LIBRARIES]
        good = [name for name in sources if not self.said[name]]
        cells = (
            platform.torch.version,
            f"C++{self.standard}",
            f"GCC {self.compiler}",
            platform.python.version,
            f"{self.toolchain.cuda_version}, sm_{arch}",
            f"{len(good)} of {len(sources)}",
            f"{len(self.libraries)} of {len(LIBRARIES)}",
        )
        return "| " + " | ".join(cells) + " |"


def toolchain_of(release: Release) -> Toolchain:
    """Return the toolchain that has a release, downloading it where it is missing."""
    target = resolve_id(Catalog.load(extra=LISTED), release.target)
    # A constraint in pip's settings is for what people install, and not for these.
    with _variable("PIP_CONSTRAINT", os.devnull):
        return prepare(target, Store(default_root()))


@contextlib.contextmanager
def _variable(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        if before is None:
            del os.environ[name]
        else:
            os.environ[name] = before


def compile_release(release: Release, folder: Path) -> Compiled:
    """Compile every source against a release, and link the libraries that are made of them.

    Args:
        release: the release.
        folder: where objects and libraries go.
    """
    toolchain = toolchain_of(release)
    commands = _Commands(toolchain, _standard_of(toolchain), release.target, folder)
    sources = list(dict.fromkeys(name for names in LIBRARIES.values() for name in names))
    with ThreadPoolExecutor(max_jobs()) as pool:
        said = dict(zip(sources, pool.map(commands.compile, sources), strict=True))
        linked = dict(zip(LIBRARIES, pool.map(commands.link, LIBRARIES), strict=True))
    version = proc.run([commands.compiler, "-dumpfullversion"]).stdout.strip()
    return Compiled(
        release=release,
        toolchain=toolchain,
        standard=commands.standard,
        compiler=version,
        said={**said, **linked},
        libraries={name: path for name in LIBRARIES if (path := commands.library(name)).exists()},
    )


def _standard_of(toolchain: Toolchain) -> str:
    """Return the C++ standard that a release's cpp_extension compiles extensions with: "14"."""
    text = (toolchain.torch / "utils/cpp_extension.py").read_text()
    (standard,) = set(re.findall(r"'-std=c\+\+(\d+)'\] \+ extra_cflags", text))
    return str(standard)


@dataclass(frozen=True)
class _Commands:
    """The commands for one release, as its cpp_extension would put them together."""

    toolchain: Toolchain
    standard: str
    target: str
    folder: Path

    @property
    def compiler(self) -> Path:
        return self.toolchain.bin / f"{self.toolchain.multiarch}-g++"

    def object(self, source: str) -> Path:
        return self.folder / f"{source.replace('/', '-')}.o"

    def library(self, name: str) -> Path:
        return self.folder / f"{re.sub('[^a-z]+', '-', name.lower())}.so"

    def compile(self, source: str) -> str:
        """Compile a source, and return what the compiler said."""
        words = self._nvcc() if source.endswith(".cu") else self._gcc()
        return self._said([*words, "-c", source, "-o", self.object(source)])

    def link(self, name: str) -> str:
        """Link a library, and return what the linker said."""
        objects = [self.object(source) for source in LIBRARIES[name]]
        python = ["-ltorch_python"] if name == "jit_load()" else []
        cuda = ["-lc10_cuda", "-ltorch_cuda", "-lcudart"] if self._has_cuda(name) else []
        folders = (self.toolchain.torch / "lib", *self.toolchain.cuda_libraries)
        return self._said([
            *(self.compiler, "-shared", "-o", self.library(name), *objects),
            *(f"-L{folder}" for folder in (*folders, self.toolchain.stubs)),
            *("-Wl,--no-as-needed", "-lc10", "-ltorch", "-ltorch_cpu", *python, *cuda),
        ])  # fmt: skip

    @staticmethod
    def _has_cuda(name: str) -> bool:
        return set(SOURCES["CUDA"]) <= set(LIBRARIES[name])

    def _said(self, words: Iterable[str | Path]) -> str:
        store = Store(default_root())
        cached = compilercache.variables(store, self.folder / "ccache.log", os.environ)
        done = proc.run([*words], cwd=CSRC, env={**os.environ, **cached})
        text = (done.stdout + done.stderr).strip()
        return text or ("" if done.ok else f"exit status {done.status}")

    def _gcc(self) -> list[str | Path]:
        # Without optimization, which takes as long again and finds nothing more that is wrong: all
        # templates are instantiated, and more symbols are asked for.
        flags = [flag for flag in SOURCES["CXX_FLAGS"] if not flag.startswith("-O")]
        return [self.compiler, *WARNINGS, *flags, "-O0", "-fPIC", *self._common()]

    def _nvcc(self) -> list[str | Path]:
        number = self.target.partition("-")[0].removeprefix("sm")
        code = f"arch=compute_{number},code=sm_{number}"
        host = ",".join(("-fPIC", *WARNINGS))
        nvcc = self.toolchain.cuda_home / "bin/nvcc"
        words = [nvcc, "-ccbin", self.compiler, *SOURCES["NVCC_FLAGS"], "-gencode", code]
        return [*words, "-Xcompiler", host, *self._common()]

    def _common(self) -> list[str | Path]:
        include = self.toolchain.torch / "include"
        abi = int(self.toolchain.platform.torch.cxx11_abi)
        return [
            f"-std=c++{self.standard}",
            *("-DTORCH_API_INCLUDE_EXTENSION_H", f"-D_GLIBCXX_USE_CXX11_ABI={abi}"),
            *("-DTORCH_EXTENSION_NAME=jetops_jit", "-Ikernels"),
            *("-isystem", include, "-isystem", include / "torch/csrc/api/include"),
            *("-isystem", self.toolchain.cuda_home / "include"),
            *("-isystem", self.toolchain.python_include),
        ]


HEADING = """\
# One source tree, six releases of torch

    python tests/integration/compile_matrix.py docs/benchmarks/compile-matrix.md

Every source of `csrc/bindings` and `csrc/kernels`, compiled for aarch64 with `-Wall -Wextra`
against the headers of each release, in the C++ standard of that release's own `cpp_extension`, and
linked to its libraries: the library that is shipped, the same without CUDA, and what `jit_load()`
makes. A source is counted where the compiler had nothing to say.
`tests/integration/test_compile_matrix.py` compiles all of it again, and looks for every undefined
symbol in the libraries of the release.

| torch | standard | compiler | Python | CUDA | without a warning | linked |
|---|---|---|---|---|---:|---:|
"""


def main() -> None:
    """Compile everything, and write the page."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("page", type=Path, help="the file to write")
    page = parser.parse_args().page
    if page.is_dir() or not os.access(page if page.exists() else page.parent, os.W_OK):
        parser.error(f"{page} cannot be written: name another file")
    rows = []
    for release in RELEASES:
        with tempfile.TemporaryDirectory() as folder:
            compiled = compile_release(release, Path(folder))
        rows.append(compiled.row)
        print(compiled.row, flush=True)
        for source, text in compiled.said.items():
            if text:
                print(f"{source}: {text}", flush=True)
    page.write_text(HEADING + "".join(f"{row}\n" for row in rows))


if __name__ == "__main__":
    main()

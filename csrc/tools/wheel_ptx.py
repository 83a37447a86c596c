"""Make libraries in which the PTX of wheels can be run on this machine's GPU.

    python csrc/tools/wheel_ptx.py --out dist-ptx dist/jetops-*ptx*.whl
    JETOPS_WHEEL_PTX=dist-ptx pytest csrc/tests/test_wheel_ptx.py

A wheel for aarch64 cannot be loaded on x86-64, but the PTX in it can be compiled by any driver for
any newer GPU. The launchers of kernels/*.cu are compiled for this machine, and in each object file
nvcc's device code gives way to the wheel's: the container of that .cu file, byte for byte, in which
the driver finds the wheel's PTX and no machine code for the GPU. So the code that launches the
kernels is the operators' own, and nothing about parameters, grids or shared memory is said twice.

Every wheel gets a folder in --out, and those of earlier calls go: libjetops_kernels.so with the
functions of jetops_kernels.h, and wheel.json, which says what PTX is in it and where. The library
names no CUDA runtime: it takes the one that is loaded before it, which is torch's.

The wheels have to be built from the sources that are here. Kernels of other names, or parameters of
other sizes, are refused; what changed beyond that cannot be told, so `invoke ptx` builds both.

Needs nvcc (11.1 or newer) and cuobjdump, g++ and objcopy, and pyelftools.
"""

import argparse
import hashlib
import io
import json
import os
import re
import runpy
import signal
import struct
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Dict, List, Tuple

try:
    from elftools.elf.elffile import ELFFile
except ImportError as error:
    UNUSABLE = f"pyelftools has to be installed (pip install pyelftools): {error}"
else:
    UNUSABLE = ""

CSRC = Path(__file__).resolve().parents[1]
LIBRARY = "libjetops_kernels.so"
RECORD = "wheel.json"
SECTION = ".nv_fatbin"
MAGIC = 0xBA55ED50
STOPPED = 130  # exit status where somebody has interrupted it
# An arch that every nvcc knows; the code is thrown away, and only its parameters are looked at.
ANY_ARCH = "compute_75"

FROM = (
    "nvcc and cuobjdump come with the CUDA toolkit and can be named with --nvcc and --cuobjdump, "
    "objcopy with binutils, g++ with GCC"
)

_ENTRY = re.compile(r"\.entry\s+([\w$]+)\s*\(([^)]*)\)")
_PARAMETER = re.compile(r"\.param\s+(.+?)\s+[\w$]+_param_\d+(\[\d+\])?(?:,|\s*$)")
_POINTER = re.compile(r"\s+\.ptr\b.*")  # newer compilers say what a number is used for
# Anything else in the library has the names of the native build's, which may be loaded as well.
_EXPORTS = "{ global: jetops_*; local: *; };"
_ANONYMOUS = re.compile(r"(\d+)_GLOBAL__N_")

# nvcc's code registers each kernel by its name. Those of an anonymous namespace have something of
# the build in them, so the wheel's are others than the launchers'.
_NAMES = """\
#include <stdlib.h>
#include <string.h>

static const char* const names[][2] = {{
{rows}
}};

void __real___cudaRegisterFunction(void** module, const char* host, char* device, const char* name,
                                   int limit, void* thread, void* place, void* block, void* grid,
                                   int* warp);

void __wrap___cudaRegisterFunction(void** module, const char* host, char* device, const char* name,
                                   int limit, void* thread, void* place, void* block, void* grid,
                                   int* warp) {{
  for (size_t i = 0; i < sizeof names / sizeof names[0]; ++i) {{
    if (strcmp(names[i][0], name) != 0) continue;
    __real___cudaRegisterFunction(module, host, (char*)names[i][1], names[i][1], limit, thread,
                                  place, block, grid, warp);
    return;
  }}
  abort();
}}
"""


@dataclass(frozen=True)
class Tools:
    """The programs that are called, by name or path."""

    nvcc: str
    cuobjdump: str
    cxx: str = "g++"
    objcopy: str = "objcopy"


@dataclass(frozen=True)
class Kernel:
    """A kernel by the linker's name, and the types of its parameters as PTX has them."""

    name: str
    parameters: Tuple[str, ...]

    @property
    def plain_name(self) -> str:
        """The name without that of its anonymous namespace, which differs from build to build."""
        match = _ANONYMOUS.search(self.name)
        if match is None:
            return self.name
        end = match.end(1) + int(match.group(1))
        return self.name[: match.start()] + self.name[end:]


@dataclass(frozen=True)
class Ptx:
    """What a PTX text says about itself."""

    target: str
    isa: str
    kernels: Tuple[Kernel, ...]

    @classmethod
    def read(cls, text: str) -> "Ptx":
        kernels = []
        for name, listed in _ENTRY.findall(text):
            found = [_PARAMETER.search(line) for line in listed.strip().split("\n") if line.strip()]
            types = [_POINTER.sub("", match.group(1)) + (match.group(2) or "") for match in found]
            kernels.append(Kernel(name, tuple(types)))
        target = re.search(r"^\.target (\w+)", text, re.MULTILINE).group(1)
        isa = re.search(r"^\.version (\S+)", text, re.MULTILINE).group(1)
        return cls(target, isa, tuple(kernels))

    @property
    def by_plain_name(self) -> Dict[str, Kernel]:
        return {kernel.plain_name: kernel for kernel in self.kernels}

    @property
    def interface(self) -> Dict[str, Tuple[str, ...]]:
        """What a launcher has to know of it, the same in every build of the same source."""
        return {name: kernel.parameters for name, kernel in self.by_plain_name.items()}


@dataclass(frozen=True)
class Launcher:
    """A .cu file that was compiled for this machine."""

    name: str
    object: Path
    ptx: Ptx


@dataclass(frozen=True)
class Container:
    """The device code of one .cu file in a wheel."""

    code: bytes
    ptx: Ptx


def run(*argv, cwd=None) -> None:
    """Run a program; what it says is shown only if it fails."""
    words = [str(word) for word in argv]
    try:
        done = subprocess.run(
            words, check=False, cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except FileNotFoundError as error:
        raise SystemExit(f"there is no program {words[0]}: {FROM}") from error
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace")
        raise SystemExit(f"{argv[0]} failed with status {done.returncode}:\n{said}")


def ptx_in(tools: Tools, file: Path, scratch: Path) -> List[Ptx]:
    """All PTX in an object file or a fat binary, as cuobjdump takes it out."""
    folder = Path(tempfile.mkdtemp(dir=str(scratch)))
    run(tools.cuobjdump, "-xptx", "all", file, cwd=folder)
    return [Ptx.read(path.read_text()) for path in sorted(folder.glob("*.ptx"))]


def library_of(wheel: Path) -> bytes:
    """The compiled half of the op pack in a wheel."""
    try:
        return _library_in(wheel)
    except OSError as error:
        raise SystemExit(f"{wheel} cannot be read: {error.strerror}") from error
    except zipfile.BadZipFile as error:
        raise SystemExit(f"{wheel} is no wheel: {error}") from error


def _library_in(wheel: Path) -> bytes:
    with zipfile.ZipFile(str(wheel)) as archive:
        names = [name for name in archive.namelist() if re.fullmatch(r"jetops/_C[^/]*\.so", name)]
        if len(names) != 1:
            raise SystemExit(f"{wheel.name} has no jetops/_C*.so; is it a wheel of jetops?")
        return archive.read(names[0])


def split(data: bytes) -> List[bytes]:
    """The containers of a section of device code, which lie one behind the other."""
    found, place = [], 0
    while True:
        place = len(data) - len(data[place:].lstrip(b"\0"))
        if place == len(data):
            return found
        magic, _, header, size = struct.unpack_from("<IHHQ", data, place)
        if magic != MAGIC:
            raise SystemExit(f"no container of device code at byte {place} of {SECTION}")
        found.append(data[place : place + header + size])
        place += header + size


def containers_of(tools: Tools, library: bytes, name: str, scratch: Path) -> List[Container]:
    section = ELFFile(io.BytesIO(library)).get_section_by_name(SECTION)
    found = []
    for number, code in enumerate(split(section.data() if section is not None else b"")):
        path = scratch / f"{number}.fatbin"
        path.write_bytes(code)
        texts = ptx_in(tools, path, scratch)
        if len(texts) != 1:
            raise SystemExit(
                f"{name} has {len(texts)} PTX texts for a .cu file, and one is wanted: build it "
                "for one arch and its PTX, as with --arch 6.2+PTX."
            )
        found.append(Container(code, texts[0]))
    return found


def compile_launchers(tools: Tools, scratch: Path) -> List[Launcher]:
    """The .cu files of this project as object files for this machine."""
    sources = runpy.run_path(str(CSRC / "jetops/_sources.py"))
    flags = [*sources["NVCC_FLAGS"], "-I", CSRC / "kernels"]  # in nvcc's own C++, 14 or newer
    flags += ["-Xcompiler=-fPIC", "-ccbin", tools.cxx, "-allow-unsupported-compiler"]
    flags += [f"-gencode=arch={ANY_ARCH},code={ANY_ARCH}"]
    made = []
    for source in sources["CUDA"]:
        if source.endswith(".cu"):
            name = Path(source).stem
            run(tools.nvcc, "-c", *flags, CSRC / source, "-o", scratch / f"{name}.o")
            (ptx,) = ptx_in(tools, scratch / f"{name}.o", scratch)
            made.append(Launcher(name, scratch / f"{name}.o", ptx))
    return made


def container_for(launcher: Launcher, containers: List[Container], wheel: str) -> Container:
    """The container with the launcher's kernels; other parameters would make nonsense of them."""
    for container in containers:
        if container.ptx.interface == launcher.ptx.interface:
            return container
    raise SystemExit(
        f"{wheel} was not built from the {launcher.name}.cu that is here: it has no PTX with the "
        "same kernels and the same parameters. Build the wheel again."
    )


def names_source(pairs: List[Tuple[Launcher, Container]]) -> str:
    """C code that registers the wheel's kernels in place of the launchers' own."""
    rows = [
        f'    {{"{kernel.name}", "{container.ptx.by_plain_name[plain].name}"}},'
        for launcher, container in pairs
        for plain, kernel in launcher.ptx.by_plain_name.items()
    ]
    return _NAMES.format(rows="\n".join(rows))


def link(tools: Tools, pairs: List[Tuple[Launcher, Container]], library: Path, scratch: Path):
    """Write the library: the launchers, each around the device code of its container."""
    objects = []
    for launcher, container in pairs:
        fatbin, made = scratch / "code.fatbin", scratch / f"{launcher.name}.o"
        fatbin.write_bytes(container.code)
        run(tools.objcopy, "--update-section", f"{SECTION}={fatbin}", launcher.object, made)
        objects.append(made)
    names, exports = scratch / "names.c", scratch / "exports.map"
    names.write_text(names_source(pairs))
    exports.write_text(_EXPORTS)
    run(tools.cxx, "-x", "c", "-O2", "-fPIC", "-c", names, "-o", scratch / "names.o")
    options = ["--wrap=__cudaRegisterFunction", "-Bsymbolic", f"--version-script={exports}"]
    options = [f"-Wl,{option}" for option in options]
    run(tools.cxx, "-shared", *options, *objects, scratch / "names.o", "-lm", "-o", library)


def described(container: Container, library: bytes) -> dict:
    """Where a container lies in the library, and what its PTX says about itself."""
    return {
        "offset": library.index(container.code),
        "size": len(container.code),
        "target": container.ptx.target,
        "isa": container.ptx.isa,
        "kernels": [kernel.name for kernel in container.ptx.kernels],
    }


def make(tools: Tools, launchers: List[Launcher], wheel: Path, folder: Path, scratch: Path) -> None:
    """Fill a folder with what belongs to one wheel."""
    containers = containers_of(tools, library_of(wheel), wheel.name, scratch)
    pairs = [(one, container_for(one, containers, wheel.name)) for one in launchers]
    link(tools, pairs, folder / LIBRARY, scratch)
    library = (folder / LIBRARY).read_bytes()
    record = {
        "wheel": wheel.name,
        "sha256": hashlib.sha256(wheel.read_bytes()).hexdigest(),
        "ptx": {one.name: described(code, library) for one, code in pairs},
    }
    (folder / RECORD).write_text(json.dumps(record, indent=1) + "\n")


def folder_name(wheel: Path) -> str:
    """Name and version, with which a wheel's name begins."""
    return "-".join(wheel.stem.split("-")[:2])


def require_wheels(wheels: List[Path]) -> None:
    """See that all are wheels of the op pack, each with a folder of its own."""
    names = {}  # type: Dict[str, Path]
    for wheel in wheels:
        library_of(wheel)
        other = names.setdefault(folder_name(wheel), wheel)
        if other is not wheel:
            raise SystemExit(f"{other} and {wheel} have the same version: give one of them")


def publish(made: List[Path], out: Path, gone: Path) -> None:
    """Put finished folders in the place of all those of an earlier call, which are moved to `gone`.

    What has the name of one goes as well, whatever is in it.
    """
    gone.mkdir()
    earlier = {record.parent.name for record in out.glob(f"*/{RECORD}")}
    for name in earlier.union(folder.name for folder in made):
        if os.path.lexists(str(out / name)):
            os.rename(str(out / name), str(gone / name))
    for folder in made:
        os.rename(str(folder), str(out / folder.name))


def make_all(tools: Tools, wheels: List[Path], out: Path, scratch: Path) -> List[Path]:
    """Make the folders of all wheels in `scratch`, then put them into `out`."""
    launchers = compile_launchers(tools, scratch)
    made = []
    for wheel in wheels:
        folder = scratch / "made" / folder_name(wheel)
        folder.mkdir(parents=True)
        work = scratch / wheel.stem
        work.mkdir()
        make(tools, launchers, wheel, folder, work)
        made.append(folder)
    publish(made, out, scratch / "gone")
    return made


def main(argv=None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("wheels", nargs="+", type=Path, metavar="WHEEL")
    parser.add_argument("--out", type=Path, required=True, help="gets a folder for each wheel")
    parser.add_argument("--nvcc", default="nvcc", help="compiles the launchers (default: nvcc)")
    parser.add_argument("--cuobjdump", default="cuobjdump", help="reads PTX (default: cuobjdump)")
    given = parser.parse_args(argv)
    if UNUSABLE:
        raise SystemExit("error: " + UNUSABLE)
    tools = Tools(given.nvcc, given.cuobjdump)
    require_wheels(given.wheels)
    out = given.out.resolve()
    try:
        out.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=str(out), prefix=".")
    except OSError as error:
        raise SystemExit(
            f"--out {given.out} cannot be used ({error.strerror}): name another folder"
        ) from error
    with scratch as name:
        made = make_all(tools, given.wheels, out, Path(name))
    for folder in made:
        print(given.out / folder.name)
    return 0


def stop(*_) -> None:
    raise SystemExit(STOPPED)


if __name__ == "__main__":
    # By an exception, so that what is half made goes.
    signal.signal(signal.SIGTERM, stop)
    signal.signal(signal.SIGINT, stop)
    sys.exit(main())

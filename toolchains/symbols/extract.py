"""Write names that libraries export, as evidence for platforms whose own are not at hand.

    python toolchains/symbols/extract.py torch-2.1.0 torch-2.1.0-cp310-cp310-manylinux1_x86_64.whl
    python toolchains/symbols/extract.py cuda-11.2 libcublas11_11.4.1_arm64.deb libcufft10_...deb
    python toolchains/symbols/extract.py python-3.10 pyodide-0.21.3.tgz libpython3.9_...deb \
        libpython3.11_...deb
    python toolchains/symbols/extract.py cuda-12.4 nvidia_cublas_cu12-12.4.5.8-...-aarch64.whl ...

Of a torch these are the CUDA libraries of upstream's wheel for x86-64 (`pip download --no-deps
torch==2.1.0`), of a CUDA release all libraries that its packages hold, in toolchains/symbols/
<release>/<library>.txt: one name a line, sorted, with the file's name and digest in its head.
Names do not depend on the machine; that a build for another machine has the same ones is derived
evidence, and the check says so.

Debian has no Python 3.10 and 3.12. Of these there are CPython's builds for WebAssembly (`npm pack
pyodide@0.21.3`, 0.26.4 for 3.12), which export what any build does: of 1,685 names of Debian's
libpython3.11, pyodide 0.24.1 lacks 9. It has its own beside them, none of which begins with _Py,
so of the others only those are taken that Debian's release before or after has for the target's
machine too.
"""

import re
import shutil
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from jetship import proc
from jetship.check.mangled import in_torch, is_pythons, string_abi
from jetship.check.symboltables import (
    DEFINES,
    EXPORTED,
    NEEDS,
    PARTIAL,
    SHA256,
    STRINGS,
    TORCH_LIBRARIES,
    is_left_out,
    read_table,
)
from jetship.elf import MAGIC, ElfFile, read_elf
from jetship.store import sha256_of, write_atomically

# Of CUDA's libraries, those that extensions link against and torch itself needs.
_CUDAS = re.compile(
    r"lib(?:cudart|cublas|cublasLt|cusparse|cusparseLt|cusolver|cusolverMg|curand|cufft|cufile|cupti|"
    r"cudnn|nccl|nvJitLink|nvrtc|nvshmem_host|nvToolsExt)\.so\.[0-9.]+"
)
_LEFT_OUT = "names of torch's namespaces, without those of kernels"
_OF_WASM = "names that the build for WebAssembly exports"
_LIBC = {"libc.so.6", "libm.so.6"}
_EXPORTS = 7
MAX_BYTES = 1_000_000


def extract(release: str, package: Path) -> None:
    """Write the tables of one wheel or Debian package."""
    digest = sha256_of(package)
    with TemporaryDirectory() as scratch:
        for path in _libraries(package, Path(scratch), torch=release.startswith("torch-")):
            elf = read_elf(path)
            name = _soname(elf, path)
            if name not in TORCH_LIBRARIES and not _CUDAS.fullmatch(name):
                continue
            if name in TORCH_LIBRARIES and not release.startswith("torch-"):
                continue
            into = Path(__file__).parent / release / f"{name}.txt"
            packages = _of_the_same_names(into, elf) | {package.name: digest}
            text = _table(name, elf, packages)
            if len(text) > MAX_BYTES:
                sys.stdout.write(f"{name} is left out: {len(text)} bytes\n")
            else:
                write_atomically(into, text)
                sys.stdout.write(f"{into}: {len(text)} bytes\n")


def _libraries(package: Path, scratch: Path, *, torch: bool) -> Iterator[Path]:
    if package.suffix == ".deb":
        proc.run(["dpkg-deb", "--extract", package, scratch])
        found = [path for path in sorted(scratch.rglob("lib*.so*")) if not path.is_symlink()]
    else:
        with zipfile.ZipFile(package) as archive:
            wanted = re.compile(r"torch/lib/(.+)" if torch else r"(?:nvidia|torch)/.*lib/(lib.+)")
            names = {one: wanted.fullmatch(one) for one in archive.namelist() if ".so" in one}
            found = []
            for name, match in names.items():
                if match and (not torch or match[1] in TORCH_LIBRARIES):
                    found.append(scratch / match[1])
                    with archive.open(name) as source, found[-1].open("wb") as out:
                        shutil.copyfileobj(source, out)
    yield from found


def _soname(elf: ElfFile, path: Path) -> str:
    """Return the soname; auditwheel puts a digest into those that it brings along."""
    return re.sub(r"-[0-9a-f]{8}(?=\.so)", "", elf.soname or path.name)


def _of_the_same_names(path: Path, elf: ElfFile) -> dict[str, str]:
    """Return the packages, with their digests, from which a table with just these names is."""
    if not path.is_file() or read_table(path).exports != elf.exports:
        return {}
    first, second, *_ = path.read_text().splitlines()
    packages = first.partition(" of ")[2].split()
    return dict(zip(packages, second.removeprefix(SHA256).split(), strict=True))


def _table(name: str, elf: ElfFile, packages: Mapping[str, str]) -> bytes:
    lines = [f"{EXPORTED}{name} of {' '.join(packages)}", f"{SHA256}{' '.join(packages.values())}"]
    needed = [one for one in elf.needed if re.match(r"lib(cu|nv)", one)]
    names = set(elf.exports)
    if name in TORCH_LIBRARIES:
        needed = []
    if name == "libtorch_cuda.so":
        lines.append(f"{PARTIAL}{_LEFT_OUT}")
        names = {one for one in names if not is_left_out(one)}
    lines += [f"{NEEDS}{' '.join(needed)}"] if needed else []
    lines += [f"{DEFINES}{' '.join(elf.version_definitions)}"] if elf.version_definitions else []
    abis = {string_abi(one) for one in names if in_torch(one)} - {None}
    lines += [f"{STRINGS}{' '.join(sorted(map(str, abis)))}"] if abis else []
    listed = [
        "@".join([one, *(version for version in elf.exports[one] if version)]) for one in names
    ]
    return ("\n".join([*lines, *sorted(listed)]) + "\n").encode()


def extract_python(release: str, wasm: Path, neighbours: Sequence[Path]) -> None:
    """Write the table of a Python that has no package for the target's machine."""
    name = release.replace("-", "")
    names: set[str] = set()
    needed: list[set[str]] = []
    for package in neighbours:
        with TemporaryDirectory() as scratch:
            for path in _libraries(package, Path(scratch), torch=False):
                if path.name.startswith("libpython") and path.read_bytes()[:4] == MAGIC:
                    elf = read_elf(path)
                    names |= {*elf.exports}
                    needed.append({*elf.needed})
    if len(needed) != len(neighbours):
        sys.exit(f"of {len(neighbours)} packages {len(needed)} have a libpython")
    with tarfile.open(wasm) as archive:
        stream = archive.extractfile("package/pyodide.asm.wasm")
        module = stream.read() if stream else b""
    if name.encode() not in module:
        sys.exit(f"{wasm} is no {name}")
    own = {one for one in _exports(module) if is_pythons(one) and not one.startswith("PyInit_")}
    names = {one for one in own if one in names or one.startswith("_Py")}
    packages = [wasm, *neighbours]
    lines = [
        f"{EXPORTED}{name} of {' '.join(one.name for one in packages)}",
        f"{SHA256}{' '.join(map(sha256_of, packages))}",
        f"{PARTIAL}{_OF_WASM}",
        f"{NEEDS}{' '.join(sorted(set.intersection(*needed) & _LIBC))}",
    ]
    into = Path(__file__).parent / release / f"{name}.txt"
    write_atomically(into, ("\n".join([*lines, *sorted(names)]) + "\n").encode())
    sys.stdout.write(f"{into}: {len(names)} names\n")


def _exports(module: bytes) -> Iterator[str]:
    """Yield the names that a module of WebAssembly exports (section 7 of its core format)."""
    place = 8
    while place < len(module):
        section = module[place]
        size, place = _number(module, place + 1)
        end = place + size
        if section == _EXPORTS:
            count, place = _number(module, place)
            for _ in range(count):
                length, place = _number(module, place)
                yield module[place : place + length].decode()
                _, place = _number(module, place + length + 1)
        place = end


def _number(module: bytes, place: int) -> tuple[int, int]:
    """Return a LEB128 number, and the place after it."""
    value = shift = 0
    while True:
        byte = module[place]
        value |= (byte & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if byte < 0x80:
            return value, place


if sys.argv[1].startswith("python-"):
    extract_python(sys.argv[1], Path(sys.argv[2]), [Path(file) for file in sys.argv[3:]])
else:
    for file in sys.argv[2:]:
        extract(sys.argv[1], Path(file))

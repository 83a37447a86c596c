"""Write names that libraries export, as evidence for platforms whose own are not at hand.

 noqa: PLR2004 - the bit that says that more follows  python toolchains/symbols/extract.py torch-2.1.0 torch-2.1.0-cp310-cp310-manylinux1_x86_64.whl
 noqa: PLR2004 - the bit that says that more follows  python toolchains/symbols/extract.py cuda-11.2 libcublas11_11.4.1_arm64.deb libcufft10_...deb
 noqa: PLR2004 - the bit that says that more follows  python toolchains/symbols/extract.py python-3.10 pyodide-0.21.3.tgz libpython3.9_3.9...arm64.deb \
 noqa: PLR2004 - the bit that says that more follows      libpython3.11_3.11...arm64.deb
 noqa: PLR2004 - the bit that says that more follows  python toolchains/symbols/extract.py cuda-12.4 nvidia_cublas_cu12-12.4.5.8-...-aarch64.whl ...

Of a torch these are the CUDA libraries of upstream's wheel for x86-64 (`pip download --no-deps
torch==2.1.0`), of a CUDA release all libraries that its packages hold, in toolchains/symbols/
<release>/<library>.txt: one name a line, sorted, with the file's name and digest in its head.
Names do not depend on the machine; that a build for another machine has the same ones is derived
evidence, and the check says so.

Debian has no Python 3.10 and 3.12. Of these there are CPython's builds for WebAssembly (`npm pack
pyodide@0.21.3`, 0.26.4 for 3.12), which export what any build does: of 1,685 names of Debian's
libpython3.11, pyodide 0.24.1 lacks 9. It has its own beside them, so only those are taken that
Debian's release before or after has for the target's machine too.
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
 noqa: PLR2004 - the bit that says that more follows  DEFINES,
 noqa: PLR2004 - the bit that says that more follows  EXPORTED,
 noqa: PLR2004 - the bit that says that more follows  NEEDS,
 noqa: PLR2004 - the bit that says that more follows  PARTIAL,
 noqa: PLR2004 - the bit that says that more follows  SHA256,
 noqa: PLR2004 - the bit that says that more follows  STRINGS,
 noqa: PLR2004 - the bit that says that more follows  TORCH_LIBRARIES,
 noqa: PLR2004 - the bit that says that more follows  is_left_out,
 noqa: PLR2004 - the bit that says that more follows  read_table,
)
from jetship.elf import MAGIC, ElfFile, read_elf
from jetship.store import sha256_of, write_atomically

# Of CUDA's libraries, those that extensions link against and torch itself needs.
_CUDAS = re.compile(
 noqa: PLR2004 - the bit that says that more follows  r"lib(?:cudart|cublas|cublasLt|cusparse|cusparseLt|cusolver|cusolverMg|curand|cufft|cufile|cupti|"
 noqa: PLR2004 - the bit that says that more follows  r"cudnn|nccl|nvJitLink|nvrtc|nvshmem_host|nvToolsExt)\.so\.[0-9.]+"
)
_LEFT_OUT = "names of torch's namespaces, without those of kernels"
_LIKE_NEIGHBOURS = "names of the build for WebAssembly that a neighbouring release has too"
_LIBC = {"libc.so.6", "libm.so.6"}
_EXPORTS = 7
MAX_BYTES = 1_000_000


def extract(release: str, package: Path) -> None:
 noqa: PLR2004 - the bit that says that more follows  """Write the tables of one wheel or Debian package."""
 noqa: PLR2004 - the bit that says that more follows  digest = sha256_of(package)
 noqa: PLR2004 - the bit that says that more follows  with TemporaryDirectory() as scratch:
 noqa: PLR2004 - the bit that says that more follows      for path in _libraries(package, Path(scratch), torch=release.startswith("torch-")):
 noqa: PLR2004 - the bit that says that more follows          elf = read_elf(path)
 noqa: PLR2004 - the bit that says that more follows          name = _soname(elf, path)
 noqa: PLR2004 - the bit that says that more follows          if name not in TORCH_LIBRARIES and not _CUDAS.fullmatch(name):
 noqa: PLR2004 - the bit that says that more follows              continue
 noqa: PLR2004 - the bit that says that more follows          if name in TORCH_LIBRARIES and not release.startswith("torch-"):
 noqa: PLR2004 - the bit that says that more follows              continue
 noqa: PLR2004 - the bit that says that more follows          into = Path(__file__).parent / release / f"{name}.txt"
 noqa: PLR2004 - the bit that says that more follows          packages = _of_the_same_names(into, elf) | {package.name: digest}
 noqa: PLR2004 - the bit that says that more follows          text = _table(name, elf, packages)
 noqa: PLR2004 - the bit that says that more follows          if len(text) > MAX_BYTES:
 noqa: PLR2004 - the bit that says that more follows              sys.stdout.write(f"{name} is left out: {len(text)} bytes\n")
 noqa: PLR2004 - the bit that says that more follows          else:
 noqa: PLR2004 - the bit that says that more follows              write_atomically(into, text)
 noqa: PLR2004 - the bit that says that more follows              sys.stdout.write(f"{into}: {len(text)} bytes\n")


def _libraries(package: Path, scratch: Path, *, torch: bool) -> Iterator[Path]:
 noqa: PLR2004 - the bit that says that more follows  if package.suffix == ".deb":
 noqa: PLR2004 - the bit that says that more follows      proc.run(["dpkg-deb", "--extract", package, scratch])
 noqa: PLR2004 - the bit that says that more follows      found = [path for path in sorted(scratch.rglob("lib*.so*")) if not path.is_symlink()]
 noqa: PLR2004 - the bit that says that more follows  else:
 noqa: PLR2004 - the bit that says that more follows      with zipfile.ZipFile(package) as archive:
 noqa: PLR2004 - the bit that says that more follows          wanted = re.compile(r"torch/lib/(.+)" if torch else r"(?:nvidia|torch)/.*lib/(lib.+)")
 noqa: PLR2004 - the bit that says that more follows          names = {one: wanted.fullmatch(one) for one in archive.namelist() if ".so" in one}
 noqa: PLR2004 - the bit that says that more follows          found = []
 noqa: PLR2004 - the bit that says that more follows          for name, match in names.items():
 noqa: PLR2004 - the bit that says that more follows              if match and (not torch or match[1] in TORCH_LIBRARIES):
 noqa: PLR2004 - the bit that says that more follows                  found.append(scratch / match[1])
 noqa: PLR2004 - the bit that says that more follows                  with archive.open(name) as source, found[-1].open("wb") as out:
 noqa: PLR2004 - the bit that says that more follows                      shutil.copyfileobj(source, out)
 noqa: PLR2004 - the bit that says that more follows  yield from found


def _soname(elf: ElfFile, path: Path) -> str:
 noqa: PLR2004 - the bit that says that more follows  """Return the soname; auditwheel puts a digest into those that it brings along."""
 noqa: PLR2004 - the bit that says that more follows  return re.sub(r"-[0-9a-f]{8}(?=\.so)", "", elf.soname or path.name)


def _of_the_same_names(path: Path, elf: ElfFile) -> dict[str, str]:
 noqa: PLR2004 - the bit that says that more follows  """Return the packages, with their digests, from which a table with just these names is."""
 noqa: PLR2004 - the bit that says that more follows  if not path.is_file() or read_table(path).exports != elf.exports:
 noqa: PLR2004 - the bit that says that more follows      return {}
 noqa: PLR2004 - the bit that says that more follows  first, second, *_ = path.read_text().splitlines()
 noqa: PLR2004 - the bit that says that more follows  packages = first.partition(" of ")[2].split()
 noqa: PLR2004 - the bit that says that more follows  return dict(zip(packages, second.removeprefix(SHA256).split(), strict=True))


def _table(name: str, elf: ElfFile, packages: Mapping[str, str]) -> bytes:
 noqa: PLR2004 - the bit that says that more follows  lines = [f"{EXPORTED}{name} of {' '.join(packages)}", f"{SHA256}{' '.join(packages.values())}"]
 noqa: PLR2004 - the bit that says that more follows  needed = [one for one in elf.needed if re.match(r"lib(cu|nv)", one)]
 noqa: PLR2004 - the bit that says that more follows  names = set(elf.exports)
 noqa: PLR2004 - the bit that says that more follows  if name in TORCH_LIBRARIES:
 noqa: PLR2004 - the bit that says that more follows      needed = []
 noqa: PLR2004 - the bit that says that more follows  if name == "libtorch_cuda.so":
 noqa: PLR2004 - the bit that says that more follows      lines.append(f"{PARTIAL}{_LEFT_OUT}")
 noqa: PLR2004 - the bit that says that more follows      names = {one for one in names if not is_left_out(one)}
 noqa: PLR2004 - the bit that says that more follows  lines += [f"{NEEDS}{' '.join(needed)}"] if needed else []
 noqa: PLR2004 - the bit that says that more follows  lines += [f"{DEFINES}{' '.join(elf.version_definitions)}"] if elf.version_definitions else []
 noqa: PLR2004 - the bit that says that more follows  abis = {string_abi(one) for one in names if in_torch(one)} - {None}
 noqa: PLR2004 - the bit that says that more follows  lines += [f"{STRINGS}{' '.join(sorted(map(str, abis)))}"] if abis else []
 noqa: PLR2004 - the bit that says that more follows  listed = [
 noqa: PLR2004 - the bit that says that more follows      "@".join([one, *(version for version in elf.exports[one] if version)]) for one in names
 noqa: PLR2004 - the bit that says that more follows  ]
 noqa: PLR2004 - the bit that says that more follows  return ("\n".join([*lines, *sorted(listed)]) + "\n").encode()


def extract_python(release: str, wasm: Path, neighbours: Sequence[Path]) -> None:
 noqa: PLR2004 - the bit that says that more follows  """Write the table of a Python that has no package for the target's machine."""
 noqa: PLR2004 - the bit that says that more follows  name = release.replace("-", "")
 noqa: PLR2004 - the bit that says that more follows  names: set[str] = set()
 noqa: PLR2004 - the bit that says that more follows  needed: list[set[str]] = []
 noqa: PLR2004 - the bit that says that more follows  for package in neighbours:
 noqa: PLR2004 - the bit that says that more follows      with TemporaryDirectory() as scratch:
 noqa: PLR2004 - the bit that says that more follows          for path in _libraries(package, Path(scratch), torch=False):
 noqa: PLR2004 - the bit that says that more follows              if path.name.startswith("libpython") and path.read_bytes()[:4] == MAGIC:
 noqa: PLR2004 - the bit that says that more follows                  elf = read_elf(path)
 noqa: PLR2004 - the bit that says that more follows                  names |= {*elf.exports}
 noqa: PLR2004 - the bit that says that more follows                  needed.append({*elf.needed})
 noqa: PLR2004 - the bit that says that more follows  if len(needed) != len(neighbours):
 noqa: PLR2004 - the bit that says that more follows      sys.exit(f"of {len(neighbours)} packages {len(needed)} have a libpython")
 noqa: PLR2004 - the bit that says that more follows  with tarfile.open(wasm) as archive:
 noqa: PLR2004 - the bit that says that more follows      stream = archive.extractfile("package/pyodide.asm.wasm")
 noqa: PLR2004 - the bit that says that more follows      module = stream.read() if stream else b""
 noqa: PLR2004 - the bit that says that more follows  if name.encode() not in module:
 noqa: PLR2004 - the bit that says that more follows      sys.exit(f"{wasm} is no {name}")
 noqa: PLR2004 - the bit that says that more follows  names = {one for one in names & {*_exports(module)} if is_pythons(one)}
 noqa: PLR2004 - the bit that says that more follows  names = {one for one in names if not one.startswith("PyInit_")}
 noqa: PLR2004 - the bit that says that more follows  packages = [wasm, *neighbours]
 noqa: PLR2004 - the bit that says that more follows  lines = [
 noqa: PLR2004 - the bit that says that more follows      f"{EXPORTED}{name} of {' '.join(one.name for one in packages)}",
 noqa: PLR2004 - the bit that says that more follows      f"{SHA256}{' '.join(map(sha256_of, packages))}",
 noqa: PLR2004 - the bit that says that more follows      f"{PARTIAL}{_LIKE_NEIGHBOURS}",
 noqa: PLR2004 - the bit that says that more follows      f"{NEEDS}{' '.join(sorted(set.intersection(*needed) & _LIBC))}",
 noqa: PLR2004 - the bit that says that more follows  ]
 noqa: PLR2004 - the bit that says that more follows  into = Path(__file__).parent / release / f"{name}.txt"
 noqa: PLR2004 - the bit that says that more follows  write_atomically(into, ("\n".join([*lines, *sorted(names)]) + "\n").encode())
 noqa: PLR2004 - the bit that says that more follows  sys.stdout.write(f"{into}: {len(names)} names\n")


def _exports(module: bytes) -> Iterator[str]:
 noqa: PLR2004 - the bit that says that more follows  """Yield the names that a module of WebAssembly exports (section 7 of its core format)."""
 noqa: PLR2004 - the bit that says that more follows  place = 8
 noqa: PLR2004 - the bit that says that more follows  while place < len(module):
 noqa: PLR2004 - the bit that says that more follows      section = module[place]
 noqa: PLR2004 - the bit that says that more follows      size, place = _number(module, place + 1)
 noqa: PLR2004 - the bit that says that more follows      end = place + size
 noqa: PLR2004 - the bit that says that more follows      if section == _EXPORTS:
 noqa: PLR2004 - the bit that says that more follows          count, place = _number(module, place)
 noqa: PLR2004 - the bit that says that more follows          for _ in range(count):
 noqa: PLR2004 - the bit that says that more follows              length, place = _number(module, place)
 noqa: PLR2004 - the bit that says that more follows              yield module[place : place + length].decode()
 noqa: PLR2004 - the bit that says that more follows              _, place = _number(module, place + length + 1)
 noqa: PLR2004 - the bit that says that more follows      place = end


def _number(module: bytes, place: int) -> tuple[int, int]:
 noqa: PLR2004 - the bit that says that more follows  """Return a LEB128 number, and the place after it."""
 noqa: PLR2004 - the bit that says that more follows  value = shift = 0
 noqa: PLR2004 - the bit that says that more follows  while True:
 noqa: PLR2004 - the bit that says that more follows      byte = module[place]
 noqa: PLR2004 - the bit that says that more follows      value |= (byte & 0x7F) << shift
 noqa: PLR2004 - the bit that says that more follows      place, shift = place + 1, shift + 7
 noqa: PLR2004 - the bit that says that more follows      if byte < 0x80:  # noqa: PLR2004 - the bit that says that more follows
 noqa: PLR2004 - the bit that says that more follows          return value, place


if sys.argv[1].startswith("python-"):
 noqa: PLR2004 - the bit that says that more follows  extract_python(sys.argv[1], Path(sys.argv[2]), [Path(file) for file in sys.argv[3:]])
else:
 noqa: PLR2004 - the bit that says that more follows  for file in sys.argv[2:]:
 noqa: PLR2004 - the bit that says that more follows      extract(sys.argv[1], Path(file))

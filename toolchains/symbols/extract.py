"""Write exported names of a torch's CUDA libraries, as evidence for platforms without them.

    python toolchains/symbols/extract.py torch-2.1.0-cp310-cp310-manylinux1_x86_64.whl

takes upstream's CUDA wheel for x86-64 (`pip download --no-deps torch==2.1.0`) and writes
toolchains/symbols/torch-2.1.0/<library>.txt: one name a line, sorted, with the wheel's name
and digest in its head. C++ names do not depend on the machine; that a build for another
machine has the same ones is derived evidence, and the check says so.
"""

import sys
import zipfile
from pathlib import Path
from tempfile import TemporaryDirectory

from jetship.elf import read_elf
from jetship.store import sha256_of, write_atomically
from packaging.utils import parse_wheel_filename

# libtorch_cuda exports some 40,000 names, nearly all of them kernels that only torch calls.
KEPT = {
    "libc10_cuda.so": ("",),
    "libtorch_cuda.so": ("_ZN2at4cuda", "_ZNK2at4cuda", "_ZN5torch4cuda", "_ZNK5torch4cuda"),
}
PARTIAL = "# partial: names that begin so: "


def extract(wheel: Path) -> None:
    """Write the tables of one wheel."""
    version = parse_wheel_filename(wheel.name)[1].public
    digest = sha256_of(wheel)
    for library, prefixes in KEPT.items():
        with zipfile.ZipFile(wheel) as archive, TemporaryDirectory() as scratch:
            elf = read_elf(Path(archive.extract(f"torch/lib/{library}", scratch)))
        lines = [f"# exported by {library} of {wheel.name}", f"# sha256 {digest}"]
        if prefixes != ("",):
            lines.append(PARTIAL + " ".join(prefixes))
        lines += sorted(name for name in elf.exports if name.startswith(prefixes))
        path = Path(__file__).parent / f"torch-{version}" / f"{library}.txt"
        write_atomically(path, ("\n".join(lines) + "\n").encode())
        sys.stdout.write(f"{path}: {len(lines)} lines\n")


for name in sys.argv[1:]:
    extract(Path(name))

"""The reader of device code against what real nvccs write and their own cuobjdump lists."""

import random
import re
from dataclasses import dataclass
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet
from jetship import proc
from jetship.elf import ElfError
from jetship.fatbin import DeviceImage, FatbinError, containers, read_images
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.gpucode import newest_ptx
from jetship.targets.resolve import resolve
from jetship.toolchain.model import Toolchain
from jetship.toolchain.prepare import prepare

FIRST = """
__device__ int table[64];
__device__ __noinline__ float helper(float x) { return x * x + 1.f; }
__global__ void plain(float *p) { p[threadIdx.x] = helper(p[threadIdx.x]) + table[3]; }
template <typename T> __global__ void scaled(T *p, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) p[i] = p[i] * T(2) + T(i);
}
template __global__ void scaled<float>(float *, int);
template __global__ void scaled<double>(double *, int);
extern "C" __global__ void with_c_name(int *p) { p[blockIdx.x] += 1; }
"""
SECOND = """
namespace other { __global__ void shared(float *p, int n) {
  __shared__ float s[32];
  s[threadIdx.x] = p[threadIdx.x]; __syncthreads();
  if (threadIdx.x < n) p[threadIdx.x] = s[n - threadIdx.x];
} }
static __global__ void hidden(int *p) { *p = 7; }
void go(int *p) { hidden<<<1, 1>>>(p); }
"""
WITHOUT_KERNELS = "__device__ int lonely[4];\nint host() { return 1; }\n"

X, Y = "compute_62,code=[sm_62,compute_62]", "compute_80,code=sm_80"
PACK = {"as it is": [], "all": ["-Xfatbin=-compress-all"], "nothing": ["-no-compress"]}
MODES = {mode: [f"-compress-mode={mode}"] for mode in ("size", "speed", "balance", "none")}
NEW = "compute_87,code=[sm_87,compute_87]"


@dataclass(frozen=True)
class Release:
    """An nvcc, by a target whose toolchain has it, and the archs to ask of it."""

    cuda: str
    arch: str
    platform: str
    gencode: tuple[str, ...]
    packings: dict[str, list[str]]


RELEASES = [
    Release("11.2", "6.2", "debian-11", (X, Y), PACK),
    Release("11.8", "6.2", "debian-12", (X, Y, "compute_90,code=[sm_90,compute_90]"), PACK),
    Release("12.4", "8.7", "jetpack-6.2", (NEW, "compute_90a,code=[sm_90a,compute_90a]"), PACK),
    Release(
        "13.0",
        "8.7",
        "debian-13",
        (
            NEW,
            "compute_90a,code=[sm_90a,compute_90a]",
            "compute_100f,code=[sm_100f,compute_100f]",
            "compute_110,code=sm_110",
        ),
        PACK | MODES,
    ),
]


def of_release(release: Release, *values: str) -> ParameterSet:
    """Return a case; all but those of one release are gigabytes to download where not cached."""
    marks = () if release.cuda == "11.8" else pytest.mark.long
    return pytest.param(release, *values, id="-".join((release.cuda, *values)), marks=marks)


@pytest.fixture(scope="module", params=[of_release(one) for one in RELEASES])
def nvcc(request, tmp_path_factory) -> "Nvcc":
    release: Release = request.param
    (target,) = resolve(Catalog.load(), arch=release.arch, platform=release.platform)
    toolchain = prepare(target, Store(default_root()))
    return Nvcc(release, toolchain, tmp_path_factory.mktemp("nvcc"))


@dataclass(frozen=True)
class Nvcc:
    release: Release
    toolchain: Toolchain
    folder: Path

    def run(self, *words: str) -> None:
        compiler = self.toolchain.bin / f"{self.toolchain.multiarch}-g++"
        argv = [self.toolchain.cuda_home / "bin/nvcc", "-ccbin", compiler, "-Xcompiler=-fPIC"]
        done = proc.run([*argv, *words], cwd=self.folder)
        assert done.ok, done.stderr

    def library(self, *flags: str, sources: tuple[str, ...] = (FIRST, SECOND)) -> Path:
        """Compile each source for all archs of this release, and link a library of them."""
        objects = []
        gencode = [f"-gencode=arch={one}" for one in self.release.gencode]
        for number, source in enumerate(sources):
            (self.folder / f"{number}.cu").write_text(source)
            self.run("-c", *gencode, *flags, "-o", f"{number}.o", f"{number}.cu")
            objects.append(f"{number}.o")
        if "-rdc=true" in flags:
            self.run("-dlink", *gencode, *flags, *objects, "-o", "link.o")
            objects.append("link.o")
        self.run("-shared", "-cudart=none", "-cudadevrt=none", *objects, "-o", "library.so")
        return self.folder / "library.so"


@dataclass(frozen=True)
class Listed:
    """An image as cuobjdump lists it."""

    kind: str
    arch: str
    compressed: bool
    kernels: tuple[str, ...]
    version: str


def cuobjdump(nvcc: Nvcc, library: Path) -> list[Listed]:
    """Return what cuobjdump says of the images, in its order: those that the driver can load."""
    found = []
    tool = nvcc.toolchain.cuda_home / "bin/cuobjdump"
    done = proc.run([tool, "-symbols", "-ptx", library])
    assert done.ok, done.stderr
    # Each block begins with its title, and a line of = under it.
    blocks = re.split(r"^Fatbin (elf|ptx) code:\n=+\n", done.stdout, flags=re.MULTILINE)[1:]
    for kind, body in zip(blocks[::2], blocks[1::2], strict=True):
        entry = r"STO_ENTRY\s+(\S+)" if kind == "elf" else r"\.entry (\w+)"
        version = re.search(r"^\.version (\S+)", body, re.MULTILINE)
        found.append(
            Listed(
                kind="sass" if kind == "elf" else "ptx",
                arch=re.search(r"^arch = sm_(\w+)", body, re.MULTILINE)[1],
                compressed=re.search(r"^compressed$", body, re.MULTILINE) is not None,
                kernels=tuple(sorted(re.findall(entry, body))),
                version=version[1] if version else "",
            )
        )
    return found


def as_listed(image: DeviceImage) -> Listed:
    return Listed(
        image.kind,
        image.arch.number + image.variant,
        image.compressed,
        tuple(sorted(image.kernels)),
        image.ptx_isa or "",
    )


def assert_same(nvcc: Nvcc, library: Path) -> list[DeviceImage]:
    """Compare with cuobjdump, which lists what the driver can load if there is any of that."""
    images = [one for one in read_images(library, budget=None) if one.linked]
    listed = cuobjdump(nvcc, library)
    key = lambda one: (one.kind, one.arch, one.compressed, one.kernels)  # noqa: E731
    assert sorted(map(as_listed, images), key=key) == sorted(listed, key=key)
    assert {one.cuda for one in images if one.kind == "sass"} == {nvcc.release.cuda}
    assert {one.cuda for one in images if one.kind == "ptx"} <= {None}
    return images


@pytest.mark.parametrize(
    ("nvcc", "packing"),
    [of_release(one, packing) for one in RELEASES for packing in one.packings],
    indirect=["nvcc"],
    scope="module",
)
@pytest.mark.parametrize("rdc", [[], ["-rdc=true"]], ids=["whole", "rdc"])
def test_what_is_read_is_what_cuobjdump_lists(nvcc, packing, rdc):
    library = nvcc.library(*nvcc.release.packings[packing], *rdc)
    images = assert_same(nvcc, library)
    assert len(containers(images)) == (1 if rdc else 2)
    assert {one.ptx_isa for one in images if one.kind == "ptx"} <= {newest_ptx(nvcc.release.cuda)}
    if packing in ("all", "size") and not rdc:
        assert all(one.compressed for one in images)


def test_a_file_without_kernels(nvcc):
    images = assert_same(nvcc, nvcc.library(sources=(FIRST, WITHOUT_KERNELS)))
    first, second = containers(images)
    assert all(len(one.kernels) == 4 for one in first)
    assert all(one.kernels == () for one in second)


def test_damage_of_a_real_library_is_an_error_or_images(nvcc):
    whole = nvcc.library("-Xfatbin=-compress-all").read_bytes()
    copy, chance = nvcc.folder / "damaged.so", random.Random(5)  # noqa: S311 -- the same damage in every run
    code = whole.index(b"\x50\xed\x55\xba")
    for _ in range(150):
        data = bytearray(whole[: chance.randrange(len(whole))] if chance.random() < 0.2 else whole)
        for _ in range(chance.randrange(1, 6)):
            data[chance.randrange(min(code, len(data) - 1), len(data))] = chance.randrange(256)
        copy.write_bytes(data)
        try:
            read_images(copy, budget=None)
        except (ElfError, FatbinError):
            continue


def test_relocatable_code_is_not_linked(nvcc):
    nvcc.library("-rdc=true")
    images = read_images(nvcc.folder / "0.o")
    assert images
    assert not any(one.linked for one in images)

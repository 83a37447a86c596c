"""Make one wheel for each kind of fault, with the compilers of a toolchain, and a good one.

    python faulty_wheels.py FOLDER

All wheels are for debian-12 and a TX2 (sm_62), and are the good one but for their fault.
`expected.yaml` beside this script says what the check has to find in each.
"""

import json
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from jetship import proc
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from jetship.toolchain.model import Toolchain
from jetship.toolchain.prepare import prepare

sys.path.insert(0, str(Path(__file__).parents[2] / "unit/check"))
from wheelspec import EXT, WheelSpec

X86_EXT = EXT.replace("aarch64", "x86_64")
TORCH = "Requires-Dist: torch==2.7.1"

MODULE = """
#include <Python.h>
#include <cstdint>
#include <string>
namespace c10::detail {
[[noreturn]] void torchCheckFail(const char*, const char*, uint32_t, const std::string&);
}
extern "C" int scale_all(float*, float, long long);
static PyObject* check(PyObject*, PyObject* value) {
  if (!PyLong_Check(value))
    c10::detail::torchCheckFail("check", "module.cpp", 1, std::string("no"));
  return PyLong_FromLong(scale_all(nullptr, 2.0f, 0));
}
static PyMethodDef methods[] = {{"check", check, METH_O, ""}, {nullptr, nullptr, 0, nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, methods};
PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&module); }
"""
KERNEL = """
__global__ void scale(float* data, float factor, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) data[i] *= factor;
}
extern "C" int scale_all(float* data, float factor, long long count) {
  scale<<<static_cast<unsigned>((count + 255) / 256), 256>>>(data, factor, count);
  return static_cast<int>(cudaGetLastError());
}
"""
# Atomics and a loop that compilers turn into what -march allows.
HOT = """
int counter;
int count_up(int by) { return __atomic_fetch_add(&counter, by, __ATOMIC_SEQ_CST); }
void add(float* __restrict a, const float* __restrict b, int n) {
  for (int i = 0; i < n; i++) a[i] += b[i];
}
"""
ASKING = (
    HOT
    + """
#include <sys/auxv.h>
int asks(void) { return (int)getauxval(AT_HWCAP); }
"""
)


@dataclass(frozen=True)
class Link:
    """How the extension module of a wheel is made; each field can be bent."""

    module: str = MODULE
    cxx: tuple[str, ...] = ()
    objects: tuple[Path, ...] = ()
    device: tuple[str, ...] = ("-gencode=arch=compute_62,code=sm_62",)
    last: tuple[str, ...] = ()


@dataclass(frozen=True)
class Maker:
    """The compilers, and a folder for what they make."""

    toolchain: Toolchain
    folder: Path

    def module(self, link: Link | None = None) -> bytes:
        """Return the extension module."""
        link = link or Link()
        source = self._write("module.cpp", link.module)
        out = self.folder / "module.so"
        flags = ["-O2", "-std=c++17", "-fPIC", "-shared", f"-I{self.toolchain.python_include}"]
        libraries = [self.toolchain.torch / "lib/libc10.so", self._cudart()]
        objects = [*link.objects, self.kernel(link.device)]
        self._run(self._tool("g++"), *flags, *link.cxx, source, *objects, "-Wl,--no-as-needed",
                  *libraries, "-Wl,--as-needed", *link.last,
                  "-Wl,--allow-shlib-undefined", "-o", out)  # fmt: skip
        return out.read_bytes()

    def kernel(self, flags: tuple[str, ...]) -> Path:
        """Return the object file of the kernel."""
        source = self._write("kernel.cu", KERNEL)
        nvcc = self.toolchain.cuda_home / "bin/nvcc"
        self._run(nvcc, "-ccbin", self._tool("g++"), "-Xcompiler=-fPIC", *flags, "-c", source,
                  "-o", self.folder / "kernel.o")  # fmt: skip
        return self.folder / "kernel.o"

    def c(self, code: str, *flags: str, tool: str | Path = "gcc", name: str = "own.so") -> Path:
        """Return a shared library (or an object, with -c) made of C code."""
        out = self.folder / name
        kind = () if "-c" in flags or "-r" in flags else ("-shared",)
        program = self._tool(tool) if isinstance(tool, str) else tool
        self._run(program, "-O2", "-fPIC", *kind, self._write("own.c", code), *flags, "-o", out)
        return out

    def versioned(self, name: str, script: str, code: str) -> Path:
        """Return a library with symbol versions, to link with."""
        path = self._write("versions.map", script)
        flags = (f"-Wl,--version-script,{path}", f"-Wl,-soname,{name}", "-nostdlib")
        return self.c(code, *flags, name=name)

    def _cudart(self) -> Path:
        return next(
            path
            for folder in self.toolchain.cuda_libraries
            for path in sorted(folder.glob("libcudart.so.*"))
        )

    def cudart(self) -> bytes:
        """Return the target's libcudart."""
        return self._cudart().read_bytes()

    def system(self, name: str) -> bytes:
        """Return a library of the sysroot."""
        folder = self.toolchain.sysroot / "usr/lib" / self.toolchain.multiarch
        return (folder / name).read_bytes()

    def _tool(self, name: str) -> Path:
        return self.toolchain.bin / f"{self.toolchain.multiarch}-{name}"

    def _write(self, name: str, text: str) -> Path:
        path = self.folder / name
        path.write_text(text)
        return path

    def _run(self, *argv: str | Path) -> None:
        environment = {"PATH": "/usr/bin:/bin", "CUDA_HOME": str(self.toolchain.cuda_home)}
        done = proc.run([*map(str, argv)], env=environment)
        if not done.ok:
            raise SystemExit(f"{' '.join(map(str, argv))}\n{done.stderr}")


Bend = Callable[[Maker, WheelSpec], WheelSpec]
C_FILE = f"pkg/_C{EXT}"
ORIGIN = "-Wl,-rpath,$ORIGIN/../pkg.libs"


def with_module(spec: WheelSpec, data: bytes, name: str = C_FILE, **more: bytes) -> WheelSpec:
    """Return the wheel with another extension module, under another name."""
    return replace(spec, members={name: data, **more})


def linked(**changes: object) -> Bend:
    """Return how to make a wheel whose module is made otherwise."""
    return lambda maker, spec: with_module(spec, maker.module(replace(Link(), **changes)))


def bent(**changes: object) -> Bend:
    """Return how to make a wheel that only its spec makes faulty."""
    return lambda _maker, spec: replace(spec, **changes)


def added(name: str, data: Callable[[Maker], bytes]) -> Bend:
    """Return how to make a wheel with one more file."""
    return lambda maker, spec: replace(spec, members={**spec.members, name: data(maker)})


def damaged(change: Callable[[bytes], bytes]) -> Bend:
    """Return how to make a wheel whose module was changed before RECORD was written."""
    return lambda _maker, spec: with_module(spec, change(spec.members[C_FILE]))


def host(code: str, *flags: str) -> Callable[[Maker], bytes]:
    """Return how to compile with this machine's own compiler."""
    return lambda maker: maker.c(code, *flags, tool=Path("/usr/bin/gcc")).read_bytes()


def newer(library: str, version: str) -> Bend:
    """Return how to make a wheel that was linked with a newer system library."""

    def make(maker: Maker, spec: WheelSpec) -> WheelSpec:
        script = f"{version} {{ global: brand_new; }};"
        stub = maker.versioned(library, script, "int brand_new(void) { return 1; }")
        code = maker.c(
            "int brand_new(void); int use(void) { return brand_new(); }", "-c", name="u.o"
        )
        return with_module(spec, maker.module(Link(objects=(code, stub))))

    return make


def needing(
    code: str, use: str, soname: str, *flags: str
) -> Callable[[Maker], tuple[bytes, bytes]]:
    """Return how to make a module that needs a library, and that library."""

    def make(maker: Maker) -> tuple[bytes, bytes]:
        library = maker.c(code, f"-Wl,-soname,{soname}", name=soname)
        user = maker.c(f"int {use}(void); int use(void) {{ return {use}(); }}", "-c", name="u.o")
        module = maker.module(Link(objects=(user, library), last=("-Wl,--no-as-needed", *flags)))
        return module, library.read_bytes()

    return make


OWN = "int own(void) { return 1; }"


def own_library(as_file: str, *flags: str, brings: bool = True) -> Bend:
    """Return how to make a wheel that needs libown.so.1."""

    def make(maker: Maker, spec: WheelSpec) -> WheelSpec:
        module, library = needing(OWN, "own", "libown.so.1", *flags)(maker)
        spec = with_module(spec, module)
        return replace(spec, members={**spec.members, as_file: library}) if brings else spec

    return make


def twins(maker: Maker, spec: WheelSpec) -> WheelSpec:
    module, library = needing(OWN, "own", "libown.so.1", ORIGIN)(maker)
    other = maker.c(OWN + "int more(void) { return 2; }", "-Wl,-soname,libown.so.1").read_bytes()
    members = {C_FILE: module, "pkg.libs/libown.so.1": library, "other.libs/libown.so.1": other}
    return replace(spec, members=members)


def other_version(maker: Maker, spec: WheelSpec) -> WheelSpec:
    """Build with a library whose `own` is of V2, and bring one along that has it only at V1."""
    code = "int own(void) { return 1; } int late(void) { return 2; }"
    newer_script = "V1 { global: late; }; V2 { global: own; } V1;"
    library = maker.versioned("libown.so.1", newer_script, code)
    user = maker.c("int own(void); int use(void) { return own(); }", "-c", name="u.o")
    module = maker.module(Link(objects=(user, library), last=(ORIGIN,)))
    older = maker.versioned("libown.so.1", "V1 { global: own; }; V2 { global: late; } V1;", code)
    return replace(spec, members={C_FILE: module, "pkg.libs/libown.so.1": older.read_bytes()})


def hot(march: str, code: str = HOT, *, vector: bool = False) -> Bend:
    """Return how to make a wheel with code for newer cores."""

    def make(maker: Maker, spec: WheelSpec) -> WheelSpec:
        flags = (f"-march={march}", "-mno-outline-atomics", "-c")
        wide = ("-O3", "-ftree-vectorize") if vector else ("-fno-tree-vectorize",)
        extra = maker.c(code, *flags, *wide, name="hot.o")
        return with_module(spec, maker.module(Link(objects=(extra,))))

    return make


def other_cudart(_maker: Maker, spec: WheelSpec) -> WheelSpec:
    """Replace the name of CUDA's run-time in the module, as another toolkit would have it."""
    data = spec.members[C_FILE].replace(b"libcudart.so.11.0\0", b"libcudart.so.12\0\0\0")
    return with_module(spec, data)


def newer_ptx(maker: Maker, spec: WheelSpec) -> WheelSpec:
    """Have the release of PTX that CUDA 12.8 writes, which a driver for 11.8 does not know."""
    flags = ("-gencode=arch=compute_62,code=compute_62", "-Xfatbin", "-compress=false")
    data = maker.module(Link(device=flags))
    if b".version 7.8" not in data:
        raise SystemExit("nvcc wrote no plain PTX")
    return with_module(spec, data.replace(b".version 7.8", b".version 8.7"))


def pinned(_maker: Maker, spec: WheelSpec) -> WheelSpec:
    pin = {
        "tool": {"version": "1"}, "target": "sm72-jetpack-5.1", "platform": "jetpack-5.1",
        "platform_kind": "jetpack", "machine": "aarch64",
        "torch": {"version": "2.1.0a0+41361538.nv23.06", "cuda": "11.4", "cxx11_abi": True},
        "cuda": {"version": "11.4", "code": [{"arch": "6.2", "sass": True, "ptx": False}]},
        "python": {"interpreter": "cp311", "abi": "cp311"}, "glibc_floor": "2.17",
    }  # fmt: skip
    return replace(spec, extra={"jetship.json": json.dumps(pin).encode()})


def byte(place: int, value: int) -> Callable[[bytes], bytes]:
    """Return how to change one byte of a file."""
    return lambda data: data[:place] + bytes([value]) + data[place + 1 :]


FAULTS: Mapping[str, Bend] = {
    "good": bent(),
    # the archive
    "record-mismatch": lambda _maker, spec: replace(
        spec, edited={C_FILE: spec.members[C_FILE] + b"\0"}
    ),
    "not-in-record": bent(unrecorded={"pkg/more.py": b"x = 1\n"}),
    "truncated": damaged(lambda data: data[: len(data) * 2 // 3]),
    "empty": damaged(lambda _data: b""),
    "git-lfs-pointer": damaged(lambda _data: b"version https://git-lfs.github.com/spec/v1\n"),
    # machine and names
    "wrong-machine": lambda maker, spec: with_module(spec, host(OWN)(maker)),
    "renamed-wheel": lambda maker, spec: replace(
        with_module(spec, host(OWN)(maker), f"pkg/_C{X86_EXT}"),
        wheel_tag="cp311-cp311-linux_x86_64",
    ),
    "wrong-suffix": lambda _maker, spec: with_module(
        spec, spec.members[C_FILE], f"pkg/_C{X86_EXT}"
    ),
    "other-python": lambda _maker, spec: replace(
        with_module(spec, spec.members[C_FILE], f"pkg/_C{EXT.replace('311', '310')}"),
        tag="cp310-cp310-linux_aarch64",
    ),
    "any-platform": bent(tag="py3-none-any"),
    "newer-manylinux": bent(tag="cp311-cp311-manylinux_2_39_aarch64"),
    "other-requires-python": bent(headers=(TORCH, "Requires-Python: <3.10")),
    "i386": lambda maker, spec: with_module(spec, host(OWN, "-m32", "-nostdlib")(maker)),
    "big-endian": lambda maker, spec: with_module(
        spec, maker.c(OWN, "-mbig-endian", "-nostdlib", "-Wl,-EB").read_bytes()
    ),
    "object-file": lambda maker, spec: with_module(spec, maker.c(OWN, "-c").read_bytes()),
    "other-system": damaged(byte(7, 9)),
    "small-pages": linked(last=("-Wl,-z,max-page-size=1024", "-Wl,-z,common-page-size=1024")),
    # versions, libraries, symbols
    "newer-glibc": newer("libc.so.6", "GLIBC_2.39"),
    "newer-libstdc++": newer("libstdc++.so.6", "GLIBCXX_3.4.33"),
    "other-cxx-abi": linked(cxx=("-D_GLIBCXX_USE_CXX11_ABI=0",)),
    "missing-symbol": linked(module=MODULE.replace("torchCheckFail", "torchCheckGone")),
    "other-signature": linked(
        module=MODULE.replace("const std::string&);", "long);").replace('std::string("no")', "1L")
    ),
    "other-symbol-version": other_version,
    "missing-library": own_library("", ORIGIN, brings=False),
    "out-of-reach": own_library("pkg.libs/libown.so.1"),
    "only-its-soname": own_library("pkg.libs/libown.so.1.2", ORIGIN),
    "brought-along": own_library("pkg.libs/libown.so.1", ORIGIN),
    "twins": twins,
    "other-cudart": other_cudart,
    "rpath-of-build-machine": linked(
        last=("-Wl,-rpath,/home/ci/venv/lib/python3.11/site-packages/torch/lib",)
    ),
    "relative-rpath": linked(last=("-Wl,-rpath,torch.libs",)),
    "rpath-of-other-cuda": linked(last=("-Wl,-rpath,/usr/local/cuda-12.6/lib64",)),
    # somebody else's libraries
    "vendored-cudart": added("pkg.libs/libcudart-1b2c3d4e.so.11.0", Maker.cudart),
    "vendored-torch": added(
        "pkg.libs/libc10-0a1b2c3d.so",
        lambda maker: (maker.toolchain.torch / "lib/libc10.so").read_bytes(),
    ),
    "vendored-driver": added(
        "pkg.libs/libcuda.so.1", lambda maker: maker.c(OWN, "-Wl,-soname,libcuda.so.1").read_bytes()
    ),
    "vendored-libstdc++": added(
        "pkg.libs/libstdc++.so.6", lambda maker: maker.system("libstdc++.so.6")
    ),
    # how it is loaded
    "executable-stack": linked(last=("-Wl,-z,execstack",)),
    "text-relocation": linked(
        module=MODULE + 'asm(".text\\n.global inner\\ninner: .quad PyInit__C\\n");',
        last=("-Wl,-z,notext",),
    ),
    # device code
    "other-arch": linked(device=("-gencode=arch=compute_72,code=sm_72",)),
    "older-ptx-only": linked(device=("-gencode=arch=compute_50,code=compute_50",)),
    "newer-ptx-only": linked(device=("-gencode=arch=compute_72,code=compute_72",)),
    "ptx-of-a-newer-toolkit": newer_ptx,
    "unlinked-device-code": linked(
        device=("-rdc=true", "-gencode=arch=compute_62,code=sm_62"),
    ),
    # the cores
    "sve-without-asking": hot("armv8-a+sve", vector=True),
    "sve-that-asks": hot("armv8-a+sve", ASKING, vector=True),
    "lse-on-a-tx2": hot("armv8.1-a"),
    # requirements and pin
    "other-torch": bent(headers=("Requires-Dist: torch==2.5.0",)),
    "torch-of-other-cuda": bent(headers=("Requires-Dist: torch==2.7.1+cu126",)),
    "cuda-wheel": bent(headers=(TORCH, "Requires-Dist: nvidia-cublas-cu11>=11.11")),
    "pin-of-another": pinned,
}


def make(toolchain: Toolchain, folder: Path) -> dict[str, Path]:
    """Make all wheels, each in a folder of its own, and return them by name."""
    folder.mkdir(parents=True, exist_ok=True)
    scratch = folder / "scratch"
    scratch.mkdir()
    maker = Maker(toolchain, scratch)
    good = WheelSpec({C_FILE: maker.module()})
    made = {}
    for name, bend in FAULTS.items():
        (folder / name).mkdir()
        made[name] = bend(maker, good).write(folder / name)
    shutil.rmtree(scratch)
    return made


if __name__ == "__main__":
    target = resolve(Catalog.load(), arch="6.2", platform="debian-12")[0]
    for wheel in make(prepare(target, Store(default_root())), Path(sys.argv[1])).values():
        print(wheel)

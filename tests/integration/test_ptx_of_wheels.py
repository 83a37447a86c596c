"""What csrc/tools/wheel_ptx.py makes of wheels, and csrc/tests/test_wheel_ptx.py runs on a GPU."""

import json
import re
import runpy
import shutil
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from independent import elf
from jetship import proc
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.gpucode import newest_ptx
from jetship.targets.resolve import resolve
from jetship.toolchain.model import Toolchain
from jetship.toolchain.prepare import prepare
from product import ROOT, Ended, invoke

CSRC = ROOT / "csrc"
TOOL = "tools/wheel_ptx.py"
ARCHS = ("5.3", "6.2", "7.0", "7.2")
FUNCTIONS = set(re.findall(r"\b(jetops_\w+)\(", (CSRC / "kernels/jetops_kernels.h").read_text()))
# Loads a library, and prints the names by which it registers kernels with the CUDA runtime. That
# does not tell which it has, and there is no GPU here to run them on.
LOADER = r"""
#include <dlfcn.h>
#include <stdio.h>
void** __cudaRegisterFatBinary(void* code) { static void* module; return &module; }
void __cudaRegisterFatBinaryEnd(void** module) {}
void __cudaUnregisterFatBinary(void** module) {}
void __cudaRegisterFunction(void** module, const char* host, char* device, const char* name) {
  printf("%s %s\n", device, name);
}
int main(int count, char** words) {
  if (dlopen(words[1], RTLD_LAZY)) return 0;
  puts(dlerror());
  return 1;
}
"""


@dataclass(frozen=True)
class Built:
    """Wheels of one platform, by arch, and what was made of them."""

    platform: str
    toolchain: Toolchain
    wheels: dict[str, Path]
    out: Path
    folder: Path

    @property
    def cuda(self) -> Path:
        return self.toolchain.cuda_home / "bin"

    def made(self, arch: str) -> Path:
        (folder,) = self.out.glob(f"*.sm{arch.replace('.', '')}ptx")
        return folder

    def record(self, arch: str):
        return json.loads((self.made(arch) / "wheel.json").read_text())

    def taken_out(self, option: str, arch: str) -> list[Path]:
        """Return what cuobjdump takes out of a wheel's library: a file for each .cu file."""
        folder = self.folder / f"{option}-{arch}"
        if not folder.exists():
            folder.mkdir()
            library = folder / "library.so"
            library.write_bytes(compiled_half(self.wheels[arch]))
            done = proc.run([self.cuda / "cuobjdump", option, "all", library], cwd=folder)
            assert done.ok, done.stderr
        return sorted(folder.glob("*.ptx" if option == "-xptx" else "*.cubin"))


def compiled_half(wheel: Path) -> bytes:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if re.match(r"jetops/_C.*\.so$", name)]
        return archive.read(name)


def device_section(library: bytes) -> bytes:
    return elf(library).get_section_by_name(".nv_fatbin").data()


def machine_code(cubin: Path) -> bytes:
    """Return a cubin but for nvcc's process id, which 11.2 puts into the names of kernels."""
    return re.sub(rb"tmpxft_[0-9a-f]{8}", b"tmpxft", cubin.read_bytes())


def run_tool(toolchain: Toolchain, out: Path, *wheels: Path, csrc: Path = CSRC) -> Ended:
    cuda = toolchain.cuda_home / "bin"
    tools = ("--nvcc", cuda / "nvcc", "--cuobjdump", cuda / "cuobjdump")
    done = proc.run([sys.executable, csrc / TOOL, "--out", out, *tools, *wheels])
    return Ended(done.status, done.stdout, done.stderr)


def build(dist: Path, *words: str) -> list[Path]:
    done = invoke("build", "--dist", dist, "--json", *words).good()
    return [Path(row["wheel"]) for row in done.json["wheels"]]


# What 11.2 needs is gigabytes to download where it is not cached.
@pytest.fixture(
    scope="module", params=["debian-12", pytest.param("debian-11", marks=pytest.mark.long)]
)
def built(request, toolchain, tmp_path_factory) -> Built:
    folder = tmp_path_factory.mktemp("ptx")
    (target,) = resolve(Catalog.load(), arch="6.2", platform=request.param)
    asked = ",".join(f"{arch}+PTX" for arch in ARCHS)
    wheels = build(folder / "dist", "--arch", asked, "--platform", request.param)
    earlier = folder / "out/jetops-0.0.9"
    earlier.mkdir(parents=True)
    (earlier / "wheel.json").write_text("{}")
    run_tool(toolchain, folder / "out", *wheels).good()
    own = prepare(target, Store(default_root()))
    return Built(request.param, own, dict(zip(ARCHS, wheels, strict=True)), folder / "out", folder)


def kernels_in_sources() -> set[tuple[str, str]]:
    """Return the file and the name of every kernel that the sources define."""
    sources = runpy.run_path(str(CSRC / "jetops/_sources.py"))["CUDA"]
    kernel = r"__global__\s+void\s+(?:__launch_bounds__\(.*?\)\s+)?(\w+)\("
    return {
        (Path(source).stem, name)
        for source in sources
        if source.endswith(".cu")
        for name in re.findall(kernel, (CSRC / source).read_text())
    }


@pytest.mark.parametrize("arch", ARCHS)
def test_the_wheel_has_ptx_of_every_kernel(built, arch):
    texts = [path.read_text() for path in built.taken_out("-xptx", arch)]
    assert len(texts) == 3
    for text in texts:
        assert re.findall(r"^\.target (\S+)", text, re.MULTILINE) == [f"sm_{arch.replace('.', '')}"]
        versions = re.findall(r"^\.version (\S+)", text, re.MULTILINE)
        assert versions == [newest_ptx(built.toolchain.cuda_version)]
    entries = [re.findall(r"\.entry (\w+)", text) for text in texts]
    names = [name for found in entries for name in found]
    expected = kernels_in_sources()
    assert len(expected) >= 6
    for _, kernel in expected:
        assert any(f"{len(kernel)}{kernel}" in name for name in names), kernel
    for dtype in ("Float32", "Float16", "BFloat16"):
        for operator in ("Forward", "Backward"):  # of gelu
            assert any(dtype in name and operator in name for name in names)
    record = built.record(arch)["ptx"]
    assert {frozenset(unit["kernels"]) for unit in record.values()} == set(map(frozenset, entries))
    for file, kernel in expected:
        assert any(f"{len(kernel)}{kernel}" in name for name in record[file]["kernels"])


@pytest.mark.parametrize("arch", ARCHS)
def test_ptxas_makes_the_wheels_machine_code_of_it(built, arch, tmp_path):
    """So what is shown for the PTX is shown for the code that such a GPU runs, but for ptxas."""
    cubins = built.taken_out("-xelf", arch)
    for ptx, cubin in zip(built.taken_out("-xptx", arch), cubins, strict=True):
        out = tmp_path / "out.cubin"
        machine = f"-arch=sm_{arch.replace('.', '')}"
        done = proc.run([built.cuda / "ptxas", "-m64", machine, ptx, "-o", out])
        assert done.ok, done.stderr
        assert out.read_bytes() == cubin.read_bytes()


def test_a_wheel_without_ptx_has_the_same_machine_code(built, toolchain, tmp_path):
    (plain,) = build(tmp_path / "dist", "--arch", "6.2", "--platform", built.platform)
    library = tmp_path / "library.so"
    library.write_bytes(compiled_half(plain))
    done = proc.run([built.cuda / "cuobjdump", "-xelf", "all", library], cwd=tmp_path)
    assert done.ok, done.stderr
    without = [machine_code(path) for path in sorted(tmp_path.glob("*.cubin"))]
    assert without == [machine_code(path) for path in built.taken_out("-xelf", "6.2")]
    done = run_tool(toolchain, tmp_path / "out", plain)
    assert done.status == 1
    assert "has 0 PTX texts for a .cu file" in done.stderr
    assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("arch", ARCHS)
def test_the_library_has_the_wheels_device_code_and_no_other(built, arch):
    library = (built.made(arch) / "libjetops_kernels.so").read_bytes()
    of_wheel = device_section(compiled_half(built.wheels[arch]))
    left = device_section(library)
    for unit in built.record(arch)["ptx"].values():
        code = library[unit["offset"] : unit["offset"] + unit["size"]]
        assert code in of_wheel
        left = left.replace(code, b"")
    assert left.strip(b"\0") == b""
    assert elf(library).get_machine_arch() == "x64"


@pytest.fixture(scope="module")
def loader(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("loader")
    (folder / "loader.c").write_text(LOADER)
    done = proc.run(["gcc", "-rdynamic", folder / "loader.c", "-o", folder / "loader"])
    assert done.ok, done.stderr
    return folder / "loader"


@pytest.mark.parametrize("arch", ARCHS)
def test_the_launchers_register_the_wheels_kernels(built, loader, arch):
    done = proc.run([loader, built.made(arch) / "libjetops_kernels.so"])
    assert done.ok, done.stdout + done.stderr
    registered = [line.split() for line in done.stdout.splitlines()]
    assert all(device == name for device, name in registered)
    kernels = [name for unit in built.record(arch)["ptx"].values() for name in unit["kernels"]]
    assert sorted(name for _, name in registered) == sorted(kernels)


def test_the_library_has_the_functions_of_the_header_and_no_other(built):
    symbols = elf((built.made("6.2") / "libjetops_kernels.so").read_bytes())
    dynamic = list(symbols.get_section_by_name(".dynsym").iter_symbols())
    defined = {one.name for one in dynamic if one.name and one["st_shndx"] != "SHN_UNDEF"}
    assert defined == FUNCTIONS
    needed = {one.name for one in dynamic if one["st_shndx"] == "SHN_UNDEF" and "cuda" in one.name}
    table = (ROOT / "toolchains/symbols/cuda-13.0/libcudart.so.13.txt").read_text()
    assert needed <= set(re.findall(r"^(\w+)@", table, re.MULTILINE))


def test_other_sources_than_the_wheels_are_refused(built, toolchain, tmp_path):
    """A launcher would hand the wheel's kernels a structure that they do not know."""
    csrc = Path(shutil.copytree(CSRC, tmp_path / "csrc"))
    source = csrc / "kernels/bias_gelu_dropout.cu"
    before = source.read_text()
    source.write_text(
        before.replace("  Dropout dropout;\n};", "  Dropout dropout;\n  int64_t more;\n};")
    )
    assert source.read_text() != before
    out = tmp_path / "out"
    done = run_tool(toolchain, out, built.wheels["6.2"], csrc=csrc)
    assert done.status == 1
    assert "was not built from the bias_gelu_dropout.cu that is here" in done.stderr
    assert list(out.iterdir()) == []


def test_what_was_made_earlier_is_gone(built):
    assert len(list(built.out.iterdir())) == len(ARCHS)


def test_what_is_no_wheel_of_the_op_pack_is_refused(toolchain, kernel_wheel, tmp_path):
    done = run_tool(toolchain, tmp_path / "out", kernel_wheel)
    assert done.status == 1
    assert "has no jetops/_C*.so" in done.stderr


@pytest.mark.parametrize("name", ["file", "file/folder"])
def test_a_folder_that_cannot_be_used_is_told_before_anything_is_built(tmp_path, name):
    (tmp_path / "file").touch()
    done = invoke("ptx", "--out", tmp_path / name)
    assert f"--out {tmp_path / name} cannot be used" in done.one_error(2)
    assert "building" not in done.stderr

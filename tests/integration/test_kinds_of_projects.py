"""Kinds of projects that do build, and where they may come from."""

import tarfile
import zipfile
from pathlib import Path

import pytest
from jetship.build.origin import find_project
from jetship.elf import parse_elf
from jetship.errors import DownloadError
from jetship.store import Store
from product import PROJECTS, copy_of, invoke, wheels_in

# A small project of the index whose setup.py imports torch, which nothing here has.
REQUIREMENT = "torch-scatter==2.1.2"


@pytest.fixture
def build(toolchain, dist):
    """Build a project anew; returns its wheel."""

    def build(project: str | Path, *words: str) -> Path:
        done = invoke("build", "--arch", "6.2", "--project", project, "--dist", dist, "--rebuild",
                      *words)  # fmt: skip
        return Path(done.good().stdout.strip())

    return build


def libraries(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}


def test_plain_c_needs_neither_torch_nor_cuda(build):
    ((name, data),) = libraries(build(PROJECTS / "c_extension")).items()
    assert name == "c_extension.cpython-311-aarch64-linux-gnu.so"
    assert parse_elf(data).machine == "aarch64"


# Names compilers of its own, and calls others beside setuptools.
OWN_COMPILERS = """\
import os, subprocess
os.environ.update(CC="gcc", CXX="g++", LDSHARED="gcc -shared")
open("called.c", "w").write("int called(void) { return 1; }\\n")
open("called.cu", "w").write("__global__ void called(float *x) { *x = 1; }\\n")
subprocess.run(["cc", "-shared", "-fPIC", "called.c", "-o", "libcalled.so"], check=True)
nvcc = ["nvcc", "-arch=sm_62", "-Xcompiler", "-fPIC", "-c", "called.cu", "-o", "cu.o"]
subprocess.run(nvcc, check=True)
runtime = ["-L" + os.environ["CUDA_HOME"] + "/lib64", "-lcudart"]
subprocess.run(["g++", "-shared", "cu.o", "-o", "libcu.so", *runtime], check=True)
"""


def test_compilers_by_their_plain_names_are_the_targets(build, tmp_path):
    project = copy_of("c_extension", tmp_path)
    setup = (project / "setup.py").read_text()
    with_them = setup.replace(
        'version="1.0",', 'version="1.0", data_files=["libcalled.so", "libcu.so"],'
    )
    (project / "setup.py").write_text(OWN_COMPILERS + with_them)
    found = libraries(build(project))
    assert len(found) == 3
    assert {parse_elf(data).machine for data in found.values()} == {"aarch64"}


def test_a_module_of_the_stable_abi_stays_one(build):
    wheel = build(PROJECTS / "stable_abi")
    assert wheel.name.endswith("-cp39-abi3-linux_aarch64.whl")
    assert list(libraries(wheel)) == ["stable_abi/_C.abi3.so"]


def test_cpp_alone_by_torchs_own_class(build):
    ((_, data),) = libraries(build(PROJECTS / "torch_cpp")).items()
    assert "libc10.so" in parse_elf(data).needed


def test_headers_of_numpy_are_those_of_the_targets_numpy(build):
    ((_, data),) = libraries(build(PROJECTS / "header_numpy")).items()
    assert b"numpy ABI 0x01000009\0" in data


@pytest.fixture
def sdist(tmp_path):
    """An sdist of c_extension."""
    folder = copy_of("c_extension", tmp_path)
    (folder / "PKG-INFO").write_text("Metadata-Version: 2.1\nName: c-extension\nVersion: 1.0\n")
    path = tmp_path / "c_extension-1.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        archive.add(folder, "c_extension-1.0")
    return path


def test_an_sdist_is_built_as_its_folder_is(build, sdist, dist):
    wheel = build(sdist)
    assert wheel.name.startswith("c_extension-1.0+")
    assert (dist / "logs/c-extension-1.0-sm62-debian-12.log").is_file()


def test_a_damaged_sdist_is_one_error(sdist, dist):
    sdist.write_bytes(sdist.read_bytes()[:-200])
    done = invoke("build", "--arch", "6.2", "--project", sdist, "--dist", dist)
    assert f"{sdist} cannot be unpacked" in done.one_error(2)
    assert wheels_in(dist) == []


def test_a_wheel_is_no_project(kernel_wheel, dist):
    done = invoke("build", "--arch", "6.2", "--project", kernel_wheel, "--dist", dist)
    assert "is a wheel, which is built already" in done.one_error(2)


def test_the_index_gives_an_sdist_and_nothing_of_it_is_run(tmp_path):
    project = find_project(REQUIREMENT, Store(tmp_path / "store"))
    assert project.title == "torch-scatter-2.1.2"
    assert "from torch" in (project.folder / "setup.py").read_text()
    assert (project.folder / "csrc").is_dir()


def test_a_version_that_the_index_has_not_is_told_with_those_that_it_has(tmp_path):
    with pytest.raises(DownloadError, match=r"no sdist of torch-scatter==99\.9") as caught:
        find_project("torch-scatter==99.9", Store(tmp_path / "store"))
    assert "2.1.2" in caught.value.why

"""A C++ project with LibTorch and CUDA, built by CMake in an exported toolchain."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.dynamic import DynamicSection
from elftools.elf.elffile import ELFFile
from independent import device_code
from jetship import doctor, proc
from product import PROJECTS, invoke

PACKAGES = {
    "cmake": "cmake",
    "ninja": "ninja-build",
    "qemu-aarch64-static": "qemu-user-static",
}
# On PATH as a build machine of its own may have them; the exported toolchain must win.
UNSET = ("CUDACXX", "CUDAHOSTCXX", "CUDAARCHS", "CXX", "CC", "CXXFLAGS", "LDFLAGS")


@pytest.fixture(scope="module", autouse=True)
def cmake() -> None:
    doctor.install([package for name, package in PACKAGES.items() if proc.find(name) is None])


@dataclass(frozen=True)
class Made:
    """What CMake configured and built, and with what."""

    exported: Path
    folder: Path
    said: str

    def needed(self, name: str) -> list[str]:
        """Return the NEEDED entries of a file that is for aarch64."""
        with (self.folder / name).open("rb") as stream:
            elf = ELFFile(stream)
            assert elf["e_machine"] == "EM_AARCH64"
            dynamic = elf.get_section_by_name(".dynamic")
            assert isinstance(dynamic, DynamicSection)
            return [tag.needed for tag in dynamic.iter_tags() if tag.entry.d_tag == "DT_NEEDED"]

    def symbols(self, name: str) -> set[str]:
        """Return all names in the dynamic symbol table."""
        with (self.folder / name).open("rb") as stream:
            table = ELFFile(stream).get_section_by_name(".dynsym")
            return {symbol.name for symbol in table.iter_symbols()}


def run(*words: str | Path) -> proc.Finished:
    env = {name: value for name, value in os.environ.items() if name not in UNSET}
    return proc.run(words, env=env)


def make(target: str, folder: Path) -> Made:
    exported = folder / "toolchain"
    invoke("toolchain", "--target", target, "--export", exported).good()
    build = folder / "build"
    configured = run(
        *("cmake", "-G", "Ninja", "-S", PROJECTS / "cmake_app", "-B", build),
        f"-DCMAKE_TOOLCHAIN_FILE={exported}/aarch64-linux-gnu.cmake",
    )
    assert configured.ok, configured.stderr
    built = run("cmake", "--build", build)
    assert built.ok, built.stdout
    return Made(exported, build, configured.stdout + built.stdout)


@pytest.fixture(scope="module")
def tx2(tmp_path_factory) -> Made:
    return make("sm62-debian-12", tmp_path_factory.mktemp("tx2"))


@pytest.fixture(scope="module")
def orin(tmp_path_factory) -> Made:
    return make("sm87-jetpack-6.2", tmp_path_factory.mktemp("orin"))


def test_it_is_for_the_targets_cpu_and_gpu(tx2):
    assert {"libtorch.so", "libtorch_cpu.so", "libscale.so"} <= set(tx2.needed("app"))
    assert "libtorch_cuda.so" not in tx2.needed("app"), "debian-12 has a CPU build"
    assert "libcudart.so.11.0" in tx2.needed("libscale.so")
    cuobjdump = tx2.exported / "cuda/bin/cuobjdump"
    assert device_code(cuobjdump, tx2.folder / "libscale.so") == ({"62"}, set())
    assert "warning: undefined reference" not in tx2.said


def test_the_program_runs_under_emulation(tx2):
    done = run("ctest", "--test-dir", tx2.folder, "--verbose")
    assert done.ok, done.stdout
    lines = [line.partition(": ")[2] for line in done.stdout.splitlines() if line[:2] == "1:"]
    text = " ".join(" ".join(lines).split())
    assert "product 5 14 14 50 [ CPUFloatType{4} ]" in text
    assert "device code is linked: 0" in text


def test_a_board_whose_torch_is_not_at_hand(orin):
    """NVIDIA's torch for JetPack 6.2 has the new ABI and CUDA; the index's has neither."""
    assert {"libtorch_cuda.so", "libc10_cuda.so"} <= set(orin.needed("app"))
    assert "libcudart.so.12" in orin.needed("libscale.so")
    cuobjdump = orin.exported / "cuda/bin/cuobjdump"
    assert device_code(cuobjdump, orin.folder / "libscale.so") == ({"87"}, set())
    with_string = {name for name in orin.symbols("app") if "torchCheckFail" in name}
    assert any("__cxx11" in name for name in with_string), "left to the target, not to address 0"
    assert "runs another build of torch" in orin.said


def test_a_name_that_nobody_has_still_fails_without_torch(tx2, tmp_path):
    lines = ("cmake_minimum_required(VERSION 3.18)", "project(plain CXX)",
             "add_executable(plain plain.cpp)")  # fmt: skip
    (tmp_path / "CMakeLists.txt").write_text("\n".join(lines))
    (tmp_path / "plain.cpp").write_text("int missing();\nint main() { return missing(); }\n")
    words = ("cmake", "-G", "Ninja", "-S", tmp_path, "-B", tmp_path / "build")
    file = f"-DCMAKE_TOOLCHAIN_FILE={tx2.exported}/aarch64-linux-gnu.cmake"
    assert run(*words, file).ok
    built = run("cmake", "--build", tmp_path / "build")
    assert not built.ok
    assert "undefined reference to `missing()'" in built.stdout


def test_a_target_without_device_code_has_no_nvcc(tx2, tmp_path):
    exported = tmp_path / "cpu"
    invoke("toolchain", "--cpu-only", "--export", exported).good()
    words = ("cmake", "-G", "Ninja", "-S", PROJECTS / "cmake_app", "-B", tmp_path / "build")
    done = run(*words, f"-DCMAKE_TOOLCHAIN_FILE={exported}/aarch64-linux-gnu.cmake")
    assert not done.ok
    assert "cpu-debian-12-has-no-device-code" in done.stderr


def test_what_the_task_says(tx2, tmp_path):
    (row,) = invoke("toolchain", "--arch", "6.2", "--json").good().json["toolchains"]
    assert (row["target"], row["export"]) == ("sm62-debian-12", None)
    assert Path(row["compiler"]).is_file()
    assert str(row["sysroot"]) in invoke("toolchain", "--arch", "6.2").good().stdout
    both = invoke("toolchain", "--arch", "6.2,7.2", "--json").good().json["toolchains"]
    assert [one["target"] for one in both] == ["sm62.sm72-debian-12"]
    (tmp_path / "mine").touch()
    refused = invoke("toolchain", "--arch", "6.2", "--export", tmp_path)
    assert "was not exported by jetship" in refused.one_error(2)
    assert "--export writes one toolchain" in invoke(
        "toolchain", "--export", tx2.exported
    ).one_error(2)
    invoke("toolchain", "--arch", "6.2", "--copy").one_error(2)

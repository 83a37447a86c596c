"""The op pack in csrc/, built for a TX2, and looked at with independent tools."""

import re
import shlex
import sys
import sysconfig
from pathlib import Path

import pytest
from independent import Opened, device_code, elf, needed_libraries, needed_versions, record_of
from product import LABEL, Ended, invoke, names_in


def build(dist: Path) -> Ended:
    return invoke("build", "--arch", "6.2", "--dist", dist, "--json").good()


@pytest.fixture(scope="module")
def first(toolchain, tmp_path_factory) -> Ended:
    return build(tmp_path_factory.mktemp("first") / "dist")


@pytest.fixture(scope="module")
def wheel(first) -> Opened:
    (row,) = first.json["wheels"]
    return Opened(Path(row["wheel"]))


@pytest.fixture(scope="module")
def library_path(wheel, tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("library") / "_C.so"
    path.write_bytes(wheel.library)
    return path


@pytest.fixture(scope="module")
def commands(first) -> list[list[str]]:
    """The command lines of all compilers and linkers, by the log."""
    (row,) = first.json["wheels"]
    lines = [
        re.sub(r"^\[\d+/\d+\] ", "", line) for line in Path(row["log"]).read_text().splitlines()
    ]
    return [shlex.split(line) for line in lines if re.match(r"\S+/bin/\S+ -", line)]


def test_only_the_wheel_and_the_logs_are_left(wheel):
    assert names_in(wheel.path.parent) == sorted([wheel.path.name, "logs"])


def test_name_and_version_are_those_of_the_target(wheel):
    assert re.fullmatch(
        rf"jetops-[\d.]+\+{re.escape(LABEL)}\.sm62-cp311-cp311-linux_aarch64\.whl", wheel.path.name
    )
    assert f"-{wheel.metadata['Version']}-cp311" in wheel.path.name
    assert wheel.required == ["torch==2.7.1"]


def test_record_has_the_digests_of_all_files(wheel):
    expected = record_of(wheel.files)
    (itself,) = set(wheel.files) - set(expected)
    assert wheel.record == {**expected, itself: ("", "")}


def test_the_library_is_aarch64(wheel):
    opened = elf(wheel.library)
    assert (opened.get_machine_arch(), opened["e_type"]) == ("AArch64", "ET_DYN")


def test_no_symbol_version_is_newer_than_the_targets(wheel):
    found = needed_versions(wheel.library)
    newest = {"GLIBC": (2, 36), "GLIBCXX": (3, 4, 30), "CXXABI": (1, 3, 13)}
    numbered = [re.fullmatch(r"(GLIBC|GLIBCXX|CXXABI)_([\d.]+)", name) for name in found]
    assert numbered
    for match in filter(None, numbered):
        assert tuple(map(int, match[2].split("."))) <= newest[match[1]], match[0]


def test_the_library_needs_torchs_cuda_half_and_no_path(wheel):
    names = needed_libraries(wheel.library)
    assert {"libtorch_cuda.so", "libc10_cuda.so", "libcudart.so.11.0"} <= set(names)
    dynamic = elf(wheel.library).get_section_by_name(".dynamic")
    assert [
        tag for tag in dynamic.iter_tags() if tag.entry.d_tag in ("DT_RPATH", "DT_RUNPATH")
    ] == []


def test_device_code_is_for_the_tx2_alone(toolchain, library_path):
    assert device_code(toolchain.cuda_home / "bin/cuobjdump", library_path) == ({"62"}, set())


def test_the_pin_record_says_what_is_in_the_wheel(wheel):
    pin = wheel.pin
    assert (pin["target"], pin["machine"]) == ("sm62-debian-12", "aarch64")
    assert pin["torch"] == {
        "version": "2.7.1", "cuda": None, "cxx11_abi": True, "headers": "2.7.1+cpu"
    }  # fmt: skip
    assert pin["cuda"]["code"] == [{"arch": "6.2", "sass": True, "ptx": False}]
    assert pin["python"] == {"interpreter": "cp311", "abi": "cp311"}
    asked = [name for name in needed_versions(wheel.library) if re.fullmatch(r"GLIBC_[\d.]+", name)]
    newest = max(asked, key=lambda name: tuple(map(int, name[6:].split("."))))
    assert f"GLIBC_{pin['glibc_floor']}" == newest


def test_the_import_guard_is_in_the_wheel(wheel):
    assert "jetops/_jetship_guard.py" in wheel.files


def test_every_compiler_is_the_toolchains(toolchain, commands):
    assert len(commands) > 5
    assert any(words[0].endswith("/nvcc") for words in commands)
    for words in commands:
        program = Path(words[0])
        # nvcc is called by the name of a CUDA_HOME that the build has for itself.
        assert program.is_relative_to(toolchain.root) or program.parts[-4:] == (
            "cross", "cuda", "bin", "nvcc"
        )  # fmt: skip


def test_no_command_line_names_the_build_machines_own_headers_or_python(toolchain, commands):
    own = (sys.prefix, sys.base_prefix, sysconfig.get_path("include"), "/usr/", "/lib/", "/opt/")
    for words in commands:
        for word in words:
            path = re.sub(r"^-(I|L|isystem|B|Wl,-rpath,)", "", word)
            ours = path.startswith(str(toolchain.root.parents[1]))
            assert ours or not path.startswith(own), word


def test_every_include_folder_is_of_the_toolchain_or_the_project(toolchain, commands):
    cache = toolchain.root.parents[1]
    folders = {Path(word[2:]) for words in commands for word in words if word.startswith("-I")}
    strange = [folder for folder in folders if not folder.is_relative_to(cache)]
    # setuptools names the include folder of the isolated environment, which is new and empty.
    assert [folder.parent.name[:10] for folder in strange] in ([], ["build-env-"])


def test_no_path_of_the_build_machine_is_in_the_library(toolchain, wheel):
    assert str(toolchain.root.parents[1]).encode() not in wheel.library
    assert b"/tmp" not in wheel.library
    assert b"tmpxft" not in wheel.library


def test_the_same_sources_give_the_same_bytes(first, tmp_path):
    second = build(tmp_path / "dist")
    one, other = (Path(done.json["wheels"][0]["wheel"]) for done in (first, second))
    assert one.name == other.name
    assert one.read_bytes() == other.read_bytes()


def test_its_check_passes_and_is_the_report_of_the_build(first, wheel):
    (row,) = first.json["wheels"]
    (report,) = invoke("check", wheel.path, "--json").good().json["reports"]
    assert report.pop("place") == str(wheel.path)
    assert report == row["report"]
    assert report["sha256"] == row["sha256"]

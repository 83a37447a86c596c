"""The op pack, built for each kind of platform, and looked at with independent tools.

Each takes half a minute when its toolchain is in the cache, and some 2 GB of downloads when not.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from independent import Opened, device_code, elf, needed_libraries, needed_versions, record_of
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.model import Platform
from jetship.targets.resolve import resolve_id
from jetship.toolchain.prepare import prepare
from packaging.version import Version
from product import invoke, wheels_in

pytestmark = pytest.mark.long
CATALOG = Catalog.load()


@dataclass(frozen=True)
class Asked:
    """A target as people ask for it, and what has to come of that."""

    words: str
    target: str
    sass: str = ""
    nvcc: str = ""

    @property
    def platform(self) -> Platform:
        return resolve_id(CATALOG, self.target).platform


ASKED = [
    Asked("--board xavier --jetpack 5.1.2", "sm72-jetpack-5.1", "72", "11.2"),
    Asked("--board orin --jetpack 5.1.2", "sm87-jetpack-5.1", "87", "11.8"),
    Asked("--board orin --jetpack 6.2", "sm87-jetpack-6.2", "87", "12.4"),
    Asked("--board thor --jetpack 7.0", "sm110-jetpack-7.0", "110", "13.0"),
    Asked("--board orin --jetpack 7.2", "sm87-jetpack-7.2", "87", "13.0"),
    Asked("--board thor --jetpack 7.2", "sm110-jetpack-7.2", "110", "13.0"),
    Asked("--board v100 --platform server-cuda-11.8", "sm70-server-cuda-11.8", "70", "11.8"),
    Asked("--arch 9.0 --platform debian-13", "sm90-debian-13", "90", "13.0"),
    Asked("--arch 8.7 --platform debian-13", "sm87-debian-13", "87", "13.0"),
    Asked("--arch 8.0 --platform x86-64-cuda-12.4", "sm80-x86-64-cuda-12.4", "80", "12.4"),
    Asked("--cpu-only --jetpack 4.6", "cpu-jetpack-4.6"),
    Asked("--cpu-only --jetpack r32.5", "cpu-jetpack-4.4"),
]


@dataclass(frozen=True)
class Built:
    """What a build left, and the row of JSON that it printed."""

    asked: Asked
    row: dict
    said: str
    wheel: Opened
    library: Path

    @property
    def elf(self) -> ELFFile:
        return elf(self.wheel.library)


@pytest.fixture(scope="module", params=ASKED, ids=lambda asked: asked.target)
def built(request, tmp_path_factory) -> Built:
    asked = request.param
    folder = tmp_path_factory.mktemp(asked.target)
    words = (*asked.words.split(), "--dist", folder / "dist", "--json")
    done = invoke("build", *words).good()
    (row,) = done.json["wheels"]
    assert [str(path) for path in wheels_in(folder / "dist")] == [row["wheel"]]
    wheel = Opened(Path(row["wheel"]))
    library = folder / "library.so"
    library.write_bytes(wheel.library)
    return Built(asked, row, done.stderr, wheel, library)


def test_the_check_of_the_build_passes(built):
    assert (built.row["target"], built.row["outcome"]) == (built.asked.target, "pass")
    findings = built.row["report"]["findings"]
    assert {finding["outcome"] for finding in findings} == {"pass"}
    assert all(finding["accepted"] is None for finding in findings)


def test_its_symbols_were_found_and_how_near_is_said(built):
    symbols = [one for one in built.row["report"]["findings"] if one["rule"] == "symbols"]
    assert symbols
    assert {one["grade"] for one in symbols} == {built.asked.platform.evidence}


def test_a_check_of_its_own_says_the_same(built):
    (report,) = invoke("check", built.wheel.path, "--json").good().json["reports"]
    assert report == built.row["report"]
    named = invoke("check", built.wheel.path, "--target", built.asked.target, "--json").good()
    assert named.json["reports"] == [report]


def test_its_name_and_tags_are_the_platforms(built):
    python, machine = built.asked.platform.python, built.asked.platform.machine
    assert built.wheel.path.name.endswith(f"-{python.tag}-{python.abi}-linux_{machine}.whl")
    assert built.wheel.required == [built.asked.platform.torch.pinned]
    expected = record_of(built.wheel.files)
    assert {name: built.wheel.record[name] for name in expected} == expected


def test_it_is_for_the_targets_machine(built):
    machine = built.asked.platform.machine.upper()
    assert (built.elf["e_machine"], built.elf["e_type"]) == (f"EM_{machine}", "ET_DYN")


@pytest.mark.parametrize("family", ["GLIBC", "GLIBCXX", "CXXABI", "GCC"])
def test_no_symbol_is_newer_than_the_platform(built, family):
    newest = getattr(built.asked.platform.abi, family.lower())
    numbers = [
        name.removeprefix(f"{family}_")
        for name in needed_versions(built.wheel.library)
        if name.startswith(f"{family}_")
    ]
    assert numbers or family == "GCC"
    assert all(Version(number) <= Version(newest) for number in numbers), (numbers, newest)


def test_the_floor_in_its_pin_is_the_newest_glibc_symbol(built):
    numbers = [
        Version(name.removeprefix("GLIBC_"))
        for name in needed_versions(built.wheel.library)
        if name.startswith("GLIBC_")
    ]
    assert Version(built.wheel.pin["glibc_floor"]) == max(numbers)


def test_its_device_code_is_for_the_board_alone(built, toolchain):
    home = toolchain.cuda_home
    if built.asked.nvcc:
        target = resolve_id(CATALOG, built.asked.target)
        home = prepare(target, Store(default_root())).cuda_home
    wanted = {built.asked.sass} if built.asked.sass else set()
    assert device_code(home / "bin/cuobjdump", built.library) == (wanted, set())
    pinned = built.wheel.pin["cuda"]["code"]
    assert [(one["arch"].replace(".", ""), one["sass"], one["ptx"]) for one in pinned] == [
        (sass, True, False) for sass in wanted
    ]


def test_it_was_compiled_by_the_toolkit_of_the_plan(built):
    if built.asked.nvcc:
        assert f"nvcc {built.asked.nvcc}," in built.said
    else:
        assert "without CUDA" in built.said


def test_it_needs_the_cuda_of_the_platform_or_none(built):
    cuda = {name for name in needed_libraries(built.wheel.library) if "cud" in name}
    soname = built.asked.platform.cuda.runtime_soname
    if built.asked.sass:
        assert cuda <= {soname, "libc10_cuda.so", "libtorch_cuda.so"}
        assert "libc10_cuda.so" in cuda
    else:
        assert cuda == set()


def test_no_path_of_the_build_machine_is_in_it(built):
    assert str(default_root()).encode() not in built.wheel.library
    assert b"/tmp" not in built.wheel.library

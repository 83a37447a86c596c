import json
import os
import runpy

import pytest
from jetship.build import environment
from jetship.build.environment import (
    LEAKING_VARIABLES,
    CrossEnvironment,
    compose,
    create,
    max_jobs,
    torch_facts,
)
from jetship.errors import ConfigError


@pytest.fixture
def cross(toolchain, target, tmp_path) -> CrossEnvironment:
    return create(toolchain, target, tmp_path / "cross")


def test_every_variable_that_leads_back_to_this_machine_is_removed(cross):
    own = dict.fromkeys(LEAKING_VARIABLES, "/leak") | {"PATH": "/usr/bin", "HOME": "/home/me"}
    env = compose(own, cross, {})
    assert "/leak" not in env.values()
    assert env["HOME"] == "/home/me"
    assert not LEAKING_VARIABLES & (env.keys() - cross.variables.keys())


@pytest.mark.parametrize(
    "name",
    ["CPATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH", "LD_PRELOAD", "CFLAGS",
     "CXXFLAGS", "CPPFLAGS", "NVCC_PREPEND_FLAGS", "NVCC_APPEND_FLAGS", "NVCC_CCBIN", "PYTHONHOME",
     "PKG_CONFIG_PATH", "COMPILER_PATH", "GCC_EXEC_PREFIX", "LD_RUN_PATH", "CUDAHOSTCXX"],
)  # fmt: skip
def test_a_variable_of_this_machine_does_not_reach_the_compilers(cross, name):
    assert name not in compose({name: "/leak"}, cross, {})


def test_the_toolchain_comes_first_on_path_and_the_front_end_behind(cross, toolchain):
    env = compose({"PATH": "/usr/bin"}, cross, {"PATH": "/isolated/bin:/usr/bin"})
    words = env["PATH"].split(os.pathsep)
    assert words[:2] == [str(toolchain.bin), str(toolchain.cuda_home / "bin")]
    assert words[-2:] == ["/isolated/bin", "/usr/bin"]


def test_a_process_without_path_still_finds_the_systems_programs(cross, toolchain):
    words = compose({}, cross, {})["PATH"].split(os.pathsep)
    assert words[0] == str(toolchain.bin)
    assert words[-1] == os.defpath.split(os.pathsep)[-1]


def test_the_stand_in_comes_first_for_python_whatever_the_front_end_says(cross):
    env = compose({"PYTHONPATH": "/mine"}, cross, {"PYTHONPATH": "/theirs", "OTHER": "1"})
    assert env["PYTHONPATH"].split(os.pathsep) == [str(environment.STANDIN), str(cross.folder)]
    assert env["OTHER"] == "1"


def test_the_variables_lead_to_the_toolchain(cross, toolchain, target):
    variables = cross.variables
    assert variables["CC"] == f"{toolchain.bin}/aarch64-linux-gnu-gcc"
    assert variables["CXX"] == f"{toolchain.bin}/aarch64-linux-gnu-g++"
    assert variables["LDSHARED"] == f"{variables['CC']} -shared"
    assert variables["CUDA_HOME"] == str(toolchain.cuda_home)
    assert variables["TORCH_CUDA_ARCH_LIST"] == "6.2"
    assert variables["FORCE_CUDA"] == "1"
    assert variables["JETSHIP_TARGET"] == target.id
    assert variables["_PYTHON_HOST_PLATFORM"] == "linux-aarch64"
    assert f"-L{toolchain.stubs}" in variables["LDFLAGS"]


def test_all_archs_of_a_fat_wheel_are_asked_for(toolchain, fat_target, tmp_path):
    cross = create(toolchain, fat_target, tmp_path / "cross")
    assert cross.variables["TORCH_CUDA_ARCH_LIST"] == "6.2;7.2+PTX"
    facts = json.loads((cross.folder / "torch-facts.json").read_text())
    assert facts["code"] == [[6, 2], [7, 2]]


def test_pythons_settings_are_the_targets_led_into_the_sysroot(cross, toolchain):
    module = cross.folder / f"{environment.SYSCONFIG_MODULE}.py"
    values = runpy.run_path(str(module))["build_time_vars"]
    sysroot = toolchain.sysroot
    assert values["EXT_SUFFIX"] == ".cpython-311-aarch64.so"
    assert values["INCLUDEPY"] == f"{sysroot}/usr/include/python3.11"
    assert values["LIBDIR"] == f"{sysroot}/usr/lib"
    assert values["OPT"] == f"-I{sysroot}/usr/include -L=/usr/lib -I./usr/x"
    assert values["CFLAGS"].split() == ["-fwrapv", "-O2", "-ggdb-none"]
    assert values["CC"] == f"{toolchain.bin}/aarch64-linux-gnu-gcc"
    assert values["SIZEOF_LONG"] == 8


def test_a_sysroot_without_pythons_settings_is_told(toolchain, target, tmp_path):
    next(toolchain.sysroot.rglob("_sysconfigdata_*.py")).unlink()
    with pytest.raises(ConfigError, match=r"no sysconfig data of Python 3\.11") as caught:
        create(toolchain, target, tmp_path / "cross")
    assert "libpython3.11-dev" in caught.value.fix


def test_the_facts_are_the_target_torchs_own(toolchain, target):
    assert torch_facts(toolchain, target) == {
        "site_packages": str(toolchain.site_packages),
        "cuda": "11.8",
        "cxx11_abi": True,
        "code": [[6, 2]],
        "pybind11": {
            "compiler_type": "_gcc", "stdlib": "_libstdcpp", "build_abi": "_cxxabi1014"
        },
    }  # fmt: skip


def test_a_torch_without_pybind11_tags_gives_none(toolchain, target):
    (toolchain.torch / "lib/libtorch_python.so").write_bytes(b"\x7fELF")
    assert set(torch_facts(toolchain, target)["pybind11"].values()) == {None}


def test_a_torch_of_another_release_is_refused(toolchain, target):
    (toolchain.torch / "version.py").write_text("__version__ = '2.6.0+cpu'\ncuda = None\n")
    with pytest.raises(ConfigError, match=r"holds torch 2\.6\.0, and the platform says 2\.7\.1"):
        torch_facts(toolchain, target)


def test_the_local_label_of_a_torch_is_no_other_release(toolchain, target):
    (toolchain.torch / "version.py").write_text("__version__ = '2.7.1+cpu'\ncuda = '12.6'\n")
    assert torch_facts(toolchain, target)["cuda"] == "12.6"


@pytest.mark.parametrize(
    ("cores", "free_gib", "jobs"), [(8, 64, 8), (8, 7, 3), (8, 1, 1), (1, 64, 1)]
)
def test_a_compiler_job_needs_a_core_and_two_gib(monkeypatch, cores, free_gib, jobs):
    answers = {"SC_AVPHYS_PAGES": free_gib << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(environment.os, "sysconf", answers.__getitem__)
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert max_jobs() == jobs

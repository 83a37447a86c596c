import json
import os
import runpy
import sys

import pytest
from jetship import proc
from jetship.build import environment
from jetship.build.causes import Said, find_cause
from jetship.build.environment import (
    LEAKING_VARIABLES,
    CrossEnvironment,
    compose,
    create,
    max_jobs,
)
from jetship.targets.model import Target
from jetship.toolchain.layout import write_program
from jetship.toolchain.model import Toolchain


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
    assert words[:3] == [
        str(cross.folder / "bin"), str(toolchain.bin), str(cross.folder / "cuda/bin")
    ]  # fmt: skip
    assert words[-2:] == ["/isolated/bin", "/usr/bin"]


def test_a_process_without_path_still_finds_the_systems_programs(cross, toolchain):
    words = compose({}, cross, {})["PATH"].split(os.pathsep)
    assert words[1] == str(toolchain.bin)
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
    assert variables["CUDA_HOME"] == str(cross.folder / "cuda")
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


def settings_in_child(cross: CrossEnvironment, *names: str) -> list[object]:
    """Ask a Python that runs in the cross environment for its settings."""
    script = f"import json, sysconfig; print(json.dumps(sysconfig.get_config_vars(*{names!r})))"
    kept = ("_PYTHON_SYSCONFIGDATA_NAME", "_PYTHON_HOST_PLATFORM")
    env = {name: cross.variables[name] for name in kept} | {"PYTHONPATH": str(cross.folder)}
    done = proc.run([sys.executable, "-c", script], env={"PATH": os.defpath} | env)
    assert done.ok, done.stderr
    return json.loads(done.stdout)


def test_the_abi_of_wheels_stays_that_of_the_python_that_runs_setuptools(cross):
    suffix, soabi = settings_in_child(cross, "EXT_SUFFIX", "SOABI")
    assert suffix == ".cpython-311-aarch64.so"
    assert soabi == f"{sys.implementation.cache_tag}-aarch64-linux-gnu"


def test_a_python_of_which_only_the_names_are_known_gives_the_targets_suffix(
    jetpack_5, xavier, tmp_path
):
    cross = create(jetpack_5, xavier, tmp_path / "cross")
    names = ("EXT_SUFFIX", "SOABI", "INCLUDEPY", "CC", "VERSION")
    suffix, soabi, include, compiler, version = settings_in_child(cross, *names)
    assert suffix == ".cpython-38-aarch64-linux-gnu.so"
    assert soabi == f"{sys.implementation.cache_tag}-aarch64-linux-gnu"
    assert include == f"{jetpack_5.sysroot}/usr/include/python3.8"
    assert compiler == f"{jetpack_5.bin}/aarch64-linux-gnu-gcc"
    assert version == "3.8"


def test_headers_that_the_user_gave_are_named(jetpack_5, xavier, tmp_path):
    given = jetpack_5.root / "python/include/python3.8"
    given.mkdir(parents=True)
    cross = create(jetpack_5, xavier, tmp_path / "cross")
    assert settings_in_child(cross, "INCLUDEPY", "CONFINCLUDEPY") == [str(given)] * 2


def test_the_suffix_of_python_3_6_has_its_flag(catalog, jetpack_5, tmp_path):
    platform = catalog.platform("jetpack-4.6")
    (jetpack_5.torch / "version.py").write_text("__version__ = '1.10.0'\ncuda = None\n")
    toolchain = Toolchain(platform, jetpack_5.root, "")
    cross = create(toolchain, Target((), platform), tmp_path / "cross")
    assert settings_in_child(cross, "EXT_SUFFIX") == [".cpython-36m-aarch64-linux-gnu.so"]


def test_a_build_without_device_code_is_told_of_no_cuda(toolchain, debian_12, tmp_path):
    cross = create(toolchain, Target((), debian_12), tmp_path / "cross")
    assert cross.variables["FORCE_CUDA"] == "0"
    assert not {"CUDA_HOME", "TORCH_CUDA_ARCH_LIST"} & cross.variables.keys()
    facts = json.loads((cross.folder / "torch-facts.json").read_text())
    assert (facts["cuda"], facts["code"]) == (None, [])


def test_the_targets_own_cuda_runtime_is_found_before_any_stub(toolchain, target, tmp_path):
    tegra = toolchain.cuda_home / "targets/aarch64-linux/lib"
    tegra.mkdir(parents=True)
    flags = create(toolchain, target, tmp_path / "cross").variables["LDFLAGS"].split()
    folders = [flag for flag in flags if flag.startswith("-L")]
    lib64 = toolchain.cuda_home / "lib64"
    assert folders == [f"-L{tegra}", f"-L{lib64}", f"-L{toolchain.stubs}"]


@pytest.mark.parametrize(
    ("cores", "free_gib", "jobs"), [(8, 64, 8), (8, 7, 3), (8, 1, 1), (1, 64, 1)]
)
def test_a_compiler_job_needs_a_core_and_two_gib(monkeypatch, cores, free_gib, jobs):
    monkeypatch.setattr(environment, "_available_bytes", lambda: free_gib << 30)
    monkeypatch.setattr(environment.os, "sched_getaffinity", lambda _: set(range(cores)))
    assert max_jobs() == jobs


def test_memory_that_the_kernel_can_give_up_counts_as_free(monkeypatch, tmp_path):
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 9000000 kB\nMemFree: 1000 kB\nMemAvailable:    8000000 kB\n")
    monkeypatch.setattr(environment, "Path", lambda _: told)
    assert environment._available_bytes() == 8000000 * 1024


def test_a_kernel_that_does_not_say_is_asked_for_free_pages(monkeypatch, tmp_path):
    told = tmp_path / "meminfo"
    told.write_text("MemTotal: 9000000 kB\n")
    monkeypatch.setattr(environment, "Path", lambda _: told)
    answers = {"SC_AVPHYS_PAGES": 3, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(environment.os, "sysconf", answers.__getitem__)
    assert environment._available_bytes() == 3 * 4096


def ask_gpu(cross: CrossEnvironment, *words: str) -> proc.Finished:
    """Call nvidia-smi as a setup.py does."""
    return proc.run(["nvidia-smi", *words], env=compose({"PATH": "/usr/bin:/bin"}, cross, {}))


def test_whoever_asks_for_the_compute_capability_means_the_targets(toolchain, fat_target, tmp_path):
    cross = create(toolchain, fat_target, tmp_path / "cross")
    done = ask_gpu(cross, "--query-gpu=compute_cap", "--format=csv,noheader")
    assert (done.status, done.stdout, done.stderr) == (0, "6.2\n7.2\n", "")
    done = ask_gpu(cross, "--query-gpu=compute_cap", "--format=csv")
    assert done.stdout == "compute_cap\n6.2\n7.2\n"
    done = ask_gpu(cross, "-i", "0", "--format=csv,noheader", "--query-gpu=compute_cap")
    assert done.stdout == "6.2\n7.2\n"


@pytest.mark.parametrize(
    ("name", "own"),
    [("gcc", "gcc"), ("cc", "gcc"), ("g++", "g++"), ("c++", "g++"), ("cpp", "cpp")],
)
def test_a_compiler_that_is_called_by_its_plain_name_is_the_targets(cross, toolchain, name, own):
    compiler = toolchain.bin / f"aarch64-linux-gnu-{own}"
    write_program(compiler, '#!/bin/sh\nprintf "%s|" "$0" "$@"\n')
    done = proc.run([name, "-c", "a b.c", "*"], env=compose({"PATH": "/usr/bin:/bin"}, cross, {}))
    assert done.stdout == f"{compiler}|-c|a b.c|*|", done.stderr


@pytest.mark.parametrize("name", ["as", "ld", "gcc-12", "clang"])
def test_other_programs_of_this_machine_are_left_alone(cross, name):
    assert not (cross.folder / "bin" / name).exists()


@pytest.mark.parametrize(
    "words", [(), ("-L",), ("--query-gpu=name",), ("--query-gpu=name,compute_cap",)]
)
def test_nothing_else_is_known_of_a_gpu_that_is_not_here(cross, words):
    done = ask_gpu(cross, *words)
    assert (done.status, done.stdout) == (9, "")
    assert (
        done.stderr == "nvidia-smi: the GPU of sm62-debian-12 is not here to be asked (jetship)\n"
    )
    assert "asks nvidia-smi" in find_cause(Said(done.stderr, "1")).what


def test_a_target_without_device_code_has_no_gpu(toolchain, debian_12, tmp_path):
    cross = create(toolchain, Target((), debian_12), tmp_path / "cross")
    assert ask_gpu(cross, "--query-gpu=compute_cap", "--format=csv,noheader").status == 9


def call_nvcc(cross: CrossEnvironment, *words: str, **variables: str) -> list[str]:
    env = compose({"PATH": "/usr/bin:/bin"}, cross, {}) | variables
    done = proc.run(["nvcc", *words], env=env)
    assert done.ok, done.stderr
    return done.stdout.splitlines()


def test_nvcc_is_the_toolchains_own_and_gets_its_words_as_they_are(cross, toolchain):
    words = ["-c", "a b.cu", '-DX="y z"', "", "*"]
    assert call_nvcc(cross, *words) == [f"{toolchain.cuda_home}/bin/nvcc", *words]


@pytest.mark.parametrize(
    ("words", "become"),
    [
        (["--threads", "4"], ["--threads", "1"]),
        (["-t", "8"], ["-t", "1"]),
        (["--threads=4"], ["--threads=1"]),
        (["-t=4"], ["-t=1"]),
        (["-O3", "4", "-t1.cu"], ["-O3", "4", "-t1.cu"]),
    ],
)
def test_nvcc_runs_one_compiler_however_many_threads_a_project_asks_for(cross, words, become):
    assert call_nvcc(cross, *words, "x y.cu")[1:] == [*become, "x y.cu"]


def test_nvcc_goes_through_the_compiler_cache_and_its_own_halves_do_not(
    toolchain, target, tmp_path
):
    users = tmp_path / "elsewhere/toolkit"
    users.parent.mkdir()
    toolchain.cuda_home.rename(users)
    root = tmp_path / "trees/toolchain"
    root.parent.mkdir()
    toolchain.root.rename(root)
    made = Toolchain(toolchain.platform, root, "11.8")
    made.cuda_home.symlink_to(users)
    cross = create(made, target, tmp_path / "cross")
    cache = tmp_path / "my cache"
    cache.write_text('#!/bin/sh\necho "$CCACHE_COMPILERCHECK ${JETSHIP_CCACHE:-none}"\nexec "$@"\n')
    cache.chmod(0o755)
    words = call_nvcc(cross, "-c", "x.cu", JETSHIP_CCACHE=str(cache))
    assert words[0] == "content none", "a toolkit that is no part of jetship's is read"
    assert words[1].endswith("/toolchain/cuda/bin/nvcc")
    assert words[2:] == ["-c", "x.cu"]


def test_a_toolkit_of_jetships_own_is_known_by_its_name(toolchain, target, tmp_path):
    part = toolchain.root.with_name("cuda-11.8-0123")
    toolchain.cuda_home.rename(part)
    toolchain.cuda_home.symlink_to(part)
    cross = create(toolchain, target, tmp_path / "cross")
    assert "string:cuda-11.8-0123" in (cross.folder / "cuda/bin/nvcc").read_text()


def test_the_builds_cuda_home_has_all_that_the_toolchains_has(cross, toolchain):
    view = cross.folder / "cuda"
    assert {path.name for path in view.iterdir()} == {"bin", "include"}
    assert (view / "include").resolve() == toolchain.cuda_home / "include"
    assert (view / "bin/ptxas").resolve() == toolchain.cuda_home / "bin/ptxas"


def test_what_deploy_yaml_adds_comes_behind_the_targets_flags(toolchain, target, tmp_path):
    extra = {"LDFLAGS": "-lm", "OPS_FLAVOUR": "small", "MAX_JOBS": "3"}
    cross = create(toolchain, target, tmp_path / "cross", jobs=2, extra=extra)
    assert cross.variables["LDFLAGS"].endswith(f"-L{toolchain.stubs} -lm")
    assert cross.variables["OPS_FLAVOUR"] == "small"
    assert cross.variables["MAX_JOBS"] == "3"
    plain = create(toolchain, target, tmp_path / "plain", jobs=2)
    assert plain.variables["MAX_JOBS"] == "2"


def host_config(toolchain, limit: int) -> None:
    folder = toolchain.cuda_home / "include/crt"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "math.h").write_text("math")
    (folder.parent / "cuda.h").write_text("cuda")
    (folder / "host_config.h").write_text(f"#if __GNUC__ > {limit}\n#error no\n#endif\n")


def test_a_toolkit_that_knows_only_older_gccs_is_let_to_try(toolchain, target, tmp_path, capsys):
    host_config(toolchain, 8)
    cross = create(toolchain, target, tmp_path / "cross")
    include = tmp_path / "cross/cuda/include"
    assert cross.variables["CUDA_HOME"] == str(tmp_path / "cross/cuda")
    assert "__GNUC__ > 11\n" in (include / "crt/host_config.h").read_text()
    assert ((include / "crt/math.h").read_text(), (include / "cuda.h").read_text()) == (
        "math", "cuda"
    )  # fmt: skip
    assert "__GNUC__ > 8" in (toolchain.cuda_home / "include/crt/host_config.h").read_text()
    assert "takes GCC up to 8, and debian-12 is built with GCC 11" in capsys.readouterr().err


def test_a_toolkit_that_knows_the_platforms_gcc_is_taken_as_it_is(
    toolchain, target, tmp_path, capsys
):
    host_config(toolchain, 11)
    create(toolchain, target, tmp_path / "cross")
    assert (tmp_path / "cross/cuda/include").is_symlink()
    assert "GCC" not in capsys.readouterr().err

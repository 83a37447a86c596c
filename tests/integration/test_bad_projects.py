"""Projects that cannot be cross-built as they are: one error each, with the cause and a way out."""

import sys
from pathlib import Path

import pytest
from jetship import proc
from product import INVOKE, PROJECTS, ROOT, Ended, copy_of, environment, invoke, names_in, wheels_in

DEPLOY = """\
version: 1
project: {project}
targets: [{{arch: 6.2}}]
image: {{repository: acme/ops, smoke: ["true"]}}
build: {build}
"""
LIMIT_BYTES = 1_200_000_000


@pytest.fixture
def fail(cache, dist):
    """Build a project that fails; returns the error, having looked at what is left."""

    def fail(project: Path, **variables: str) -> str:
        words = ("--arch", "6.2", "--project", project, "--dist", dist)
        done = invoke("build", *words, JETSHIP_CACHE=str(cache), **variables)
        return looked_at(done, project, cache, dist)

    return fail


def looked_at(done: Ended, project: Path, cache: Path, dist: Path) -> str:
    error = done.one_error(6)
    log = dist / "logs" / f"{project.name}-sm62-debian-12.log"
    assert f"the whole log is {log}" in error
    assert log.read_text().strip()
    assert names_in(dist) == ["logs"]
    assert names_in(cache / "tmp") == []
    return error


def test_a_setup_py_that_needs_the_network(fail):
    error = fail(PROJECTS / "needs_network")
    assert "asked for something on the network" in error
    assert "urlopen error" in error
    assert "before_build" in error


def test_a_setup_py_that_asks_nvidia_smi_for_the_machines_gpu(fail):
    error = fail(PROJECTS / "asks_gpu", ASK_GPU_FOR="name")
    assert "the project asks nvidia-smi of this machine's GPU" in error
    assert "TORCH_CUDA_ARCH_LIST" in error


def test_a_setup_py_that_asks_nvidia_smi_for_the_compute_capability(toolchain, dist):
    words = ("--project", PROJECTS / "asks_gpu", "--dist", dist, "--rebuild")
    invoke("build", "--arch", "6.2", *words).good()
    (wheel,) = wheels_in(dist)
    unpacked = proc.run([sys.executable, "-m", "zipfile", "-e", wheel, dist / "unpacked"])
    assert unpacked.ok, unpacked.stderr
    (library,) = (dist / "unpacked").glob("*.so")
    assert b"built for GPU 62\0" in library.read_bytes()


@pytest.fixture
def prebuilt(tmp_path):
    """A project with an object and a library of this machine's own compiler."""
    project = copy_of("prebuilt_x86", tmp_path)
    source = tmp_path / "prebuilt.c"
    source.write_text("int prebuilt(void) { return 1; }\n")
    for words in (("-c", "-o", "prebuilt.o"), ("-shared", "-o", "libprebuilt.so")):
        done = proc.run(["gcc", "-fPIC", source, *words], cwd=project)
        assert done.ok, done.stderr
    return project


@pytest.mark.parametrize(
    ("kind", "file"), [("object", "prebuilt.o"), ("library", "./libprebuilt.so")]
)
def test_a_project_with_a_prebuilt_binary_of_another_machine(fail, prebuilt, kind, file):
    error = fail(prebuilt, PREBUILT_IS=kind)
    assert f"the linker was given {file}, which is for another machine than the target" in error


def test_a_project_that_builds_with_another_torch(cache, tmp_path, dist):
    project = copy_of("c_extension", tmp_path)
    (project / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools", "torch==1.13.*"]\n'
    )
    words = ("--arch", "6.2", "--project", project, "--dist", dist)
    error = invoke("build", *words, JETSHIP_CACHE=str(cache)).one_error(6)
    assert "the project builds with torch==1.13.*, and the target has torch 2.7.1" in error
    assert wheels_in(dist) == []


def test_a_build_that_hangs_is_ended_in_time(cache, tmp_path, dist):
    project = copy_of("hangs", tmp_path)
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(DEPLOY.format(project="hangs", build="{time_limit_minutes: 0.1}"))
    done = invoke("build", "--deploy", deploy, "--dist", dist, JETSHIP_CACHE=str(cache))
    error = looked_at(done, project, cache, dist)
    assert "the project did not build within 0.1 minutes" in error
    assert "waiting for a licence server" in error
    assert "time_limit_minutes" in error


def test_a_build_that_runs_out_of_memory(cache, dist):
    project = PROJECTS / "hungry"
    words = ("build", "--arch", "6.2", "--project", project, "--dist", dist)
    env = environment(JETSHIP_CACHE=str(cache), MAX_JOBS="2")
    done = proc.run(["prlimit", f"--as={LIMIT_BYTES}", *INVOKE, *words], cwd=ROOT, env=env)
    error = looked_at(Ended(done.status, done.stdout, done.stderr), project, cache, dist)
    assert "the build ran out of memory" in error
    assert "with MAX_JOBS=2" in error
    assert "set MAX_JOBS to less than 2" in error


def test_a_build_setting_that_would_lead_away_from_the_target(tmp_path, dist):
    copy_of("hangs", tmp_path)
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(DEPLOY.format(project="hangs", build="{env: {CC: gcc}}"))
    done = invoke("build", "--deploy", deploy, "--dist", dist)
    assert done.status == 2
    assert "CC cannot be set here" in done.stderr
    assert f"{deploy}:5:" in done.stderr
    assert "Traceback" not in done.stderr
    assert names_in(dist) == []


def test_a_command_before_the_build_that_fails(cache, tmp_path, dist):
    project = copy_of("c_extension", tmp_path)
    deploy = tmp_path / "deploy.yaml"
    build = "{before_build: [[python3, -c, \"raise SystemExit('error: no grammar')\"]]}"
    deploy.write_text(DEPLOY.format(project="c_extension", build=build))
    done = invoke("build", "--deploy", deploy, "--dist", dist, JETSHIP_CACHE=str(cache))
    error = looked_at(done, project, cache, dist)
    assert "of before_build failed with exit status 1" in error
    assert "error: no grammar" in error

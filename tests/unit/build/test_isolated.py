import json
import sys

import pytest
from jetship.build import isolated
from jetship.build.environment import create
from jetship.build.isolated import Limits, Seen, build_failed, build_wheel, complaints
from jetship.errors import BuildError

# What setuptools, ninja and the compilers print, shortened in the middle.
COMPILER_ERROR = """\
running build_ext
building 'ops._C' extension
[1/2] /tool/bin/aarch64-linux-gnu-g++ -MMD -MF x.d -Wno-error -Werror=format-security -c op.cpp
FAILED: [code=1] /tmp/build/op.o
/tool/bin/aarch64-linux-gnu-g++ -Werror -c /src/op.cpp -o op.o
/src/op.cpp: In function 'int f()':
/src/op.cpp:3:12: error: 'missing' was not declared in this scope
    3 |     return missing;
      |            ^~~~~~~
ninja: build stopped: subcommand failed.
Traceback (most recent call last):
  File "/env/lib/setuptools/build_meta.py", line 1, in build_wheel
    run()
RuntimeError: Error compiling objects for extension
""".splitlines()
NVCC_ERRORS = {
    "nvcc fatal   : Unsupported gpu architecture 'compute_99'": "nvcc",
    "ptxas fatal   : Unresolved extern function 'f'": "ptxas",
    'op.cu(7): error: identifier "missing" is undefined': "cudafe",
    "op.cpp:1:10: fatal error: missing.h: No such file or directory": "cpp",
    "op.o: in function `f': undefined reference to `g'": "ld",
    "/tool/bin/../aarch64-linux-gnu/bin/ld: cannot find -lmissing: No such file": "ld",
}
TRACEBACK = """\
Traceback (most recent call last):
  File "/env/lib/setuptools/build_meta.py", line 1, in build_wheel
    run()
  File "<string>", line 3, in <module>
ValueError: this project wants CUDA_FLAVOUR to be set
""".splitlines()


def test_the_compilers_first_error_is_shown_and_not_the_traceback():
    shown = complaints(COMPILER_ERROR)
    assert shown[:2] == COMPILER_ERROR[5:7]
    assert not any("Traceback" in line or "setuptools" in line for line in shown)
    assert not any("-Werror" in line for line in shown)


@pytest.mark.parametrize("line", NVCC_ERRORS)
def test_the_words_of_every_compiler_are_known(line):
    shown = complaints(["building 'ops'", "compiling", line, "more", *TRACEBACK])
    assert shown == ["compiling", line, "more"]


def test_where_no_compiler_complains_the_projects_own_words_are_shown():
    shown = complaints(["running bdist_wheel", *TRACEBACK])
    assert shown[-1] == "ValueError: this project wants CUDA_FLAVOUR to be set"


def test_a_log_without_a_complaint_shows_its_end():
    lines = [f"line {number}" for number in range(100)]
    assert complaints(lines)[-1] == "line 99"
    assert len(complaints(lines)) <= isolated.SHOWN_LINES
    assert complaints([]) == []


def test_long_lines_and_long_logs_are_cut():
    shown = complaints([f"op.cpp:1: error: {'x' * 1000}", *["more"] * 1000])
    assert len(shown[0]) < 500
    assert shown[0].endswith(" ...")
    assert len(shown) <= isolated.SHOWN_LINES + 1


def test_the_error_holds_the_compilers_words_and_the_log(tmp_path):
    log = tmp_path / "ops.log"
    log.write_bytes("\n".join(COMPILER_ERROR).encode() + b"\xff")
    error = build_failed(Seen(log, tmp_path / "copy", tmp_path / "mine"))
    assert isinstance(error, BuildError)
    assert "'missing' was not declared in this scope" in error.why
    assert str(log) in error.fix


class FakeEnv:
    """An environment that is this Python; remembers what was to be installed in it."""

    python_executable = sys.executable

    def __init__(self) -> None:
        self.installed, self.constraints = [], []

    def make_extra_environ(self):
        return {"PATH": "/isolated/bin"}

    def build_env(self, _store, requirements, constraints, _log):
        self.installed.append(sorted(requirements))
        self.constraints.append(tuple(constraints))
        return self


# A backend of a few lines, in the project itself: says what it saw, or fails as told.
BACKEND = """\
import os, sys, zipfile, json

def get_requires_for_build_wheel(config_settings=None):
    return ["torch>=2", "wheel"]

def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    print("building")
    if os.path.exists("fail"):
        print(open("fail").read(), flush=True)
        raise RuntimeError("it failed")
    names = ("JETSHIP_TARGET", "CC", "PYTHONPATH", "PATH", "CPATH")
    json.dump({name: os.environ.get(name) for name in names}, open("seen.json", "w"))
    with zipfile.ZipFile(os.path.join(wheel_directory, "ops-1-py3-none-any.whl"), "w"):
        pass
    return "ops-1-py3-none-any.whl"
"""
PYPROJECT = """\
[build-system]
requires = ["setuptools", "Torch>=2.0"]
build-backend = "own"
backend-path = ["."]
"""


@pytest.fixture
def env(monkeypatch):
    """Replace the environment with the build requirements; nothing is installed."""
    made = FakeEnv()
    monkeypatch.setattr(isolated, "build_env", made.build_env)
    monkeypatch.setenv("CPATH", "/leak")
    return made


@pytest.fixture
def build(toolchain, target, tmp_path, write, store, env):  # noqa: PLR0917
    cross = create(toolchain, target, tmp_path / "cross")
    # The settings of the target's Python are for the real thing; here this Python runs itself.
    variables = {key: value for key, value in cross.variables.items() if key[0] != "_"}
    cross = type(cross)(cross.folder, variables)
    out, log = tmp_path / "out", tmp_path / "log"

    def build(files: dict[str, str] | None = None, **limits):
        project = {"pyproject.toml": PYPROJECT, "own.py": BACKEND}
        sources = write(tmp_path / "src", project | (files or {}))
        held = Limits(target.platform, **limits)
        return build_wheel(sources, cross, out, log, store=store, limits=held)

    return build


def test_a_wheel_is_built_in_the_cross_environment(build, env, tmp_path, toolchain, target):
    wheel = build()
    assert wheel == tmp_path / "out/ops-1-py3-none-any.whl"
    seen = json.loads((tmp_path / "src/seen.json").read_text())
    assert seen["JETSHIP_TARGET"] == target.id
    assert seen["CC"] == f"{toolchain.bin}/aarch64-linux-gnu-gcc"
    assert "standin" in seen["PYTHONPATH"]
    assert seen["PATH"].split(":")[1] == str(toolchain.bin)
    assert "/isolated/bin" in seen["PATH"].split(":")
    assert seen["CPATH"] is None
    assert "building" in (tmp_path / "log").read_text()


def test_torch_is_never_installed(build, env):
    build()
    assert env.installed == [["setuptools"], ["setuptools", "wheel"]]


def test_a_project_that_builds_with_another_torch_is_told(build, env):
    other = PYPROJECT.replace("Torch>=2.0", "torch<2")
    with pytest.raises(BuildError, match=r"builds with torch<2, and the target has torch 2\.7\.1"):
        build({"pyproject.toml": other})
    assert env.installed == []


def test_requirements_that_only_the_hook_asks_for_count_as_well(build, env):
    with pytest.raises(BuildError, match=r"builds with torch==1\.\*"):
        build({"own.py": BACKEND.replace("torch>=2", "torch==1.*")})
    assert env.installed == [["setuptools"]]


def test_one_environment_does_where_the_hook_asks_for_nothing_more(build, env):
    build({"own.py": BACKEND.replace('"torch>=2", "wheel"', '"setuptools"')})
    assert env.installed == [["setuptools"]]


def test_a_build_that_takes_too_long_is_stopped_and_says_so(build, tmp_path):
    slow = BACKEND.replace('print("building")', 'print("fetching", flush=True); time.sleep(60)')
    with pytest.raises(BuildError, match=r"did not build within 0\.05 minutes") as caught:
        build({"own.py": "import time\n" + slow}, minutes=0.05)
    assert "fetching" in caught.value.why
    assert "time_limit_minutes" in caught.value.fix
    assert str(tmp_path / "log") in caught.value.fix


def test_a_known_cause_is_the_error_and_says_what_to_do(build):
    said = "aarch64-linux-gnu-g++-11: fatal error: Killed signal terminated program cc1plus\n"
    with pytest.raises(BuildError, match="out of memory in cc1plus, with MAX_JOBS=1") as caught:
        build({"fail": said})
    assert "Killed signal" in caught.value.why


def test_what_the_targets_torch_needs_of_its_environment_is_there(build, env):
    build(requirements=("typing-extensions",), constraints=("setuptools<70",))
    assert env.installed[-1] == ["setuptools", "typing-extensions", "wheel"]
    assert env.constraints == [("setuptools<70",)] * 2


def test_a_failed_build_shows_the_compilers_words(build, tmp_path):
    with pytest.raises(BuildError, match="the project did not build") as caught:
        build({"fail": "op.cpp:1: error: no\n"})
    assert "op.cpp:1: error: no" in caught.value.why
    assert str(tmp_path / "log") in caught.value.fix


def test_a_project_with_an_impossible_build_system_is_told(build):
    with pytest.raises(BuildError, match="the project cannot be built") as caught:
        build({"pyproject.toml": '[build-system]\nbuild-backend = "x"\n'})
    assert "requires" in caught.value.why


REAL = {"pyproject.toml": '[build-system]\nrequires = ["setuptools"]\n'}


@pytest.mark.parametrize(
    ("setup", "what", "why"),
    [
        ("raise SystemExit(0)", "ended, with success, and made no wheel", "it said nothing"),
        ("print('no CUDA', flush=True); import os; os._exit(0)", "made no wheel", "no CUDA"),
        ("import os; os._exit(3)", "did not build", "without a word, with exit status 3"),
        ("import os; os.kill(os.getpid(), 11)", "SIGSEGV ended", "without a word"),
        ("import os; os.kill(os.getpid(), 9)", "memory ran out, with MAX_JOBS=1", "without a word"),
        ("import torch\ntorch.zeros(3)", "jetship cannot answer", "setup.py, line 2"),
    ],
)
def test_setuptools_and_a_setup_py_that_ends_in_a_way_of_its_own(build, tmp_path, setup, what, why):
    with pytest.raises(BuildError, match=what) as caught:
        build(REAL | {"setup.py": setup})
    assert why in caught.value.why
    assert "Traceback" not in caught.value.why
    log = tmp_path / "log"
    assert (f"the whole log is {log}" in caught.value.fix) == bool(log.read_text())


def test_of_a_traceback_the_projects_own_frames_are_shown_alone(build):
    setup = (
        "from setuptools import setup\ndef version():\n    return '1.0-foo_bar+zz'\n"
        "class Broken(dict):\n    def items(self):\n        raise OSError('no grammar')\n"
        "setup(name='ops', version='1', py_modules=[], options=Broken(a={}))\n"
    )
    with pytest.raises(BuildError, match="did not build") as caught:
        build(REAL | {"setup.py": setup})
    assert 'File "setup.py", line 7' in caught.value.why
    assert 'File "setup.py", line 6, in items' in caught.value.why
    assert caught.value.why.endswith("OSError: no grammar")
    assert "-packages/" not in caught.value.why


def test_a_version_that_is_none_is_said_in_one_line(build):
    setup = "from setuptools import setup\nsetup(name='o', version='1-a_b+zz', py_modules=[])\n"
    with pytest.raises(BuildError, match=r"version '1-a_b\+zz' is not a version") as caught:
        build(REAL | {"setup.py": setup})
    assert "\n" not in caught.value.why


PASSING_ON = {
    "pyproject.toml": PYPROJECT,
    "own.py": "from setuptools.build_meta import *\nprint('by way of our own', flush=True)\n",
    "setup.py": "from setuptools import setup\nsetup(name='ops', version='3', py_modules=[])\n",
}


def test_a_backend_of_the_projects_own_may_pass_on_to_setuptools(build, tmp_path):
    assert build(PASSING_ON).name == "ops-3-py3-none-any.whl"
    assert "by way of our own" in (tmp_path / "log").read_text()

import dataclasses
import json
import os
import re
import shlex
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from jetship import console, pipeline, proc
from jetship import doctor as checks
from jetship.check.findings import Finding, Report
from jetship.errors import BuildError, CheckError, ToolMissingError
from jetship.tasks import buildplan
from jetship.tasks.main import namespace
from jetship.toolchain import prepare as preparing
from jetship.toolchain import sources
from jetship.toolchain.lock import Lock, Locked, read_lock
from jetship.toolchain.ownparts import OwnParts
from rich.console import Console

ROOT = Path(__file__).parents[3]
TASKS = [
    "bench",
    "build",
    "check",
    "deploy",
    "image",
    "probe",
    "rollback",
    "smoke",
    "status",
    "matrix",
    "toolchain",
    "targets",
    "doctor",
    "pins",
    "schema",
    "k8s",
    "cache",
]


@pytest.fixture
def project(tmp_path, monkeypatch) -> Path:
    """A project in the current folder, where there is no deploy.yaml."""
    (tmp_path / "setup.py").touch()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def report(target: str, outcome: str) -> Report:
    finding = Finding("machine", outcome, "ops.whl", "because", fix="mend it")
    return Report("ops.whl", "0" * 64, target, (finding,))


def listed(out: str) -> list[str]:
    """Return the names in a list of tasks, whose help may go on in the next lines."""
    return [line.split()[0] for line in out.splitlines() if re.match(r"  \S", line)]


def test_the_namespace_has_every_task_with_help(call):
    code, out, _ = call("--list")
    assert code == 0
    assert listed(out) == sorted(TASKS)


def test_the_help_of_a_task_says_what_its_options_mean_however_often_it_is_shown(call):
    for _ in range(2):
        code, out, _err = call("bench", "--help")
        assert code == 0
        assert "time a cross build against the emulated build" in out


def test_a_dry_build_prints_the_plan_and_builds_nothing(call, project, monkeypatch):
    monkeypatch.setattr(pipeline, "produce", lambda *_: pytest.fail("it builds"))
    code, out, _ = call("build", "--arch", "6.2,7.2+PTX", "--dry")
    assert code == 0
    lines = [line for line in out.splitlines() if not line.startswith(" ")]
    assert [line.partition(":")[0] for line in lines] == ["sm62-debian-12", "sm72ptx-debian-12"]
    assert "TORCH_CUDA_ARCH_LIST=7.2+PTX" in lines[1]
    assert "toolchain will be downloaded" in lines[0]
    code, out, _ = call("build", "--arch", "6.2,7.2", "--fat", "--dry", "--json")
    (row,) = json.loads(out)["plan"]
    assert row["target"] == "sm62.sm72-debian-12"
    assert row["arch_list"] == "6.2;7.2"
    assert row["toolchain_ready"] is False


@pytest.fixture
def cached(monkeypatch):
    """Say which parts are in the cache, and which of CUDA's math libraries a project includes."""

    def cached(*names: str, includes=(), downloaded=()):
        for module in (buildplan, preparing):
            monkeypatch.setattr(module, "has_part", lambda part, _store: part.name in names)
        missing = lambda part, _store: 0 if part.name in downloaded else 623_000_000  # noqa: E731
        monkeypatch.setattr(buildplan, "missing_bytes", missing)
        monkeypatch.setattr(buildplan, "prepare", lambda *_: "toolchain")
        needed = lambda _project, _toolchain, offered: [  # noqa: E731
            part for part in offered if part.name in includes
        ]
        monkeypatch.setattr(buildplan, "needed_math", needed)

    return cached


READY = ("gcc-11", "sysroot-bookworm", "cuda-11.8", "torch-2.7.1-cp311")
DRY = ("build", "--arch", "6.2", "--dry")


def below(out: str) -> dict[str, str]:
    return dict(line.strip().split(": ", 1) for line in out.splitlines() if line[0] == " ")


def needs(out: str) -> dict[str, str]:
    (row,) = json.loads(out)["plan"]
    return {need["part"]: need["state"] for need in row["needs"]}


def test_a_plan_says_what_is_in_the_cache_and_what_would_be_fetched(call, project, cached):
    cached("gcc-11")
    found = below(call(*DRY)[1])
    assert found["in the cache"].startswith("GCC 11")
    assert re.search(r"CUDA 11\.8[^;]* \(\d+ MB\)", found["to be fetched"])
    assert "torch 2.7.1" in found["to be fetched"]
    maybe = found["to be fetched if the project includes them"]
    assert "cuBLAS, cuSPARSE and cuSOLVER for CUDA 11.8 (623 MB)" in maybe
    assert needs(call(*DRY, "--json")[1]) == {
        "gcc-11": "cached", "sysroot-bookworm": "to fetch", "cuda-11.8": "to fetch",
        "torch-2.7.1-cp311": "to fetch", "cuda-math-11.8": "to fetch if included",
        "cuda-curand-11.8": "to fetch if included", "cuda-cufft-11.8": "to fetch if included",
    }  # fmt: skip


def test_what_the_cache_has_is_not_to_be_downloaded_again(catalog, store):
    part = catalog.part("cuda-math-11.8")
    first, *others = read_lock(part.name).sources["wheels/aarch64/cp311"]
    assert buildplan.missing_bytes(part, store) == sum(item.size for item in (first, *others))
    blob = store.blob(first.sha256, first.file)
    blob.parent.mkdir(parents=True)
    blob.touch()
    assert buildplan.missing_bytes(part, store) == sum(item.size for item in others)


def test_what_is_downloaded_already_is_not_to_be_fetched(call, project, cached):
    cached("gcc-11", "sysroot-bookworm", downloaded=(*READY, "cuda-math-11.8"))
    out = call(*DRY)[1]
    assert "(toolchain will be unpacked)" in out.splitlines()[0]
    found = below(out)
    assert "to be fetched" not in found
    assert found["downloaded, to be unpacked"].startswith("CUDA 11.8")
    maybe = found["to be fetched if the project includes them"]
    assert "cuSOLVER for CUDA 11.8 (downloaded already)" in maybe
    assert "cuRAND for CUDA 11.8 (623 MB)" in maybe


def test_a_plan_on_a_machine_that_is_set_up_knows_the_math_headers_that_it_needs(
    call, project, cached
):
    cached(*READY)
    assert list(below(call(*DRY)[1])) == ["in the cache"]
    cached(*READY, includes=["cuda-math-11.8"])
    assert "cuSOLVER for CUDA 11.8 (623 MB)" in below(call(*DRY)[1])["to be fetched"]
    cached(*READY, "cuda-math-11.8", includes=["cuda-math-11.8"])
    found = below(call(*DRY)[1])
    assert list(found) == ["in the cache"]
    assert found["in the cache"].endswith("cuSOLVER for CUDA 11.8")
    assert needs(call(*DRY, "--json")[1]) == dict.fromkeys((*READY, "cuda-math-11.8"), "cached")


def test_a_plan_of_a_requirement_does_not_fetch_it(call, project, cached, monkeypatch):
    cached(*READY)
    monkeypatch.setattr(proc, "run", lambda *_, **__: pytest.fail("it runs pip"))
    code, out, _ = call(*DRY, "--project", "torch-scatter==2.1.2")
    assert code == 0
    assert out.startswith("sm62-debian-12: torch-scatter==2.1.2, ")
    found = below(out)
    assert found["to be fetched"] == "the sdist of torch-scatter==2.1.2"
    assert "cuSOLVER" in found["to be fetched if the project includes them"]
    out = call(*DRY, "--project", "torch-scatter==2.1.2", "--json")[1]
    (row,) = json.loads(out)["plan"]
    assert row["needs"][0] == {
        "part": None, "title": "the sdist of torch-scatter==2.1.2", "state": "to fetch",
        "bytes": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["build", "--arch", "63"], 2),
        (["build"], 2),
        (["build", "--arch", "6.2", "--platform", "debian12"], 2),
        (["build", "--arch", "6.2", "--project", "./none"], 2),
        (["check"], 3),
        (["check", "none.whl"], 2),
        (["check", "."], 2),
        (["check", ""], 2),
        (["image", "--arch", "6.2", "--wheel", "none.whl"], 2),
        (["image", "--arch", "6.2"], 3),
        (["matrix", "--format", "gitlab"], 2),
        (["matrix"], 2),
        (["pins", "--part", "none"], 2),
        (["build", "--board", "tx2"], 4),
        (["build", "--board", "tx2", "--dry", "--platform", "jetpack-6.2"], 2),
        (["build", "--board", "orin"], 2),
        (["build", "--arch", "8.7", "--jetpack", "6.3"], 2),
        (["build", "--arch", "8.7", "--jetpack", "6.1", "--platform", "jetpack-6.0"], 2),
        (["build", "--cpu-only", "--arch", "6.2"], 2),
        (["build", "--target", "sm62-debian-12", "--arch", "6.2"], 2),
        (["build", "--target", "tx2"], 2),
        (["build", "--arch", "6.2", "--jetpack", "4.6", "--cuda-home", "none"], 2),
        (["check", "setup.py", "--platform", "debian-12"], 2),
        (["check", "setup.py", "--target", "6.2"], 2),
        (["check", "--explain", "symbol"], 2),
        (["check", "setup.py", "--html", "none/a.html"], 2),
        (["check", "setup.py", "--html", "."], 2),
        (["check", "setup.py", "--arch", "6.2", "--all-platforms"], 2),
    ],
)
def test_a_wrong_request_ends_with_its_code_and_a_way_out(call, project, words, code):
    found, out, err = call(*words)
    assert found == code
    assert out == ""
    assert err.startswith("error: ")
    assert "Traceback" not in err


@pytest.fixture
def built(project, monkeypatch, catalog):
    """Let builds end as told: with a report's outcome, or with an error.

    The user's own parts are in `built.own`, all requests in `built.requests`.
    """
    own, requests = [], []

    def install(*endings: str | Exception) -> None:
        def produce(request, targets, _store):
            dist = request.dist
            own.append(request.own.of(targets[0]))
            requests.append(request)
            made = []
            for target, ending in zip(targets, endings, strict=True):
                if isinstance(ending, Exception):
                    made.append(pipeline.Produced(target, error=ending, log=dist / "failed.log"))
                    continue
                path = dist / "ops.whl"
                path.parent.mkdir(exist_ok=True)
                path.touch()
                wheel = pipeline.BuiltWheel(path, "0" * 64, target, dist / "log", 1.5)
                error = None if ending == "pass" else CheckError("no", fix="mend it")
                made.append(pipeline.Produced(target, wheel, report(target.id, ending), error))
            return made

        monkeypatch.setattr(pipeline, "produce", produce)

    install.own, install.requests = own, requests
    return install


def test_options_of_a_build_reach_it(call, built):
    for words in ((), ("--rebuild",), ("--verify",)):
        built("pass")
        assert call("build", "--arch", "6.2", *words)[0] == 0
    asked = [(request.rebuild, request.verify) for request in built.requests]
    assert asked == [(False, False), (True, False), (False, True)]


def test_a_build_says_whether_it_built(call, built, monkeypatch):
    built("pass")
    _, out, err = call("build", "--arch", "6.2", "--json")
    (row,) = json.loads(out)["wheels"]
    assert (row["unchanged"], row["objects_cached"], row["objects_compiled"]) == (True, None, None)
    _, _, err = call("build", "--arch", "6.2")
    assert "unchanged in 2 s; check passed" in err


def test_a_build_prints_its_wheel_on_stdout_and_all_else_on_stderr(call, built):
    built("pass")
    code, out, err = call("build", "--arch", "6.2")
    assert (code, out) == (0, "dist/ops.whl\n")
    assert "for emulation and CI" in err
    assert "Jetson TX2 (6.2) itself runs JetPack 4.6 (L4T r32.7, Ubuntu 18.04)" in err


def test_the_command_that_a_build_proposes_can_be_copied(call, built):
    built("pass")
    _, _, err = call("build", "--arch", "6.2", "--dist", "x y")
    proposed = err.partition("(`")[2].partition("` shows all)")[0]
    assert shlex.split(proposed)[1:] == ["check", "x y/ops.whl"]


def test_the_platforms_of_servers_are_told_by_the_option_that_takes_them(call, built):
    built("pass")
    err = call("build", "--arch", "7.0")[2]
    said = "for V100 and Titan V (7.0) itself: --platform server-cuda-11.8 or x86-64-cuda-12.4"
    assert said in " ".join(err.split())


def test_code_for_a_gpu_that_no_board_of_a_servers_platform_has_is_for_ci(call, built):
    built("pass", "pass")
    _, _, err = call("build", "--arch", "8.7,9.0", "--platform", "debian-13")
    assert "debian-13 with code for 8.7 is for emulation and CI" in err
    assert "Jetson Orin (8.7) itself runs JetPack 7.2 (L4T r39, Ubuntu 24.04)" in err
    assert "9.0" not in err


def test_a_build_for_the_boards_own_platform_needs_no_warning(call, built):
    built("pass")
    words = ("--board", "orin", "--jetpack", "6.1", "--cuda-home", "/c", "--sysroot", "/s",
             "--torch-wheel", "t.whl", "--python-dev", "/p")  # fmt: skip
    code, out, err = call("build", *words)
    assert (code, out) == (0, "dist/ops.whl\n")
    assert "emulation" not in err
    assert "itself runs" not in err
    (own,) = built.own
    assert own == OwnParts(
        cuda_home=Path("/c"), sysroot=Path("/s"), torch_wheel=Path("t.whl"), python_dev=Path("/p")
    )


def test_a_build_without_device_code_is_planned_without_it(call, project):
    code, out, _ = call("build", "--cpu-only", "--jetpack", "4.6", "--dry", "--json")
    assert code == 0
    (row,) = json.loads(out)["plan"]
    assert (row["target"], row["arch_list"]) == ("cpu-jetpack-4.6", "")
    out = call("build", "--cpu-only", "--jetpack", "4.6", "--dry")[1]
    assert ", without CUDA, torch 1.10.0, Python 3.6 -> " in out


def test_a_plan_warns_as_the_build_would(call, project):
    err = call("build", "--arch", "6.2", "--dry")[2]
    assert "for emulation and CI" in err
    assert "Jetson TX2 (6.2) itself runs JetPack 4.6" in err


def test_a_plan_takes_archs_of_the_environment_and_says_so(call, project, monkeypatch):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.7")
    code, out, err = call("build", "--jetpack", "6.2", "--dry")
    assert code == 0
    assert out.startswith("sm87-jetpack-6.2: ")
    assert "--arch is taken from TORCH_CUDA_ARCH_LIST=8.7" in err


def test_a_build_that_fails_its_check_shows_the_findings(call, built):
    built("fail")
    code, out, err = call("build", "--arch", "6.2")
    assert (code, out) == (7, "")
    assert "FAIL machine" in err
    assert "mend it" in err


def test_the_first_failure_of_several_builds_decides_the_code(call, built):
    built("pass", BuildError("no compiler words"))
    code, out, err = call("build", "--arch", "6.2,7.2", "--json")
    assert code == BuildError.exit_code
    rows = json.loads(out)["wheels"]
    assert [row["outcome"] for row in rows] == ["pass", None]
    assert rows[1]["error"]["what"] == "no compiler words"
    assert rows[0]["wheel"] == "dist/ops.whl"
    assert [row["log"] for row in rows] == ["dist/log", "dist/failed.log"]
    assert "no compiler words" in err


def test_the_targets_are_listed_for_people_and_machines(call, project, monkeypatch):
    code, out, _ = call("targets", "--json")
    assert code == 0
    row = next(row for row in json.loads(out)["platforms"] if row["platform"] == "debian-12")
    assert row["archs"]["6.2"] == ["Jetson TX2"]
    row = next(row for row in json.loads(out)["platforms"] if row["platform"] == "jetpack-6.2")
    assert row["jetpack"] == ["6.1", "6.2", "6.2.1", "6.2.2"]
    assert (row["evidence"], row["parts_ready"]) == ("derived", False)
    assert row["boards"] == ["orin"]
    assert (row["machine"], row["cxx11_abi"]) == ("aarch64", True)
    assert row["own_parts_needed"] == []
    assert row["facts"]["cuda"] == {
        "source": "OE4T/meta-tegra recipes of the r36.4 and r36.5 branches",
        "verified": False,
    }
    assert set(row["facts"]) == {"cuda", "torch", "python", "glibc"}
    row = next(row for row in json.loads(out)["platforms"] if row["platform"] == "jetpack-4.2")
    assert (row["own_parts_needed"], row["parts_ready"]) == (["cuda", "torch"], False)
    row = next(row for row in json.loads(out)["platforms"] if row["platform"] == "x86-64-cuda-13.0")
    assert row["archs"]["9.0"] == ["H100 and H200"]
    boards = {one["name"]: one for one in json.loads(out)["boards"]}
    assert boards["orin"]["platforms"][0] == "jetpack-5.1"
    monkeypatch.setattr(console, "stdout", Console(width=300))
    code, out, _ = call("targets")
    assert code == 0
    lines = out.splitlines()
    below = {line.split()[0]: after for line, after in pairwise(lines) if line[0] != " "}
    assert "6.2 tx2" in below["debian-12"]
    assert below["jetpack-4.6"] == "    5.3 nano/tx1, 6.2 tx2, 7.2 xavier"
    verified = {line.split()[0]: line.split("  ")[-1] for line in lines if line[0] != " "}
    assert verified["debian-12"].strip() == "all"
    assert verified["debian-13"].strip() == "torch, python, glibc"
    assert verified["jetpack-6.2"].strip() == "none"
    assert below["jetpack-7.0"] == "    11.0 thor"
    assert below["jetpack-7.2"] == "    8.7 orin, 11.0 thor"
    assert "    --cuda-home: CUDA 10.2 for x86-64" in out
    assert "    note: a wheel for debian-12 is for emulation and CI" in out


def test_the_list_of_targets_is_readable_at_80_columns(call, project, monkeypatch):
    monkeypatch.setattr(console, "stdout", Console(width=300))
    wide = call("targets")[1].split()
    monkeypatch.setattr(console, "stdout", Console(width=80))
    code, out, _ = call("targets")
    assert (code, out.split()) == (0, wide)
    assert max(map(len, out.splitlines())) <= 80
    for line in out.splitlines():
        assert not re.search(r"(^|, )\d+\.\d+$", line.rstrip()), "an arch stands beside its boards"


def test_the_doctor_says_what_is_missing(call, project, monkeypatch):
    good = checks.Examined("dpkg-deb", "build", ok=True, found="/usr/bin/dpkg-deb")
    bad = checks.Examined("emulation", "smoke", ok=False, found="none", fix="install it")
    monkeypatch.setattr(checks, "examine", lambda _: [good, bad])
    code, out, err = call("doctor")
    assert code == 4
    assert "ok   dpkg-deb (build): /usr/bin/dpkg-deb" in out
    assert "LACK emulation (smoke): none\n     fix: install it" in out
    assert "this machine lacks: emulation" in err
    code, out, _ = call("doctor", "--json")
    assert code == 4
    assert [row["ok"] for row in json.loads(out)["checks"]] == [True, False]
    monkeypatch.setattr(checks, "examine", lambda _: [good])
    assert call("doctor")[0] == 0


def test_the_doctor_mends_what_it_can_when_asked(call, project, monkeypatch):
    bad = checks.Examined("x", "build", ok=False, found="none", fix="f", packages=("x-dev",))
    states = [[bad], [dataclasses.replace(bad, ok=True)]]
    mended = []
    monkeypatch.setattr(checks, "examine", lambda _: states.pop(0))
    monkeypatch.setattr(checks, "install", mended.append)
    assert call("doctor", "--fix")[0] == 0
    assert mended == [["x-dev"]]


def options_of(task) -> dict[str, str]:
    """Return the letters of a task's options, and what each stands for."""
    return {name: one.name for one in task.get_arguments() for name in one.names if len(name) == 1}


def test_a_letter_means_one_thing_in_every_task():
    tasks = namespace().tasks.values()
    letters = [pair for task in tasks for pair in options_of(task).items()]
    assert ("a", "arch") in letters
    assert len({letter for letter, _ in letters}) == len(set(letters))


TEXTS = [
    (name, f"--{one.name.replace('_', '-')}")
    for name in TASKS
    for one in namespace()[name].get_arguments()
    if one.kind is str and not one.positional
]


@pytest.mark.parametrize(("name", "option"), TEXTS, ids=[" ".join(pair) for pair in TEXTS])
def test_no_option_of_any_task_may_be_empty(call, project, name, option):
    code, out, err = call(name, option, "")
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {option} is empty\n")
    assert f"  fix: leave {option} out or give a value" in err


def test_an_empty_board_is_told_which_there_are(call, project):
    assert "; board is one of nano, tx1, tx2, xavier" in call("build", "--board", "")[2]
    assert "; jetpack is one of 4.2, " in call("build", "--jetpack=")[2]


def invoke(*words: str, cwd: Path = ROOT) -> proc.Finished:
    env = {key: value for key, value in os.environ.items() if key != "JETSHIP_VERBOSE"}
    return proc.run([sys.executable, "-m", "invoke", *words], cwd=cwd, env=env | {"COLUMNS": "200"})


def test_the_repositorys_own_tasks_file_lists_every_task():
    done = invoke("--list")
    assert done.ok, done.stderr
    assert {*TASKS, "lint", "test"} <= set(listed(done.stdout))


@pytest.mark.parametrize("name", [*TASKS, "lint", "test"])
def test_every_task_explains_itself(name):
    done = invoke(name, "--help")
    assert done.ok, done.stderr
    assert "Docstring:" in done.stdout
    assert "none" not in done.stdout.partition("Options:")[0].lower().split()


def test_help_of_check_tells_its_options():
    done = invoke("check", "--help")
    assert "the wheels to check" in done.stdout
    assert "--json" in done.stdout


def test_an_error_in_a_real_process_is_its_code_alone(tmp_path):
    paths = [str(tmp_path / name) for name in ("a.whl", "b.whl")]
    for path in paths:
        Path(path).write_text("no wheel")
    done = invoke("check", *paths, "--json")
    assert done.status == 7
    errors = json.loads(done.stdout)["errors"]
    assert [(row["wheel"], row["exit_code"]) for row in errors] == [(path, 7) for path in paths]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("stdout", "said"),
    [(">&-", "stdout is closed"), (">/dev/full", "to stdout: No space left on device")],
)
@pytest.mark.parametrize(
    "words", ["check --explain tags", "check --explain tags --json", "targets"]
)
def test_an_answer_that_cannot_be_written_is_told(stdout, said, words):
    shell = f'exec "$0" -m invoke {words} {stdout}'
    done = proc.run(["sh", "-c", shell, sys.executable], cwd=ROOT)
    assert done.status == 2
    assert said in done.stderr
    assert "fix: let stdout go to" in done.stderr
    assert done.stderr.count("error: ") == 1
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_a_toolchain_without_device_code_is_the_boards_own(call, project, monkeypatch):
    asked, math = [], []

    def prepare(target, *_, **more):
        asked.append(target.id)
        math.append([part.name for part in more["math"]])
        raise ToolMissingError("not here", fix="elsewhere")

    monkeypatch.setattr(preparing, "prepare", prepare)
    assert call("toolchain", "--cpu-only", "--board", "tx2")[0] == ToolMissingError.exit_code
    assert call("toolchain", "--arch", "7.2,8.7", "--jetpack", "5.1")[0] == 4
    assert asked == ["cpu-jetpack-4.6", "sm72.sm87-jetpack-5.1"]
    assert call("toolchain", "--cuda-math", "--target", "sm87-jetpack-6.2")[0] == 4
    assert math == [[], [], ["cuda-math-12.4", "cuda-curand-12.4", "cuda-cufft-12.4"]]


def test_pins_renews_the_parts_whose_lock_file_does_not_fit(call, project, monkeypatch):
    code, out, err = call("pins")
    assert (code, out) == (0, "")
    assert "every part has a lock file that fits" in err
    item = Locked(name="zlib1g-dev", version="1", file="z_1_arm64.deb", sha256="0" * 64, size=7)
    lock = Lock(sources={"debian/bookworm/arm64": (item,)})
    monkeypatch.setattr(sources, "lock_part", lambda _named, _store: lock)
    source = "{suite: bookworm, architecture: arm64, install: [%s]}"
    part = "parts: {mine: {kind: sysroot, title: mine, debian: [" + source + "]}}\n"
    file = project / "boards.yaml"
    file.write_text(part % "libc6-dev")
    assert "zlib1g-dev" in call("pins", "--targets-file", "boards.yaml")[1]
    assert call("pins", "--targets-file", "boards.yaml")[1] == ""
    file.write_text(part % "libc6-dev, zlib1g-dev")
    code, out, err = call("pins", "--targets-file", "boards.yaml")
    assert code == 0
    assert "+    install: [libc6-dev, zlib1g-dev]" in out


def test_a_part_whose_lock_file_does_not_fit_is_not_ready(call, project, monkeypatch):
    item = Locked(name="torch", version="2.7.1", file="t.whl", sha256="0" * 64, size=7)
    lock = Lock(sources={"wheels/aarch64": (item,)})
    monkeypatch.setattr(sources, "lock_part", lambda _named, _store: lock)
    monkeypatch.setattr(sources, "has_part", lambda _named, _store: True)
    part = """\
parts:
  torch-2.7.1-cp311:
    kind: torch
    title: mine
    wheels: [{machine: aarch64, requirements: [%s]}]
"""
    words = ("--targets-file", "boards.yaml")

    def ready() -> bool:
        rows = json.loads(call("targets", "--json", *words)[1])["platforms"]
        return next(row["parts_ready"] for row in rows if row["platform"] == "debian-12")

    (project / "boards.yaml").write_text(part % "torch==2.7.1")
    assert not ready()
    assert call("pins", *words)[0] == 0
    assert ready()
    (project / "boards.yaml").write_text(part % "torch==2.7.1, typing-extensions==4.0.0")
    assert not ready()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["build", "--archs", "6.2"], ["--archs is no option of build", "did you mean --arch?"]),
        (["biuld"], ["'biuld' is no task", "did you mean build?"]),
        (["--lst"], ["--lst is no option", "did you mean --list?"]),
        (["build", "--arch"], ["--arch needs a value"]),
        (["build", "--arch", "6.2", "--arch", "9.9"], ["--arch is given twice", "A,B,C"]),
        (["build", "-a=6.2", "--json", "--arch=9.9"], ["--arch is given twice"]),
        (["check", "a.whl", "--arch", "6.2", "-a", "9.9"], ["-a is given twice"]),
        (["check", "--arch", "6.2", "a.whl", "--html", "a", "--html", "b"], ["--html is given"]),
    ],
)
def test_a_command_line_that_cannot_be_read_says_what_was_meant(call, words, said):
    code, out, err = call(*words)
    assert code == 2
    assert err.startswith("error: ")
    assert all(text in err for text in said)
    assert bool(out) == ("--json" in words)
    code, out, _ = call(*words, "--json")
    error = json.loads(out)["error"]
    assert (code, error["exit_code"]) == (2, 2)
    assert said[0] in error["what"]


def test_run_takes_the_tasks_of_its_repository_and_names_itself():
    words = [sys.executable, "-m", "jetship.tasks", "./run", "--search-root", str(ROOT)]
    done = proc.run([*words, "lnt"])
    assert done.status == 2
    assert "did you mean lint?" in done.stderr
    done = proc.run([*words, "build", "--target", "tx2"])
    assert done.status == 2
    assert "invoke" not in done.stderr
    assert "./run check" in proc.run([*words, "check", "--help"]).stdout

import os
from pathlib import Path

import pytest
from jetship import pipeline
from jetship.build.api import BuiltWheel
from jetship.build.includes import Missing
from jetship.build.project import Project
from jetship.check.findings import Finding, Report
from jetship.errors import BuildError, CheckError, ConfigError, DownloadError, ToolMissingError
from jetship.pipeline import Request, produce
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.resolve import resolve, resolve_id
from jetship.toolchain.ownparts import NO_SUPPLY, OwnParts, OwnSupply

LOG = "logs/ops-sm62-debian-12.log"


@pytest.fixture
def stages(monkeypatch):
    """Replace the stages; `endings` maps a target's id to an outcome or an error.

    What toolchains are asked for is in `stages.prepared`, what is built with which jobs and options
    in `stages.built`, and what is built a second time to compare in `stages.verified`.
    """
    prepared, built, verified = [], [], []

    def install(endings: dict[str, str | Exception]) -> None:
        def build(order, *, store, out, logs, rebuild):
            target = order.target
            built.append((target.id, order.jobs, order.settings, rebuild))
            ending = endings[target.id]
            if isinstance(ending, Exception):
                if isinstance(ending, BuildError):
                    logs.mkdir(parents=True, exist_ok=True)
                    (logs / f"ops-{target.id}.log").write_text("its words")
                raise ending
            path = out / f"ops-{install.name or target.id}.whl"
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(target.id)
            return BuiltWheel(path, "0" * 64, target, logs / "log", 1.0)

        def check(wheel, target, _libraries):
            assert wheel.read_text() == target.id
            finding = Finding("machine", endings[target.id], wheel.name, "because")
            return Report(wheel.name, "0" * 64, target.id, (finding,))

        prepared.clear()
        monkeypatch.setattr(
            pipeline, "prepare", lambda *given, **more: prepared.append((*given, *more.items()))
        )
        monkeypatch.setattr(pipeline, "needed_math", lambda *_: {})
        monkeypatch.setattr(pipeline, "target_libraries", lambda *_: None)

        def verify(order, wheel, *, store):
            verified.append(order.target.id)
            assert wheel.path.read_text() == order.target.id
            if endings[order.target.id] == "other bytes":
                raise BuildError("different bytes")

        monkeypatch.setattr(pipeline, "build_project", build)
        monkeypatch.setattr(pipeline, "verify_project", verify)
        monkeypatch.setattr(pipeline, "check_wheel", check)

    install.name = ""
    install.prepared, install.built, install.verified = prepared, built, verified
    return install


@pytest.fixture
def run(catalog, store, tmp_path):
    def run(arch: str, own: OwnSupply = NO_SUPPLY, **options):
        project = Project(tmp_path / "ops", "ops")
        request = Request(project, tmp_path / "dist", own, **options)
        return produce(request, resolve(catalog, arch=arch), store)

    return run


@pytest.fixture
def run_id(catalog, store, tmp_path):
    def run_id(name: str, own: OwnParts):
        request = Request(Project(tmp_path / "ops", "ops"), tmp_path / "dist", OwnSupply(own))
        return produce(request, [resolve_id(catalog, name)], store)

    return run_id


def files_below(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


def test_a_wheel_that_passes_lands_in_dist(stages, run, tmp_path):
    stages({"sm62-debian-12": "pass"})
    (done,) = run("6.2")
    assert done.error is None
    assert done.wheel.path == tmp_path / "dist/ops-sm62-debian-12.whl"
    assert files_below(tmp_path / "dist") == {"ops-sm62-debian-12.whl"}
    assert [path.name for path in (tmp_path / "dist").iterdir()] == ["ops-sm62-debian-12.whl"]


@pytest.mark.parametrize(
    ("outcome", "words"), [("fail", "does not fit sm62-debian-12"), ("unknown", "cannot be told")]
)
def test_a_wheel_that_does_not_pass_goes_no_further(stages, run, tmp_path, outcome, words):
    stages({"sm62-debian-12": outcome})
    (done,) = run("6.2")
    assert isinstance(done.error, CheckError)
    assert words in done.error.what
    assert str(tmp_path / "dist/rejected") in done.error.fix
    assert files_below(tmp_path / "dist") == {"rejected/ops-sm62-debian-12.whl"}


@pytest.mark.parametrize("error", [BuildError("no"), DownloadError("no"), CheckError("no")])
def test_one_target_that_fails_does_not_stop_the_rest(stages, run, tmp_path, capsys, error):
    stages({"sm62-debian-12": error, "sm72-debian-12": "pass"})
    first, second = run("6.2,7.2")
    assert (first.error, first.wheel, first.report) == (error, None, None)
    assert (second.error, second.log) == (None, None)
    assert files_below(tmp_path / "dist") - {LOG} == {"ops-sm72-debian-12.whl"}
    assert "sm62-debian-12: no" in capsys.readouterr().err


def test_the_log_of_a_build_that_failed_is_named_where_there_is_one(stages, run, tmp_path):
    stages({"sm62-debian-12": DownloadError("no build requirements")})
    assert run("6.2")[0].log is None
    stages({"sm62-debian-12": BuildError("no")})
    assert run("6.2")[0].log == tmp_path / "dist" / LOG


def test_the_log_of_an_earlier_build_is_not_that_of_one_that_never_began(stages, run, monkeypatch):
    stages({"sm62-debian-12": BuildError("no")})
    run("6.2")

    def prepare(*_, **__):
        raise ToolMissingError("no compiler")

    monkeypatch.setattr(pipeline, "prepare", prepare)
    assert run("6.2")[0].log is None


def test_each_target_gets_its_own_toolchain_with_the_users_parts(stages, run, store):
    stages({"sm62-debian-12": "pass", "sm72-debian-12": "pass"})
    own = OwnParts(cuda_home=Path("/usr/local/cuda"))
    run("6.2,7.2", OwnSupply(own))
    assert [(target.id, *more) for target, *more in stages.prepared] == [
        ("sm62-debian-12", store, own), ("sm72-debian-12", store, own)
    ]  # fmt: skip
    run("6.2")
    assert stages.prepared[-1][2] == OwnParts()
    run("6.2", OwnSupply(OwnParts(), {"debian-12": own, "debian-11": OwnParts(image="other")}))
    assert stages.prepared[-1][2] == own


def test_a_project_that_includes_a_math_library_gets_its_headers(
    stages, run, catalog, monkeypatch, capsys
):
    stages({"sm62-debian-12": "pass"})
    part = catalog.part("cuda-math-11.8")
    offers = []

    def needed(_project, _toolchain, offered):
        offers.extend(offered)
        return {part: Missing("cublas_v2.h", ("ops.cu", "ATen/cuda/CUDAContext.h", "x.h"))}

    monkeypatch.setattr(pipeline, "needed_math", needed)
    run("6.2")
    assert [one.name for one in offers] == ["cuda-math-11.8", "cuda-curand-11.8", "cuda-cufft-11.8"]
    assert [more for _, _, _, *more in stages.prepared] == [[], [("math", [part])]]
    said = " ".join(capsys.readouterr().err.split())
    assert "ops.cu includes cublas_v2.h through ATen/cuda/CUDAContext.h: fetching" in said
    assert "for CUDA 11.8 (once, 623 MB)" in said


@pytest.mark.parametrize(
    ("target", "own"),
    [
        ("cpu-debian-12", OwnParts()),
        ("sm62-debian-12", OwnParts(cuda_home=Path("/usr/local/cuda"))),
        ("sm72-jetpack-5.1", OwnParts()),
    ],
    ids=["no device code", "a toolkit of the user's", "a toolkit with all headers"],
)
def test_nothing_is_looked_for_where_no_part_is_offered(stages, run_id, monkeypatch, target, own):
    stages({target: "pass"})

    def never(*_):
        raise AssertionError("the project's files were looked through")

    monkeypatch.setattr(pipeline, "needed_math", never)
    (done,) = run_id(target, own)
    assert done.error is None
    assert len(stages.prepared) == 1


def test_a_target_whose_toolchain_is_not_to_be_had_does_not_stop_the_rest(stages, run, monkeypatch):
    stages({"sm62-debian-12": "pass", "sm72-debian-12": "pass"})

    def prepare(target, *_):
        if target.id == "sm62-debian-12":
            raise ToolMissingError("no toolkit")

    monkeypatch.setattr(pipeline, "prepare", prepare)
    first, second = run("6.2,7.2")
    assert isinstance(first.error, ToolMissingError)
    assert second.error is None


def test_jobs_are_shared_by_the_targets_behind_the_first(stages, run, monkeypatch, tmp_path):
    monkeypatch.setenv("MAX_JOBS", "4")
    ids = ("sm62-debian-12", "sm72-debian-12", "sm87-debian-12")
    stages(dict.fromkeys(ids, "pass"))
    assert [done.target.id for done in run("6.2,7.2,8.7")] == list(ids)
    assert [(name, jobs) for name, jobs, *_ in stages.built[:1]] == [(ids[0], 4)]
    assert sorted((name, jobs) for name, jobs, *_ in stages.built[1:]) == [(ids[1], 2), (ids[2], 2)]


def test_lines_of_several_targets_say_whose_they_are(stages, run, capsys):
    stages({"sm62-debian-12": "pass", "sm72-debian-12": "pass"})
    run("6.2,7.2")
    said = capsys.readouterr().err
    assert "sm62-debian-12: checking ops-sm62-debian-12.whl" in said
    assert "sm72-debian-12: checking ops-sm72-debian-12.whl" in said
    run("6.2")
    assert "==> checking ops-sm62-debian-12.whl" in capsys.readouterr().err


def test_what_is_asked_of_a_build_reaches_it(stages, run):
    stages({"sm62-debian-12": "pass"})
    run("6.2")
    settings = BuildSettings(time_limit_minutes=3)
    run("6.2", settings=settings, rebuild=True, verify=True)
    assert [row[2:] for row in stages.built] == [(BuildSettings(), False), (settings, True)]
    assert stages.verified == ["sm62-debian-12"]


def test_a_wheel_that_is_never_the_same_goes_no_further(stages, run, tmp_path):
    stages({"sm62-debian-12": "other bytes"})
    (done,) = run("6.2", verify=True)
    assert isinstance(done.error, BuildError)
    assert files_below(tmp_path / "dist") == set()


@pytest.mark.parametrize("jobs", ["0", "many", "-1", "1.5"])
def test_a_max_jobs_that_is_no_number_is_told_before_anything_is_done(
    stages, run, monkeypatch, jobs
):
    stages({"sm62-debian-12": "pass"})
    monkeypatch.setenv("MAX_JOBS", jobs)
    with pytest.raises(ConfigError, match="MAX_JOBS is"):
        run("6.2")
    assert stages.built == []


def test_a_project_and_a_folder_of_wheels_whose_names_are_not_utf_8(
    stages, catalog, store, tmp_path
):
    stages({"sm62-debian-12": "pass"})
    folder = tmp_path / os.fsdecode(b"w\xf6rk")
    request = Request(Project(folder, folder.name), folder / "dist")
    (result,) = produce(request, resolve(catalog, arch="6.2"), store)
    assert result.error is None


@pytest.mark.parametrize(
    ("name", "warned"), [("1.0-py3-none-any", True), ("1.0-cp311-cp311-linux_aarch64", False)]
)
def test_a_wheel_with_nothing_compiled_in_it_is_warned_of(stages, run, capsys, name, warned):
    stages({"sm62-debian-12": "pass"})
    stages.name = name
    (result,) = run("6.2")
    assert result.error is None
    said = capsys.readouterr().err
    assert (f"warning: ops-{name}.whl has nothing compiled in it" in said) == warned
    assert ("ext_modules" in said) == warned


@pytest.mark.parametrize("epoch", ["x", "", "-5", "1.5", "99999999999999", "4354819199"])
def test_a_time_that_no_wheel_can_hold_is_refused_before_anything_is_built(
    stages, run, monkeypatch, epoch
):
    stages({"sm62-debian-12": "pass"})
    monkeypatch.setenv("SOURCE_DATE_EPOCH", epoch)
    with pytest.raises(ConfigError, match="SOURCE_DATE_EPOCH is"):
        run("6.2")
    assert stages.built == []


def test_a_defect_is_not_hidden_among_the_results(stages, run):
    stages({"sm62-debian-12": ZeroDivisionError()})
    with pytest.raises(ZeroDivisionError):
        run("6.2")

from pathlib import Path

import pytest
from jetship import pipeline
from jetship.build.api import BuiltWheel
from jetship.build.project import Project
from jetship.check.findings import Finding, Report
from jetship.errors import BuildError, CheckError, ConfigError, DownloadError
from jetship.pin import Pin, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.pipeline import produce, target_of
from jetship.targets.resolve import resolve

PIN = Pin(
    tool=PinnedTool(version="0"),
    target="sm62.sm72ptx-debian-12",
    platform="debian-12",
    platform_kind="emulation",
    machine="aarch64",
    torch=PinnedTorch(version="2.7.1", cuda=None, cxx11_abi=True),
    cuda=PinnedCuda(version="11.8", code=()),
    python=PinnedPython(interpreter="cp311", abi="cp311"),
    glibc_floor=None,
)


@pytest.fixture
def stages(monkeypatch):
    """Replace the stages; `endings` maps a target's id to an outcome or an error."""

    def install(endings: dict[str, str | Exception]) -> None:
        def build(_project, target, _toolchain, *, store, out, logs):
            ending = endings[target.id]
            if isinstance(ending, Exception):
                raise ending
            path = out / f"ops-{target.id}.whl"
            out.mkdir(parents=True, exist_ok=True)
            path.write_text(target.id)
            return BuiltWheel(path, "0" * 64, target, logs / "log", 1.0)

        def check(wheel, target, _libraries):
            assert wheel.read_text() == target.id
            finding = Finding("machine", endings[target.id], wheel.name, "because")
            return Report(wheel.name, "0" * 64, target.id, (finding,))

        monkeypatch.setattr(pipeline, "prepare", lambda *_: None)
        monkeypatch.setattr(pipeline.TargetLibraries, "of", lambda _: None)
        monkeypatch.setattr(pipeline, "build_project", build)
        monkeypatch.setattr(pipeline, "check_wheel", check)

    return install


@pytest.fixture
def run(catalog, store, tmp_path):
    def run(arch: str):
        targets = resolve(catalog, arch=arch)
        return produce(Project(tmp_path / "ops", None), targets, store, tmp_path / "dist")

    return run


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
    assert second.error is None
    assert files_below(tmp_path / "dist") == {"ops-sm72-debian-12.whl"}
    assert "sm62-debian-12: no" in capsys.readouterr().err


def test_a_defect_is_not_hidden_among_the_results(stages, run):
    stages({"sm62-debian-12": ZeroDivisionError()})
    with pytest.raises(ZeroDivisionError):
        run("6.2")


def test_a_wheel_is_checked_against_what_it_was_built_for(catalog, monkeypatch):
    monkeypatch.setattr(pipeline, "pin_of", lambda _: PIN)
    target = target_of(Path("ops.whl"), catalog, arch="", platform="")
    assert target.id == "sm62.sm72ptx-debian-12"


def test_or_against_what_is_asked_for(catalog, monkeypatch):
    monkeypatch.setattr(pipeline, "pin_of", lambda _: PIN)
    target = target_of(Path("ops.whl"), catalog, arch="8.7,6.2", platform="")
    assert target.id == "sm62.sm87-debian-12"
    with pytest.raises(ConfigError, match="platform 'none' is not known"):
        target_of(Path("ops.whl"), catalog, arch="", platform="none")


def test_a_foreign_wheel_needs_a_target(catalog, monkeypatch):
    monkeypatch.setattr(pipeline, "pin_of", lambda _: None)
    with pytest.raises(ConfigError, match="does not say what it was built for") as caught:
        target_of(Path("ops.whl"), catalog, arch="", platform="")
    assert "--arch 6.2" in caught.value.fix

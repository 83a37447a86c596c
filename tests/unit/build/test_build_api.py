import contextlib
import dataclasses
import errno
import os
import sys
from pathlib import Path

import pytest
from jetship.build import api, detached
from jetship.build.api import NO_SETTINGS, Order, build_project, verify_project
from jetship.build.isolated import Limits
from jetship.build.project import Project
from jetship.errors import BuildError, DownloadError
from jetship.store import sha256_of
from jetship.targets.buildsettings import BuildSettings


@pytest.fixture
def project(tmp_path, write):
    return Project(write(tmp_path / "my_ops", {"setup.py": ""}), "my_ops")


@pytest.fixture
def build(project, target, toolchain, store, tmp_path, monkeypatch):  # noqa: PLR0917
    """Build with `hook` in the place of the PEP 517 build."""

    def build(hook, *, rebuild=False, settings=NO_SETTINGS, **changes):
        monkeypatch.setattr(api.isolated, "build_wheel", hook)
        out, logs = tmp_path / "out", tmp_path / "logs"
        order = Order(project, target, dataclasses.replace(toolchain, **changes), settings)
        return build_project(order, store=store, out=out, logs=logs, rebuild=rebuild)

    return build


def test_a_project_becomes_a_finished_wheel(build, make_wheel, project, target, store):
    seen = []

    def hook(sources, cross, out, log, **_):
        seen.extend([sources, cross])
        assert (sources / "setup.py").is_file()
        assert sources != project.folder
        return make_wheel().write(out)

    built = build(hook)
    assert built.path.parent.name == "out"
    assert built.path.name.startswith(f"ops-1.0+{target.local_version}-cp311-cp311-")
    assert built.sha256 == sha256_of(built.path)
    assert built.log == built.path.parent.with_name("logs") / "my_ops-sm62-debian-12.log"
    assert built.target == target
    assert seen[1].variables["JETSHIP_TARGET"] == target.id
    assert list((store.root / "tmp").iterdir()) == []


def test_the_build_gets_what_the_targets_torch_needs(  # noqa: PLR0917
    build, make_wheel, project, target, store, capsys
):
    given = {}

    def hook(sources, cross, out, log, **options):
        given.update(options)
        return make_wheel().write(out)

    build(
        hook,
        settings=BuildSettings(time_limit_minutes=7, constraints=("cmake<4",)),
        build_constraints=("setuptools<70",),
        build_requirements=("typing-extensions",),
    )
    assert given["limits"] == Limits(
        target.platform, ("setuptools<70", "cmake<4"), ("typing-extensions",), 7
    )
    assert given["shown_as"] == project.folder
    assert given["store"] == store
    assert "TORCH_CUDA_ARCH_LIST=6.2, nvcc 11.8" in capsys.readouterr().err


def test_a_build_that_fails_leaves_its_log_and_nothing_else(build, store, tmp_path):
    def hook(sources, cross, out, log, **_):
        log.write_text("words")
        raise BuildError("no")

    with pytest.raises(BuildError):
        build(hook)
    assert [path.name for path in (tmp_path / "logs").iterdir()] == ["my_ops-sm62-debian-12.log"]
    assert not (tmp_path / "out").exists()
    assert list((store.root / "tmp").iterdir()) == []


def test_the_log_is_of_the_last_build_alone(build, make_wheel, tmp_path):
    def hook(sources, cross, out, log, **_):
        with log.open("a") as stream:
            stream.write("once\n")
        return make_wheel().write(out)

    build(hook)
    assert build(hook, rebuild=True).log.read_text() == "once\n"


def test_a_disk_that_fills_is_told_with_what_to_do(build):
    def hook(sources, cross, out, log, **_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DownloadError, match="No space left") as caught:
        build(hook)
    assert "JETSHIP_CACHE" in caught.value.fix


@pytest.fixture
def counted(make_wheel):
    """A hook that says how often it ran; what it puts into the wheel is `counted.content`."""

    def hook(sources, cross, out, log, **_):
        hook.runs += 1
        with log.open("a") as stream:
            stream.write(f"run {hook.runs}\n")
        return make_wheel({"ops/data": hook.content}).write(out)

    hook.runs, hook.content = 0, b"same"
    return hook


def test_where_nothing_has_changed_the_wheel_is_copied_and_nothing_runs(build, counted, capsys):
    first = build(counted)
    first.path.unlink()
    first.log.unlink()
    capsys.readouterr()
    second = build(counted)
    assert counted.runs == 1
    assert (second.path, second.sha256) == (first.path, first.sha256)
    assert sha256_of(second.path) == first.sha256
    assert second.log.read_text() == "run 1\n"
    assert first.cache is not None
    assert second.cache is None
    assert "nothing has changed since this wheel was built" in capsys.readouterr().err


def test_a_change_in_the_project_is_built(build, counted, project):
    build(counted)
    (project.folder / "setup.py").write_text("# another\n")
    assert build(counted).cache is not None
    assert counted.runs == 2


def test_a_rebuild_builds_and_keeps_what_it_built(build, counted):
    build(counted)
    counted.content = b"other"
    second = build(counted, rebuild=True)
    assert counted.runs == 2
    assert build(counted).sha256 == second.sha256
    assert counted.runs == 2


def test_a_build_that_fails_is_not_kept(build, counted, store):
    def hook(*_, **__):
        raise BuildError("no")

    with pytest.raises(BuildError):
        build(hook)
    assert list((store.root / "trees").iterdir()) == []
    build(counted)
    assert counted.runs == 1


@pytest.fixture
def verify(build, counted, project, target, toolchain, store):  # noqa: PLR0917
    """Build, change what the hook makes, and build once more to compare."""

    def verify(second: bytes):
        built = build(counted)
        counted.content = second
        verify_project(Order(project, target, toolchain), built, store=store)

    return verify


def test_the_same_bytes_again_are_said_to_be_the_same(verify, counted, store, capsys):
    verify(b"same")
    assert counted.runs == 2, "what is compared was built, and not taken from the cache"
    assert "the same bytes again: sha256 " in capsys.readouterr().err
    assert list((store.root / "tmp").iterdir()) == []


def test_other_bytes_are_an_error_that_names_the_files(verify, tmp_path):
    with pytest.raises(BuildError, match="different bytes") as caught:
        verify(b"other")
    assert "ops/data" in caught.value.why
    assert "ops/__init__.py" not in caught.value.why
    for name in ("my_ops-sm62-debian-12.log", "my_ops-sm62-debian-12.verify.log"):
        assert str(tmp_path / "logs" / name) in caught.value.fix
        assert (tmp_path / "logs" / name).is_file()


def test_the_second_build_has_a_compiler_cache_that_is_empty(  # noqa: PLR0917
    build, project, target, toolchain, store, make_wheel
):
    seen = []

    def hook(sources, cross, out, log, **_):
        seen.append((cross.variables["CCACHE_DIR"], cross.variables.get("CCACHE_REMOTE_STORAGE")))
        return make_wheel().write(out)

    built = build(hook)
    verify_project(Order(project, target, toolchain), built, store=store)
    assert seen[0] == (str(store.root / "ccache"), None)
    assert Path(seen[1][0]).is_relative_to(store.root / "tmp")
    assert seen[1][1] == ""


def test_commands_before_the_build_run_in_the_copy_with_the_builds_environment(
    build, make_wheel, project, target
):
    script = (
        "import os; assert os.environ['JETSHIP_SOURCES'] == os.getcwd()\n"
        "open('made.h', 'w').write(os.environ['JETSHIP_TARGET'] + os.environ['X'])"
    )
    seen = []

    def hook(sources, cross, out, log, **_):
        seen.append((sources / "made.h").read_text())
        return make_wheel().write(out)

    settings = BuildSettings(before_build=((sys.executable, "-c", script),), env={"X": "=x"})
    build(hook, settings=settings)
    assert seen == [f"{target.id}=x"]
    assert not (project.folder / "made.h").exists()


def test_a_command_that_fails_ends_the_build_with_its_own_words(build, counted):
    script = "print('generator: error: no grammar', flush=True); raise SystemExit(3)"
    settings = BuildSettings(before_build=((sys.executable, "-c", script),))
    with pytest.raises(BuildError, match="before_build failed with exit status 3") as caught:
        build(counted, settings=settings)
    assert "generator: error: no grammar" in caught.value.why
    assert counted.runs == 0


def test_the_cause_of_a_commands_failure_is_known_with_the_jobs(build, counted):
    script = "print('virtual memory exhausted: Cannot allocate memory'); raise SystemExit(1)"
    settings = BuildSettings(before_build=((sys.executable, "-c", script),))
    with pytest.raises(BuildError) as caught:
        build(counted, settings=settings)
    assert caught.value.fix.startswith("build on a machine with more memory; the whole log is ")


def test_a_command_that_a_signal_ends_names_it(build, counted):
    script = "import os; os.kill(os.getpid(), 9)"
    settings = BuildSettings(before_build=((sys.executable, "-c", script),))
    with pytest.raises(BuildError, match="before_build was ended by SIGKILL") as caught:
        build(counted, settings=settings)
    assert "with more memory" in caught.value.fix


def test_a_command_that_hangs_is_stopped(build, counted, tmp_path):
    settings = BuildSettings(
        before_build=((sys.executable, "-c", "import time; time.sleep(60)"),),
        time_limit_minutes=0.01,
    )
    with pytest.raises(BuildError, match=r"of before_build did not end within 0\.01 min") as caught:
        build(counted, settings=settings)
    assert str(tmp_path / "logs") in caught.value.fix
    assert counted.runs == 0


DETACHED = """\
import os, subprocess, sys, time
child = "import signal, sys, time\\n"
child += "signal.signal(signal.SIGTERM, signal.SIG_IGN)\\n" * (sys.argv[2] == "deaf")
child += "open(sys.argv[1], 'w').close(); time.sleep(60)"
words = [sys.executable, "-c", child, sys.argv[1]]
print(subprocess.Popen(words, start_new_session=True).pid, flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.05)
"""


@pytest.mark.parametrize("kind", ["obedient", "deaf"])
@pytest.mark.parametrize("fails", [False, True])
def test_what_a_build_has_left_running_in_a_session_of_its_own_is_ended(  # noqa: PLR0917
    build, make_wheel, tmp_path, monkeypatch, capsys, kind, fails
):
    monkeypatch.setattr(detached, "STOP_GRACE_SECONDS", 0.5)
    words = (sys.executable, "-c", DETACHED, str(tmp_path / "up"), kind)
    pids = []

    def hook(sources, cross, out, log, **_):
        pids.append(int(log.read_text()))
        os.kill(pids[0], 0)
        if fails:
            raise BuildError("no")
        return make_wheel().write(out)

    with pytest.raises(BuildError) if fails else contextlib.nullcontext():
        build(hook, settings=BuildSettings(before_build=(words,)))
    stat = Path(f"/proc/{pids[0]}/stat")
    assert not stat.exists() or stat.read_text().rpartition(")")[2].split()[0] in "ZX"
    assert "the build left python" in capsys.readouterr().err


def test_a_build_that_never_began_leaves_no_log_of_another(build, counted, tmp_path, monkeypatch):
    built = build(counted)
    assert built.log.is_file()

    def fingerprint(*_):
        raise DownloadError("the disk is full")

    monkeypatch.setattr(api, "fingerprint", fingerprint)
    with pytest.raises(DownloadError):
        build(counted)
    assert not built.log.exists()

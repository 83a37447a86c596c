import dataclasses
import errno

import pytest
from jetship.build import api
from jetship.build.api import build_project
from jetship.build.project import Project
from jetship.errors import BuildError, DownloadError
from jetship.store import sha256_of


@pytest.fixture
def project(tmp_path, write):
    return Project(write(tmp_path / "my_ops", {"setup.py": ""}), "my_ops")


@pytest.fixture
def build(project, target, toolchain, store, tmp_path, monkeypatch):  # noqa: PLR0917
    """Build with `hook` in the place of the PEP 517 build."""

    def build(hook, **changes):
        monkeypatch.setattr(api.isolated, "build_wheel", hook)
        out, logs = tmp_path / "out", tmp_path / "logs"
        changed = dataclasses.replace(toolchain, **changes)
        return build_project(project, target, changed, store=store, out=out, logs=logs)

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


def test_the_build_gets_what_the_targets_torch_needs(build, make_wheel, project, capsys):
    given = {}

    def hook(sources, cross, out, log, **options):
        given.update(options)
        return make_wheel().write(out)

    build(hook, build_constraints=("setuptools<70",), build_requirements=("typing-extensions",))
    assert given["constraints"] == ("setuptools<70",)
    assert given["requirements"] == ("typing-extensions",)
    assert given["shown_as"] == project.folder
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
    assert build(hook).log.read_text() == "once\n"


def test_a_disk_that_fills_is_told_with_what_to_do(build):
    def hook(sources, cross, out, log, **_):
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(DownloadError, match="No space left") as caught:
        build(hook)
    assert "JETSHIP_CACHE" in caught.value.fix

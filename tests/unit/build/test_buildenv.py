"""Build environments. Those without requirements are real; pip's part is played."""

import sys
from pathlib import Path

import pytest
from jetship import proc
from jetship.build.buildenv import build_env
from jetship.errors import ConfigError, DownloadError


@pytest.fixture
def log(tmp_path) -> Path:
    return tmp_path / "log"


@pytest.fixture
def pip(monkeypatch):
    """Play pip: it installs one script, or fails with `pip.failure` on stderr."""
    real = proc.run
    seen = []

    def run(argv, **options):
        words = [str(word) for word in argv]
        if words[1:3] != ["-m", "pip"]:
            return real(argv, **options)
        constraints = Path(words[words.index("--constraint") + 1])
        seen.append((words, constraints.read_text().split("\n")))
        if run.failure:
            return proc.Finished(tuple(words), 1, "", run.failure)
        python = Path(words[words.index("--python") + 1])
        tool = python.with_name("tool")
        tool.write_text(f"#!{python}\nimport sys; print(sys.prefix)\n")
        tool.chmod(0o755)
        (python.parent / "link").symlink_to("tool")
        return proc.Finished(tuple(words), 0)

    run.failure = ""
    run.seen = seen
    monkeypatch.setattr(proc, "run", run)
    monkeypatch.delenv("PIP_CONSTRAINT", raising=False)
    return run


def test_an_environment_without_requirements_is_a_python_of_its_own(store, log):
    env = build_env(store, [], [], log)
    done = proc.run([env.python_executable, "-c", "import sys; print(sys.prefix)"])
    assert done.stdout.strip() == str(env.root)
    assert env.installed == ()
    assert env.make_extra_environ()["PATH"].startswith(f"{env.root}/bin:")


def test_the_same_requirements_are_installed_once_in_whatever_order(store, log, pip, capsys):
    first = build_env(store, ["wheel", "setuptools>=61"], ["b<2", "a<1"], log)
    assert "build requirements: setuptools>=61, wheel (once)" in capsys.readouterr().err
    second = build_env(store, {"setuptools>=61", "wheel"}, ["a<1", "b<2"], log)
    assert first == second
    assert len(pip.seen) == 1
    assert capsys.readouterr().err == ""
    words, limits = pip.seen[0]
    assert words[-2:] == ["setuptools>=61", "wheel"]
    assert limits == ["a<1", "b<2"]


def test_what_is_asked_for_decides_which_environment_it_is(store, log, pip, tmp_path, monkeypatch):
    roots = [
        build_env(store, ["wheel"], [], log).root,
        build_env(store, ["wheel", "x"], [], log).root,
        build_env(store, ["wheel"], ["x<1"], log).root,
    ]
    users = tmp_path / "constraints.txt"
    monkeypatch.setenv("PIP_CONSTRAINT", str(users))
    for text in ("cython<3\n", "cython<4\n"):
        users.write_text(text)
        roots.append(build_env(store, ["wheel"], [], log).root)
    monkeypatch.setattr(sys, "version", "3.99")
    roots.append(build_env(store, ["wheel"], [], log).root)
    assert len(set(roots)) == len(roots)
    assert "cython<4" in pip.seen[-1][1]


def test_scripts_start_the_python_of_the_place_where_they_end_up(store, log, pip):
    env = build_env(store, ["wheel"], [], log)
    done = proc.run([env.root / "bin/tool"])
    assert done.stdout.strip() == str(env.root), done.stderr
    assert (env.root / "bin/link").is_symlink()


def test_an_environment_that_pip_cannot_fill_is_not_kept(store, log, pip):
    pip.failure = "Collecting x\nERROR: No matching distribution found for setuptools>=61\n"
    with pytest.raises(DownloadError, match="cannot be installed: setuptools>=61") as caught:
        build_env(store, ["setuptools>=61"], [], log)
    assert caught.value.why == "No matching distribution found for setuptools>=61"
    assert caught.value.fix
    assert "Collecting x" in log.read_text()
    assert list((store.root / "trees").iterdir()) == []
    pip.failure = ""
    build_env(store, ["setuptools>=61"], [], log)


IMPOSSIBLE = (
    "ERROR: Cannot install setuptools>=61 because these package versions have conflicting "
    "dependencies.\nERROR: ResolutionImpossible: for help visit https://pip.example/conflicts\n"
)


def test_constraints_that_leave_no_version_are_named_and_not_the_network(store, log, pip):
    pip.failure = IMPOSSIBLE
    with pytest.raises(ConfigError, match=r"with the constraints setuptools==1\.2\.3") as caught:
        build_env(store, ["setuptools>=61"], ["setuptools==1.2.3"], log)
    assert "`constraints` under `build:` in deploy.yaml" in caught.value.fix
    assert "network" not in str(caught.value)
    assert "ResolutionImpossible" in log.read_text()


def test_a_python_that_cannot_make_environments_is_told(store, log, monkeypatch):
    failed = proc.Finished((), 1, "ensurepip is not available", "")
    monkeypatch.setattr(proc, "run", lambda *_, **__: failed)
    with pytest.raises(DownloadError, match="cannot make a virtual environment") as caught:
        build_env(store, [], [], log)
    assert caught.value.why == "ensurepip is not available"
    assert "python3-venv" in caught.value.fix

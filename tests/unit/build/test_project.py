import os

import pytest
from jetship.build.project import Project, open_project
from jetship.errors import ConfigError

SETUPTOOLS = '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'

OWN_BACKEND = (
    '[build-system]\nrequires = [{requires}]\nbuild-backend = "own"\nbackend-path = ["tools"]\n'
)


def files_below(folder) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize(
    "files",
    [
        {"setup.py": ""},
        {"pyproject.toml": SETUPTOOLS},
        {"pyproject.toml": "[project]\nname = 'x'\n"},
        {"pyproject.toml": "[build-system]\nrequires = []\n", "setup.py": ""},
        {"pyproject.toml": "[build-system]\nbuild-backend = 'setuptools.build_meta:__legacy__'\n"},
        {"pyproject.toml": "[tool.black]\nline-length = 100\n"},
        {"pyproject.toml": OWN_BACKEND.format(requires='"setuptools", "wheel"'), "setup.py": ""},
    ],
)
def test_setuptools_projects_with_and_without_a_pyproject_are_opened(tmp_path, write, files):
    assert open_project(write(tmp_path, files)) == Project(tmp_path, tmp_path.name)


def test_a_project_may_ask_for_the_import_guard(tmp_path, write):
    text = SETUPTOOLS + '[tool.jetship]\nimport-guard = "my_ops"\n'
    assert open_project(write(tmp_path, {"pyproject.toml": text})).import_guard == "my_ops"


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"README.md": ""}, "neither pyproject.toml nor setup.py"),
        ({"pyproject.toml": "[build-system"}, "is not valid TOML"),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'hatchling.build'\n"},
         "build backend 'hatchling.build' is not supported"),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'scikit_build_core.build'\n",
          "setup.py": ""}, "build backend 'scikit_build_core.build' is not supported"),
        ({"pyproject.toml": OWN_BACKEND.format(requires='"scikit-build-core>=0.5"')},
         "build backend 'own' through scikit-build-core>=0.5 is not supported"),
        ({"pyproject.toml": OWN_BACKEND.format(requires='"poetry-core"')},
         "build backend 'own' through poetry-core is not supported"),
        ({"pyproject.toml": OWN_BACKEND.replace('"own"', '"mesonpy"').format(requires="")},
         "build backend 'mesonpy' is not supported"),
        ({"pyproject.toml": OWN_BACKEND.replace('"own"', '"scikit_build_core.build"')
          .format(requires="")}, "build backend 'scikit_build_core.build' is not supported"),
        ({"pyproject.toml": "[build-system]\nrequires = 'setuptools'\nbuild-backend = 3\n"},
         "requires is 'setuptools', and has to be a list such as [\"setuptools\"]; build-b"),
        ({"pyproject.toml": "[build-system]\nrequires = ['wheel', '@@@', 4]\n"},
         "requires has '@@@', which is no requirement; requires has 4, which is no"),
        ({"pyproject.toml": "[build-system]\nbuild-backend = 'own'\n"},
         "build backend 'own' is not supported"),
        ({"pyproject.toml": "[tool.jetship]\nimport_guard = 'x'\n"}, "unknown keys: import_guard"),
        ({"pyproject.toml": "[tool.jetship]\nimport-guard = 'a b'\n"}, "must name a package"),
        ({"pyproject.toml": "[tool.jetship]\nimport-guard = ['a']\n"}, "must name a package"),
        ({"pyproject.toml": "[tool]\njetship = 3\n"}, "must be a table"),
        ({"pyproject.toml": "tool = 3\nbuild-system = 3\n[project]\nname = 'x'\n"}, None),
    ],
)  # fmt: skip
def test_what_cannot_be_built_is_told_with_what_to_do(tmp_path, write, files, words):
    write(tmp_path, files)
    if words is None:
        assert open_project(tmp_path) == Project(tmp_path, tmp_path.name)
        return
    with pytest.raises(ConfigError) as caught:
        open_project(tmp_path)
    assert words in caught.value.what
    assert str(tmp_path) in caught.value.what
    assert caught.value.fix


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none does not exist") as caught:
        open_project(tmp_path / "none")
    assert "--project" in caught.value.fix


def test_a_pyproject_that_is_not_text_is_told(tmp_path):
    (tmp_path / "pyproject.toml").write_bytes(b"name = '\xff'\n")
    with pytest.raises(ConfigError, match="is not valid TOML"):
        open_project(tmp_path)


def test_results_of_other_builds_are_not_copied(tmp_path, write):
    project = write(tmp_path / "project", {
        "setup.py": "", "src/ops/__init__.py": "", "csrc/op.cu": "",
        "build/lib/ops/_C.so": "", "dist/ops-1.0.whl": "", "ops.egg-info/PKG-INFO": "",
        "src/ops.egg-info/PKG-INFO": "", "src/ops/__pycache__/x.pyc": "", ".git/HEAD": "",
        ".venv/bin/python": "", "venv/bin/python": "", ".tox/log": "",
    })  # fmt: skip
    Project(project, "ops").copy_sources(tmp_path / "copy")
    sources = {"setup.py", "src/ops/__init__.py", "csrc/op.cu"}
    assert files_below(tmp_path / "copy") - {".git"} == sources
    history = project.resolve() / ".git"
    assert (tmp_path / "copy/.git").read_text() == f"gitdir: {history}\n"


def test_a_project_may_lie_in_a_folder_whose_name_is_not_utf_8(tmp_path, write):
    folder = write(tmp_path / os.fsdecode(b"w\xf6rk"), {"setup.py": "", ".git/HEAD": ""})
    Project(folder, folder.name).copy_sources(tmp_path / "copy")
    assert (tmp_path / "copy/.git").read_bytes() == b"gitdir: " + bytes(folder / ".git") + b"\n"


def test_a_package_that_is_called_build_or_dist_is_source(tmp_path, write):
    files = {
        "setup.py": "",
        "ops/build/__init__.py": "",
        "ops/dist/__init__.py": "",
        "ops/venv/x": "",
    }
    project = write(tmp_path / "project", files)
    Project(project, "ops").copy_sources(tmp_path / "copy")
    assert files_below(tmp_path / "copy") == set(files)


def test_links_stay_links_within_the_project(tmp_path, write):
    project = write(tmp_path / "project", {"setup.py": "", "csrc/op.cpp": "one"})
    (project / "csrc/same.cpp").symlink_to("op.cpp")
    (project / "csrc/none.cpp").symlink_to("gone.cpp")
    (project / "kernels").symlink_to("csrc")
    (project / "above").symlink_to("/")
    Project(project, "ops").copy_sources(tmp_path / "copy")
    assert (tmp_path / "copy/csrc/same.cpp").readlink().as_posix() == "op.cpp"
    assert (tmp_path / "copy/csrc/none.cpp").is_symlink()
    assert (tmp_path / "copy/kernels").is_symlink()
    assert (tmp_path / "copy/above").readlink().as_posix() == "/"


def test_links_out_of_the_project_lead_to_the_same_from_its_copy(tmp_path, write):
    write(tmp_path, {"README.md": "words", "shared/op.h": "one"})
    project = write(tmp_path / "project", {"setup.py": "", "csrc/op.cpp": ""})
    (project / "README.md").symlink_to("../README.md")
    (project / "csrc/shared").symlink_to("../../shared")
    Project(project, "ops").copy_sources(tmp_path / "elsewhere/deep/copy")
    copy = tmp_path / "elsewhere/deep/copy"
    assert (copy / "README.md").read_text() == "words"
    assert (copy / "csrc/shared/op.h").read_text() == "one"
    assert (project / "README.md").readlink().as_posix() == "../README.md"


def test_a_cache_within_the_project_is_not_copied_into_itself(tmp_path, write, monkeypatch):
    write(tmp_path, {"setup.py": "", "cache/sha256/x": "", "other/y": ""})
    monkeypatch.chdir(tmp_path)
    copy = tmp_path / "cache/tmp/copy"
    Project(tmp_path.relative_to(tmp_path), "ops").copy_sources(copy)
    assert files_below(copy) == {"setup.py", "other/y"}


def test_the_project_itself_is_not_written_to(tmp_path, write):
    project = write(tmp_path / "project", {"setup.py": "old"})
    before = files_below(project)
    Project(project, "ops").copy_sources(tmp_path / "copy")
    (tmp_path / "copy/setup.py").write_text("new")
    assert (project / "setup.py").read_text() == "old"
    assert files_below(project) == before


def test_what_cannot_be_copied_is_named(tmp_path):
    (tmp_path / "setup.py").write_text("")
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="pipe` is a named pipe"):
        open_project(tmp_path).copy_sources(tmp_path.with_name("copy"))

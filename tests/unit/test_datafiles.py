import tomllib

import pytest
from jetship import datafiles
from jetship.errors import ConfigError


@pytest.fixture
def package(tmp_path, monkeypatch):
    """An installation of jetship at a place that a test decides about."""
    folder = tmp_path / "vendor/pkg/jetship"
    folder.mkdir(parents=True)
    monkeypatch.setattr(datafiles, "__file__", str(folder / "datafiles.py"))
    return folder


def test_the_repository_holds_both_folders():
    assert (datafiles.data_dir("toolchains") / "boards.yaml").is_file()
    assert datafiles.data_dir("docker").is_dir()


@pytest.mark.parametrize("name", ["toolchains", "docker"])
def test_every_file_of_the_data_travels_in_the_wheel(name):
    root = datafiles.data_dir(name)
    settings = tomllib.loads((root.parent / "pyproject.toml").read_text())
    patterns = settings["tool"]["setuptools"]["package-data"]["*"]
    taken = {path for pattern in patterns for path in root.glob(pattern) if path.is_file()}
    there = {path for path in root.rglob("*") if path.is_file()}
    assert {path for path in there if path.suffix not in (".py", ".pyc")} == taken


def test_an_installed_jetship_takes_its_own_data_and_not_a_neighbours(package):
    (package / "data/docker").mkdir(parents=True)
    (package.parent.parent / "docker").mkdir()
    assert datafiles.data_dir("docker") == package / "data/docker"


def test_a_checkout_has_its_data_beside_the_code(package):
    (package.parent.parent / "docker").mkdir()
    assert datafiles.data_dir("docker") == package.parent.parent / "docker"


def test_an_installation_without_data_says_what_to_do(package):
    with pytest.raises(ConfigError, match="no docker/ folder") as caught:
        datafiles.data_dir("docker")
    assert "install" in caught.value.fix

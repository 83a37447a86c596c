"""The options --targets-file and --image, from the command line to the stages."""

from pathlib import Path

import pytest
from jetship.errors import ConfigError
from jetship.targets.resolve import resolve
from jetship.tasks.request import Given, Known
from jetship.toolchain.ownparts import OwnParts
from jetship.toolchain.prepare import plan

BOARD = """\
boards:
  - {name: tx2, title: My TX2, arch: 6.2, kind: jetson, platforms: [jetpack-4.6], source: mine}
"""
DEPLOY = """\
version: 1
targets_file: my-boards.yaml
"""


@pytest.fixture
def deploy(tmp_path) -> str:
    path = tmp_path / "deploy.yaml"
    path.write_text(DEPLOY)
    (tmp_path / "my-boards.yaml").write_text(BOARD)
    return str(path)


def test_without_a_file_of_the_users_all_is_as_shipped(catalog, tmp_path, capsys):
    found = Known().catalog(str(tmp_path / "none.yaml"))
    assert found.boards == catalog.boards
    assert capsys.readouterr().err == ""


def test_the_users_file_is_the_given_one_or_deploy_yamls(deploy, tmp_path, capsys):
    assert Known().catalog(deploy).board("tx2").title == "My TX2"
    assert "my-boards.yaml replaces jetship's own board tx2" in capsys.readouterr().err
    other = tmp_path / "other.yaml"
    other.write_text(BOARD.replace("My TX2", "Another"))
    assert Known(str(other)).catalog(deploy).board("tx2").title == "Another"


def test_a_users_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist") as caught:
        Known(str(tmp_path / "none.yaml")).catalog()
    assert "name a YAML file" in caught.value.fix
    with pytest.raises(ConfigError, match=r"--targets-file: .* is a folder"):
        Known(str(tmp_path)).catalog()


def test_an_image_is_a_name_and_all_else_a_path():
    parts = Given(image="l4t:r35", cuda_home="/usr/local/cuda").parts
    assert parts.image == "l4t:r35"
    assert parts.cuda_home is not None
    assert parts.cuda_home.name == "cuda"
    assert Given().parts == OwnParts()


def coded(catalog, arch, platform):
    (target,) = resolve(catalog, arch=arch, platform=platform)
    return target


def test_own_parts_of_deploy_yaml_come_after_the_options(catalog, tmp_path):
    path = tmp_path / "deploy.yaml"
    path.write_text(
        "own_parts:\n"
        "  jetpack-4.6: {cuda_home: cuda, sysroot: /s}\n"
        "  jetpack-5.1: {image: 'l4t:r35', python_dev: ~/python}\n"
    )
    supply = Given(cuda_home="/mine").supply(catalog, str(path))
    found = supply.of(coded(catalog, "6.2", "jetpack-4.6"))
    assert found == OwnParts(cuda_home=Path("/mine"), sysroot=Path("/s"))
    assert found.said("cuda_home") == "--cuda-home /mine"
    assert found.said("sysroot") == f"{path}:2:34: own_parts.jetpack-4.6.sysroot /s"
    found = Given().supply(catalog, str(path)).of(coded(catalog, "6.2", "jetpack-4.6"))
    assert found.cuda_home == tmp_path / "cuda"
    found = Given().supply(catalog, str(path)).of(coded(catalog, "7.2", "jetpack-5.1"))
    assert found == OwnParts(image="l4t:r35", python_dev=Path.home() / "python")
    assert Given().supply(catalog, str(path)).of(coded(catalog, "6.2", "debian-12")) == OwnParts()
    assert Given().supply(catalog, str(tmp_path / "none.yaml")).by_platform == {}


def test_an_image_takes_the_place_of_sysroot_and_torch(catalog):
    (target,) = resolve(catalog, arch="6.2")
    chosen = plan(target, OwnParts(image="l4t:r35"))
    assert [part.name for part in chosen.parts] == ["gcc-11", "cuda-11.8"]

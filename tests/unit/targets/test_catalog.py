import shutil

import pytest
from jetship.datafiles import data_dir
from jetship.errors import ConfigError
from jetship.targets.catalog import Catalog
from jetship.targets.model import Arch


@pytest.fixture
def folder(tmp_path):
    """A copy of the data, to be damaged."""
    return shutil.copytree(data_dir("toolchains"), tmp_path / "toolchains")


def test_names_are_unique_and_every_file_is_named_after_its_platform(catalog):
    boards = [board.name for board in catalog.boards]
    assert len(boards) == len(set(boards))
    files = sorted(path.stem for path in (data_dir("toolchains") / "platforms").glob("*.yaml"))
    assert [platform.name for platform in catalog.platforms] == files


def test_every_platform_has_a_lock_file(catalog):
    locks = {path.stem for path in (data_dir("toolchains") / "locks").glob("*.yaml")}
    assert {platform.name for platform in catalog.platforms} == locks


def test_every_jetson_has_its_l4t_and_every_server_none(catalog):
    assert all((board.l4t is not None) == (board.kind == "jetson") for board in catalog.boards)


def test_the_boards_of_an_arch(catalog):
    assert [board.name for board in catalog.boards_of(Arch(6, 2))] == ["tx2"]
    assert [board.name for board in catalog.boards_of(Arch(5, 3))] == ["nano", "tx1"]
    assert catalog.boards_of(Arch(1, 0)) == ()


def test_a_board_knows_how_a_container_reaches_its_gpu(catalog):
    tx2 = catalog.boards_of(Arch(6, 2))[0]
    line = catalog.devices_for(tx2)
    assert line is not None
    assert line.l4t == tx2.l4t == "r32.7"
    assert catalog.devices_for(tx2.model_copy(update={"l4t": "r1"})) is None


@pytest.mark.parametrize("name", ["debian12", "debain-12", "debian-13"])
def test_an_unknown_platform_gets_the_nearest_and_all_known(catalog, name):
    with pytest.raises(ConfigError, match=f"platform '{name}' is not known") as caught:
        catalog.platform(name)
    assert caught.value.fix.startswith("did you mean 'debian-12'? known platforms: debian-12")


def test_a_platform_like_no_other_gets_no_suggestion(catalog):
    with pytest.raises(ConfigError) as caught:
        catalog.platform("zzz")
    assert caught.value.fix.startswith("known platforms:")


def test_a_copy_of_the_data_is_read_the_same(catalog, folder):
    assert Catalog.load(folder) == catalog


def test_a_platform_file_with_a_wrong_key_is_named_with_its_place(folder):
    path = folder / "platforms/debian-12.yaml"
    path.write_text(path.read_text().replace("machine: aarch64", "machin: aarch64", 1))
    with pytest.raises(ConfigError) as caught:
        Catalog.load(folder)
    assert "unknown key 'machin'; did you mean 'machine'?" in str(caught.value)
    assert "debian-12.yaml:" in str(caught.value)


def test_a_missing_file_is_named(folder):
    (folder / "devices.yaml").unlink()
    with pytest.raises(ConfigError, match=r"devices\.yaml does not exist"):
        Catalog.load(folder)

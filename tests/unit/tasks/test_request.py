import dataclasses
import zipfile
from pathlib import Path

import pytest
from jetship.errors import CheckError, ConfigError, NothingSelectedError
from jetship.pin import Pin, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.targets.resolve import resolve
from jetship.tasks.request import (
    Asked,
    Given,
    Known,
    deployment_of,
    image_plan_of,
    project_of,
    targets_of,
    wheel_for,
    wheels_for,
)
from jetship.toolchain.ownparts import OwnParts, OwnSupply

DEPLOY = """\
version: 1
project: ops
targets:
  - {arch: 6.2}
  - {arch: "7.2,8.7+PTX", fat: true}
image: {repository: acme/ops, smoke: [python3, -c, pass]}
"""


@pytest.fixture
def deploy(tmp_path) -> str:
    (tmp_path / "ops").mkdir()
    path = tmp_path / "deploy.yaml"
    path.write_text(DEPLOY)
    return str(path)


@pytest.fixture
def target(catalog):
    return resolve(catalog, arch="6.2")[0]


def ask(catalog, *, deploy="none.yaml", **options):
    return [target.id for target in targets_of(catalog, Asked(**options), deploy=deploy)]


def pinned(folder: Path, name: str, target: str | None) -> Path:
    path = folder / f"{name}-1-cp311-cp311-linux_aarch64.whl"
    folder.mkdir(exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}-1.dist-info/METADATA", "")
        if target:
            pin = Pin(
                tool=PinnedTool(version="0"),
                target=target,
                platform="debian-12",
                platform_kind="emulation",
                machine="aarch64",
                torch=PinnedTorch(version="2.7.1", cuda=None, cxx11_abi=True),
                cuda=PinnedCuda(version="11.8", code=()),
                python=PinnedPython(interpreter="cp311", abi="cp311"),
                glibc_floor=None,
            )
            archive.writestr(f"{name}-1.dist-info/jetship.json", pin.to_json())
    return path


def test_the_command_line_names_the_targets(catalog, deploy):
    assert ask(catalog, arch="6.2,7.2") == ["sm62-debian-12", "sm72-debian-12"]
    assert ask(catalog, arch="7.2,6.2", fat=True) == ["sm62.sm72-debian-12"]
    assert ask(catalog, arch="8.7", deploy=deploy) == ["sm87-debian-12"]


def test_without_an_arch_deploy_yaml_names_them(catalog, deploy):
    assert ask(catalog, deploy=deploy) == ["sm62-debian-12", "sm72.sm87ptx-debian-12"]


def test_with_neither_the_user_is_told_what_to_write(catalog):
    with pytest.raises(
        ConfigError, match=r"no target: --arch is not given, and none.yaml does not exist"
    ) as caught:
        ask(catalog)
    assert "--arch 6.2" in caught.value.fix


@pytest.mark.parametrize("options", [{"platform": "debian-12"}, {"fat": True}, {"jetpack": "5.1"}])
def test_options_of_an_arch_need_one(catalog, deploy, options):
    with pytest.raises(ConfigError, match="go with --arch") as caught:
        ask(catalog, deploy=deploy, **options)
    assert caught.value.fix


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({"jetpack": "6.2"}, "sm87-jetpack-6.2"),
        ({"jetpack": "r38.4.0"}, "sm110-jetpack-7.0"),
        ({"platform": "jetpack-6.0", "fat": True}, "sm87-jetpack-6.0"),
    ],
)
def test_a_platform_of_one_arch_needs_none(catalog, deploy, options, target):
    assert ask(catalog, deploy=deploy, **options) == [target]


def test_an_empty_arch_is_not_the_same_as_none(catalog, deploy):
    with pytest.raises(ConfigError, match="--arch is empty"):
        ask(catalog, arch="", deploy=deploy)


def test_a_board_a_release_or_an_id_names_the_target(catalog, deploy):
    assert ask(catalog, board="tx2", deploy=deploy) == ["sm62-jetpack-4.6"]
    assert ask(catalog, board="orin", jetpack="6.1") == ["sm87-jetpack-6.2"]
    assert ask(catalog, arch="8.7", jetpack="6.0") == ["sm87-jetpack-6.0"]
    assert ask(catalog, target="sm72.sm87-jetpack-5.1") == ["sm72.sm87-jetpack-5.1"]
    assert ask(catalog, target="cpu-jetpack-4.6") == ["cpu-jetpack-4.6"]


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({}, "cpu-debian-12"),
        ({"platform": "jetpack-6.2"}, "cpu-jetpack-6.2"),
        ({"jetpack": "4.6.6"}, "cpu-jetpack-4.6"),
        ({"board": "tx2"}, "cpu-jetpack-4.6"),
        ({"board": "orin", "jetpack": "6.1"}, "cpu-jetpack-6.2"),
    ],
)
def test_a_wheel_without_device_code_is_for_a_platform(catalog, deploy, options, target):
    assert ask(catalog, cpu_only=True, deploy=deploy, **options) == [target]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"arch": "6.2"}, "without device code"),
        ({"fat": True}, "without device code"),
        ({"board": "orin"}, "several platforms run on a Jetson Orin"),
        ({"board": "tx2", "platform": "jetpack-6.2"}, "does not run on a Jetson TX2"),
        ({"jetpack": "6.1", "platform": "jetpack-6.0"}, "is the platform jetpack-6.2"),
    ],
)
def test_a_wheel_without_device_code_is_for_one_that_exists(catalog, options, words):
    with pytest.raises(ConfigError, match=words) as caught:
        ask(catalog, cpu_only=True, **options)
    assert caught.value.fix


@pytest.mark.parametrize(
    "more", [{"arch": "6.2"}, {"board": "tx2"}, {"fat": True}, {"cpu_only": True}]
)
def test_an_id_leaves_nothing_else_to_be_said(catalog, more):
    with pytest.raises(ConfigError, match="names arch and platform together") as caught:
        ask(catalog, target="sm62-debian-12", **more)
    assert "leave the other options out" in caught.value.fix


def test_archs_of_the_environment_are_taken_and_said_aloud(catalog, deploy, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.2;8.7+PTX")
    assert ask(catalog, jetpack="5.1") == ["sm72-jetpack-5.1", "sm87ptx-jetpack-5.1"]
    assert "--arch is taken from TORCH_CUDA_ARCH_LIST=7.2;8.7+PTX" in capsys.readouterr().err
    assert ask(catalog, deploy=deploy) == ["sm72-debian-12", "sm87ptx-debian-12"]


def test_archs_of_the_environment_come_after_all_that_was_asked_for(
    catalog, deploy, monkeypatch, capsys
):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "7.2")
    assert ask(catalog, arch="6.2") == ["sm62-debian-12"]
    assert ask(catalog, board="tx2") == ["sm62-jetpack-4.6"]
    assert ask(catalog, target="sm62-debian-12") == ["sm62-debian-12"]
    assert ask(catalog, cpu_only=True) == ["cpu-debian-12"]
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "")
    assert ask(catalog, deploy=deploy) == ["sm62-debian-12", "sm72.sm87ptx-debian-12"]
    assert "TORCH_CUDA_ARCH_LIST" not in capsys.readouterr().err


def test_a_wrong_list_in_the_environment_is_an_error(catalog, monkeypatch, capsys):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "Pascal")
    with pytest.raises(ConfigError, match=r"^TORCH_CUDA_ARCH_LIST entry 1: 'Pascal' is not a comp"):
        ask(catalog)
    assert "TORCH_CUDA_ARCH_LIST=Pascal" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "target"),
    [
        ({"arch": "7.2,8.7", "jetpack": "5.1"}, "sm72.sm87-jetpack-5.1"),
        ({"target": "sm62-debian-12"}, "sm62-debian-12"),
        ({"cpu_only": True}, "cpu-debian-12"),
        ({"board": "tx2"}, "sm62-jetpack-4.6"),
    ],
)
def test_together_is_one_target_whatever_was_asked_for(catalog, options, target):
    (found,) = targets_of(catalog, Asked(**options).together, deploy="none.yaml")
    assert found.id == target


def test_the_targets_of_a_file_stay_apart_where_nothing_was_asked_for(catalog, deploy):
    found = targets_of(catalog, Asked().together, deploy=deploy)
    assert [target.id for target in found] == ["sm62-debian-12", "sm72.sm87ptx-debian-12"]


def test_nothing_asked_for_is_nothing():
    assert Asked().nothing
    assert not Asked(arch="").nothing
    assert not Asked(cpu_only=True).nothing


def test_paths_of_the_users_own_parts_are_paths_and_the_rest_is_nothing():
    given = Given(cuda_home="/usr/local/cuda-10.2", torch_wheel="torch.whl")
    assert given.parts == OwnParts(
        cuda_home=Path("/usr/local/cuda-10.2"), torch_wheel=Path("torch.whl")
    )
    assert Given().parts == OwnParts()


@pytest.mark.parametrize("record", [Asked, Given, Known])
def test_every_option_is_explained(record):
    names = {field.name.replace("_", "-") for field in dataclasses.fields(record)}
    assert set(record.HELP) == names
    assert all(record.HELP.values())


def test_the_project_is_the_given_one_or_deploy_yamls_or_here(
    catalog, store, deploy, monkeypatch, tmp_path
):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    for folder in (empty, empty / "mine", Path(deploy).parent / "ops"):
        folder.mkdir(exist_ok=True)
        (folder / "setup.py").touch()

    def folder_of(given: str, deploy: str) -> Path:
        return project_of(catalog, given, deploy, store)[0].folder.resolve()

    assert folder_of("mine", deploy) == empty / "mine"
    assert folder_of("", deploy) == Path(deploy).parent / "ops"
    assert folder_of("", "deploy.yaml") == empty
    assert deployment_of(catalog, "deploy.yaml") is None
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist"):
        deployment_of(catalog, "none.yaml")


def test_what_deploy_yaml_says_of_the_build_is_for_its_own_project(
    catalog, store, deploy, monkeypatch, tmp_path
):
    monkeypatch.chdir(tmp_path)
    path = Path(deploy)
    path.write_text(path.read_text() + "build: {time_limit_minutes: 3}\n")
    for folder in (tmp_path / "ops", tmp_path / "mine"):
        folder.mkdir(exist_ok=True)
        (folder / "setup.py").touch()

    def minutes_of(given: str) -> float:
        return project_of(catalog, given, deploy, store)[1].time_limit_minutes

    assert [minutes_of(given) for given in ("", "ops", str(tmp_path / "ops"))] == [3, 3, 3]
    assert minutes_of("mine") == 120


def test_the_wheel_is_the_given_one_or_the_one_for_the_target(target, tmp_path):
    dist = tmp_path / "dist"
    mine = pinned(dist, "ops", target.id)
    pinned(dist, "other", "sm72-debian-12")
    pinned(dist, "plain", None)
    assert wheel_for(target, given="", dist=str(dist)) == mine
    given = tmp_path / "x.whl"
    with pytest.raises(ConfigError, match=r"x\.whl does not exist"):
        wheel_for(target, given=str(given), dist=str(dist))
    given.touch()
    assert wheel_for(target, given=str(given), dist=str(dist)) == given


def test_no_wheel_for_the_target_says_how_to_build_it(target, tmp_path):
    pinned(tmp_path, "other", "sm72-debian-12")
    for dist in (tmp_path, tmp_path / "none"):
        with pytest.raises(NothingSelectedError, match="no wheel for sm62-debian-12") as caught:
            wheel_for(target, given="", dist=str(dist))
        assert caught.value.fix == "invoke build --arch '6.2' --platform debian-12"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"cpu_only": True, "jetpack": "4.6"}, "--cpu-only --platform jetpack-4.6"),
        ({"arch": "7.2,8.7", "fat": True}, "--arch '7.2;8.7' --fat --platform debian-12"),
    ],
)
def test_the_command_that_would_build_the_wheel_names_the_same_target(
    catalog, tmp_path, options, words
):
    (target,) = targets_of(catalog, Asked(**options), deploy="none.yaml")
    with pytest.raises(NothingSelectedError) as caught:
        wheel_for(target, given="", dist=str(tmp_path))
    assert caught.value.fix == f"invoke build {words}"


def test_two_wheels_for_the_target_are_named(target, tmp_path):
    names = [pinned(tmp_path, name, target.id).name for name in ("one", "two")]
    with pytest.raises(ConfigError, match="has 2 wheels") as caught:
        wheel_for(target, given="", dist=str(tmp_path))
    assert all(name in caught.value.what for name in names)
    assert "--wheel" in caught.value.fix


def test_a_damaged_wheel_in_dist_is_named(target, tmp_path):
    (tmp_path / "bad-1-py3-none-any.whl").write_text("x")
    with pytest.raises(CheckError, match="bad-1"):
        wheel_for(target, given="", dist=str(tmp_path))


def test_what_is_wrong_with_wheels_is_told_of_all_targets(catalog, tmp_path):
    targets = resolve(catalog, arch="6.2,7.2,8.7")
    dist = tmp_path / "dist"
    mine = pinned(dist, "a", targets[0].id)
    own = OwnSupply(OwnParts(), {})
    with pytest.raises(NothingSelectedError) as caught:
        wheels_for(targets, given="", dist=str(dist), own=own)
    assert "no wheel for sm72-debian-12; " in caught.value.what
    assert "no wheel for sm87-debian-12" in caught.value.what
    assert caught.value.fix.count("invoke build") == 2
    assert wheels_for(targets[:1], given="", dist=str(dist), own=own) == [(targets[0], mine)]


def test_the_image_plan_has_to_be_there(catalog, deploy, tmp_path, monkeypatch):
    assert image_plan_of(catalog, deploy)[1].repository == "acme/ops"
    monkeypatch.chdir(tmp_path)
    bare = tmp_path / "bare.yaml"
    bare.write_text("targets: [{arch: 6.2}]\n")
    with pytest.raises(ConfigError, match="has no `image`"):
        image_plan_of(catalog, str(bare))
    (tmp_path / "deploy.yaml").unlink()
    with pytest.raises(ConfigError, match="does not exist, which says the image's name"):
        image_plan_of(catalog, "deploy.yaml")

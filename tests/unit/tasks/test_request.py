import zipfile
from pathlib import Path

import pytest
from jetship.errors import CheckError, ConfigError, NothingSelectedError
from jetship.pin import Pin, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.targets.resolve import resolve
from jetship.tasks.request import deployment_of, project_folder, targets_of, wheel_for

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


def ask(catalog, **options):
    words = {"arch": None, "platform": "", "fat": False, "deploy": "none.yaml"}
    return [target.id for target in targets_of(catalog, **(words | options))]


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
        ConfigError, match=r"no target: --arch is not given and there is no none"
    ) as caught:
        ask(catalog)
    assert "--arch 6.2" in caught.value.fix


@pytest.mark.parametrize("options", [{"platform": "debian-12"}, {"fat": True}])
def test_options_of_an_arch_need_one(catalog, deploy, options):
    with pytest.raises(ConfigError, match="go with --arch") as caught:
        ask(catalog, deploy=deploy, **options)
    assert caught.value.fix


def test_an_empty_arch_is_not_the_same_as_none(catalog, deploy):
    with pytest.raises(ConfigError, match="--arch is empty"):
        ask(catalog, arch="", deploy=deploy)


def test_the_project_is_the_given_one_or_deploy_yamls_or_here(
    catalog, deploy, monkeypatch, tmp_path
):
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    assert project_folder(catalog, "mine", deploy) == Path("mine")
    assert project_folder(catalog, "", deploy) == Path(deploy).parent / "ops"
    assert project_folder(catalog, "", "deploy.yaml") == Path()
    assert deployment_of(catalog, "deploy.yaml") is None
    with pytest.raises(ConfigError, match=r"none\.yaml is no file"):
        deployment_of(catalog, "none.yaml")


def test_the_wheel_is_the_given_one_or_the_one_for_the_target(target, tmp_path):
    dist = tmp_path / "dist"
    mine = pinned(dist, "ops", target.id)
    pinned(dist, "other", "sm72-debian-12")
    pinned(dist, "plain", None)
    assert wheel_for(target, given="", dist=str(dist)) == mine
    assert wheel_for(target, given="x.whl", dist=str(dist)) == Path("x.whl")


def test_no_wheel_for_the_target_says_how_to_build_it(target, tmp_path):
    pinned(tmp_path, "other", "sm72-debian-12")
    for dist in (tmp_path, tmp_path / "none"):
        with pytest.raises(NothingSelectedError, match="no wheel for sm62-debian-12") as caught:
            wheel_for(target, given="", dist=str(dist))
        assert caught.value.fix == "invoke build --arch '6.2' --platform debian-12"


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

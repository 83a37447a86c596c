import pytest

DEPLOY = """\
targets: [{arch: 6.2}, {arch: 7.2}]
image: {repository: acme/ops, smoke: [python3, -c, pass]}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "deploy.yaml").write_text(DEPLOY)
    (tmp_path / "dist").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--index", "i.json"], "--index goes with --all"),
        (["--all", "--arch", "6.2"], "--all takes targets, wheels and base images from"),
        (["--all", "--target", "sm62-debian-12"], "--all takes targets"),
        (["--all", "--wheel", "a.whl"], "--all takes targets"),
        (["--all", "--base", "l4t:1"], "--all takes targets"),
    ],
)
def test_options_that_contradict_all_are_refused(call, here, words, said):
    code, _, err = call("image", *words)
    assert code == 2
    assert said in err


def test_all_takes_every_target_of_deploy_yaml_whatever_the_environment_says(
    call, here, monkeypatch
):
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.7")
    code, _, err = call("image", "--all")
    assert code == 3
    assert "no wheel for sm62-debian-12; dist/ has no wheel for sm72-debian-12" in err
    assert not list(here.glob("dist/*"))

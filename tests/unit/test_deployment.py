import json
from pathlib import Path

import pytest
from jetship.errors import ConfigError
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import load_deployment, load_fleet, matrix, own_paths_of
from jetship.targets.device import Address

CATALOG = Catalog.load()
REPOSITORY = Path(__file__).parents[2]
GOOD = """\
version: 1
project: ops
targets:
  - {arch: 6.2}
  - {arch: "7.2,8.7+PTX", fat: true}
image: {repository: acme/ops, smoke: [python3, -c, pass]}
fleet:
  devices:
    - {name: one, address: ops@192.0.2.1, board: tx2}
    - {name: two, address: "ops@192.0.2.2:2222", board: orin}
strategy: {canary: 1, wave: 2, max_failures: 0}
"""


def write(folder: Path, *changes: tuple[str, str]) -> Path:
    text = GOOD
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    (folder / "ops").mkdir(exist_ok=True)
    path = folder / "deploy.yaml"
    path.write_text(text)
    return path


def problems(folder: Path, *changes: tuple[str, str]) -> str:
    path = write(folder, *changes)
    with pytest.raises(ConfigError) as caught:
        load_deployment(path, CATALOG)
    return str(caught.value).replace(str(path), "deploy.yaml")


def test_the_repositorys_own_file_is_valid():
    deployment, fleet = load_fleet(REPOSITORY / "deploy.yaml", CATALOG)
    targets = deployment.resolve_targets(CATALOG)
    assert [t.id for t in targets] == ["sm62-debian-12", "sm72-debian-12", "sm87-debian-12"]
    assert fleet.targets == targets
    assert [device.target for device in fleet.devices] == list(targets)


def test_the_commented_example_of_own_parts_is_valid(tmp_path):
    lines = (REPOSITORY / "deploy.yaml").read_text().splitlines()
    start = lines.index("# own_parts:")
    end = lines.index("", start)
    path = tmp_path / "deploy.yaml"
    path.write_text("\n".join(line.removeprefix("# ") for line in lines[start:end]))
    found = own_paths_of(path, CATALOG)
    assert found["jetpack-4.6"].cuda_home == "/usr/local/cuda-10.2"
    assert found["jetpack-5.1"].image == "dustynv/l4t-pytorch:r35.4.1"
    assert found["jetpack-5.1"].python_dev == "~/jetson/python3.8"


def test_matrix_is_what_fromjson_takes(tmp_path):
    deployment = load_deployment(write(tmp_path), CATALOG)
    document = json.loads(json.dumps(matrix(deployment.resolve_targets(CATALOG))))
    assert document == {
        "include": [
            {
                "id": "sm62-debian-12",
                "arch": "6.2",
                "platform": "debian-12",
                "fat": False,
                "runner": "ubuntu-latest",
                "artifact": "wheel-sm62-debian-12",
            },
            {
                "id": "sm72.sm87ptx-debian-12",
                "arch": "7.2,8.7+PTX",
                "platform": "debian-12",
                "fat": True,
                "runner": "ubuntu-latest",
                "artifact": "wheel-sm72.sm87ptx-debian-12",
            },
        ]
    }


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("canary", "canari"), "deploy.yaml:11:12: unknown key 'strategy.canari'; did you mean"),
        (("acme/ops", "Acme/ops:1"), "deploy.yaml:6:9: image.repository: 'Acme/ops:1' is not an"),
        (("ops@192.0.2.1", "192.0.2.1"), "deploy.yaml:9:19: fleet.devices.0.address: '192.0.2.1'"),
        ((":2222", ":77777"), "deploy.yaml:10:19: fleet.devices.1.address: port 77777"),
        (("arch: 6.2", "arch: 9.9"), "deploy.yaml:4:6: arch: no GPU of compute"),
        (("{arch: 6.2}", "{arch: 6.2, platform: dbian-12}"), "deploy.yaml:4:17: platform 'dbian"),
        (("{arch: 6.2}", "{arch: 7.0}"), "deploy.yaml:9:43: no target has 6.2, the arch of the"),
        (
            ("board: tx2", "board: tx3"),
            "deploy.yaml:9:43: board 'tx3' is not known; did you mean 'tx2'? known boards: nano",
        ),
        (("name: two", "name: one"), "deploy.yaml:10:8: a device named 'one' is there already"),
        (("canary: 1", "canary: 3"), "deploy.yaml:11:12: 3 canaries, and the fleet has 2 devices"),
        (("project: ops", "project: nope"), "deploy.yaml:2:1: there is no folder or sdist 'nope'"),
        (("orin}", "orin, target: sm62-debian-12}"), "deploy.yaml:10:63: sm62-debian-12 has no"),
        (("orin}", "orin, target: sm87-debian-11}"), "deploy.yaml:10:63: 'sm87-debian-11' is not"),
        (
            ("orin}", "orin, target: 6.2/debian-12}"),
            "deploy.yaml:10:63: sm62-debian-12 has no code",
        ),
        (("  - {arch: 6.2}", "  - {arch: 6.2}\n  - {arch: 6.2}"), "deploy.yaml:5:5: target sm62"),
        (("version: 1", "version: 2"), "deploy.yaml:1:1: version: "),
    ],
)
def test_a_problem_is_named_with_its_place(tmp_path, change, expected):
    assert expected in problems(tmp_path, change)


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        ('env: {"B=C": x}', "{}:1:15: build.env.B=C: key 'B=C' is no name of a variable: it has"),
        ('env: {A: "x\\0y"}', r"{}:1:15: build.env.A: 'x\x00y' has a NUL in it"),
        ('env: {"": x}', "{}:1:15: build.env: key '' is too short"),
        ("env: {3: x}", "{}:1:15: build.env.3: key 3 is not text"),
        ("env: {A: b, CC: x}", "{}:1:21: build.env.CC: key CC cannot be set here"),
        ("constraints: [a<2, '!!']", "{}:1:28: build.constraints.1: '!!' is no constraint such as"),
    ],
)
def test_what_the_build_cannot_be_given_is_told_in_the_words_of_the_file(tmp_path, build, expected):
    path = tmp_path / "deploy.yaml"
    path.write_text(f"build: {{{build}}}\n")
    with pytest.raises(ConfigError) as caught:
        load_deployment(path, CATALOG)
    assert str(caught.value).startswith(expected.format(path))
    assert "[key]" not in str(caught.value)


def test_a_target_with_a_misspelt_key_is_not_one_target_too_few(tmp_path):
    found = problems(tmp_path, ("{arch: 6.2}", "{arhc: 6.2}"))
    assert "unknown key 'targets.0.arhc'; did you mean 'arch'?" in found
    assert "too short" not in found


OWN = """\
own_parts:
  jetpack-4.6: {cuda_home: /opt/cuda-10.2, torch_wheel: own/torch.whl}
  jetpack-5.1: {image: "l4t:r35"}
"""


def with_own(folder: Path, *changes: tuple[str, str]) -> Path:
    path = write(folder)
    text = OWN
    for old, new in changes:
        assert old in text
        text = text.replace(old, new, 1)
    path.write_text(path.read_text() + text)
    return path


def test_own_parts_are_named_by_platform(tmp_path):
    path = with_own(tmp_path)
    found = own_paths_of(path, CATALOG)
    assert found == load_deployment(path, CATALOG).own_parts
    assert found["jetpack-4.6"].cuda_home == "/opt/cuda-10.2"
    assert found["jetpack-5.1"].image == "l4t:r35"
    path.write_text(f"{OWN}nobody: knows\n")
    assert own_paths_of(path, CATALOG) == found


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("jetpack-4.6", "jetpck-4.6"), "13:3: platform 'jetpck-4.6' is not known; did you mean"),
        (("cuda_home", "cuda-home"), "own_parts.jetpack-4.6.cuda-home'; did you mean 'cuda_home'?"),
        (("/opt/cuda-10.2", "''"), "13:17: own_parts.jetpack-4.6.cuda_home: '' is too short"),
        (("/opt/cuda-10.2", ""), "cuda_home: nothing (null) is not text"),
        (('image: "l4t:r35"', "image: x, sysroot: y"), "14:17: image and sysroot both give the"),
        (('{image: "l4t:r35"}', "l4t"), "14:3: own_parts.jetpack-5.1: 'l4t' is not a mapping"),
    ],
)  # fmt: skip
def test_own_parts_that_are_wrong_are_told_with_their_place(tmp_path, change, expected):
    path = with_own(tmp_path, change)
    for read in (load_deployment, own_paths_of):
        with pytest.raises(ConfigError) as caught:
            read(path, CATALOG)
        assert expected in str(caught.value).replace(f"{path}:", "")


def test_all_that_is_wrong_of_own_parts_comes_at_once_with_the_rest(tmp_path):
    path = with_own(tmp_path, ("jetpack-4.6", "a"), ("jetpack-5.1", "b"))
    path.write_text(path.read_text().replace("canary: 1", "canary: 9"))
    with pytest.raises(ConfigError, match="has 3 problems"):
        load_deployment(path, CATALOG)
    with pytest.raises(ConfigError, match="has 2 problems"):
        own_paths_of(path, CATALOG)


def test_all_problems_come_at_once(tmp_path):
    text = problems(tmp_path, ("board: tx2", "board: tx3"), ("canary: 1", "canary: 9"))
    assert text.startswith("deploy.yaml has 2 problems\n")
    assert "deploy.yaml:9:43: board" in text
    assert "deploy.yaml:11:12: 9 canaries" in text


def test_several_fitting_targets_need_a_choice(tmp_path):
    more = ("  - {arch: 6.2}", '  - {arch: 6.2}\n  - {arch: "6.2,7.0", fat: true}')
    assert "2 targets fit the board 'tx2'; add `target:` with one of" in problems(tmp_path, more)
    chosen = ("board: tx2}", "board: tx2, target: 6.2/debian-12}")
    _, fleet = load_fleet(write(tmp_path, more, chosen), CATALOG)
    assert fleet.devices[0].target.id == "sm62-debian-12"


def test_fleet_and_strategy_may_be_left_out(tmp_path):
    path = write(tmp_path)
    path.write_text(path.read_text().split("fleet:")[0])
    assert load_deployment(path, CATALOG).fleet.devices == ()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("root@192.0.2.1", Address("root", "192.0.2.1", 22)),
        ("ops@tx2.example.net:2222", Address("ops", "tx2.example.net", 2222)),
        ("ops@[2001:db8::1]:23", Address("ops", "2001:db8::1", 23)),
        ("ops@[2001:db8::1]", Address("ops", "2001:db8::1", 22)),
    ],
)
def test_addresses_round_trip(text, address):
    assert Address.parse(text) == address
    assert str(address) == text


@pytest.mark.parametrize(
    "text", ["tx2", "@tx2", "ops@", "ops@-oProxyCommand=x", "ops@2001:db8::1", "ops@a:0", "o s@a"]
)
def test_other_addresses_are_refused(text):
    with pytest.raises(ValueError, match=r"address|port"):
        Address.parse(text)


@pytest.mark.parametrize(
    "text",
    ["version: 1\n", "own_parts:\n  jetpack-4.6: {cuda_home: /c}\n", "targets: [{arch: 6.2}]\n"],
)
def test_only_what_a_task_uses_has_to_be_there(tmp_path, text):
    path = tmp_path / "deploy.yaml"
    path.write_text(text)
    found = load_deployment(path, CATALOG)
    assert (found.version, found.project, found.image) == (1, ".", None)


def test_wrong_keys_and_what_is_not_known_are_told_together_in_the_order_of_the_file(tmp_path):
    said = problems(
        tmp_path,
        ("project: ops", "projct: ops"),
        ("{arch: 6.2}", "{arch: 6.2, platform: debian-21}"),
        ("fat: true", "fat: perhaps"),
        ("board: tx2", "board: tx9"),
        ("canary: 1", "canary: -1"),
    )
    lines = said.splitlines()
    assert lines[0] == "deploy.yaml has 5 problems"
    places = [line.split()[0] for line in lines[1:6]]
    assert [int(place.split(":")[1]) for place in places] == [2, 4, 5, 9, 11]
    assert "platform 'debian-21' is not known" in lines[2]
    assert "board 'tx9' is not known" in lines[4]

import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from jetship import yamlfile
from jetship.errors import ConfigError
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import Deployment, load_fleet
from jetship.targets.schema import SCHEMA_FILE, deployment_schema

CATALOG = Catalog.load()
REPOSITORY = Path(__file__).parents[3]
SCHEMA = deployment_schema(CATALOG)


def refusal(text):
    """What an editor says of a file; it reads YAML by the rules of YAML 1.2, floats and all."""
    validator = jsonschema.Draft202012Validator(SCHEMA)
    return "; ".join(error.message for error in validator.iter_errors(yaml.safe_load(text)))


def test_the_schema_that_ships_is_the_models():
    fix = "write it anew: invoke schema --out pkg/jetship/targets/deploy.schema.json"
    assert json.loads(SCHEMA_FILE.read_text()) == SCHEMA, fix


def test_it_is_a_schema():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


def test_the_repositorys_file_fits_as_an_editor_reads_it_and_as_jetship_does():
    path = REPOSITORY / "deploy.yaml"
    assert refusal(path.read_text()) == ""
    jsonschema.validate(yamlfile.read(path).data, SCHEMA)
    first = path.read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA_FILE.relative_to(REPOSITORY)}"


def test_each_key_says_what_it_means():
    undescribed = [
        f"{name}.{key}"
        for name, body in {"Deployment": SCHEMA, **SCHEMA["$defs"]}.items()
        if name not in ("OwnPaths", "BuildSettings")  # their own text says it of all keys
        for key, value in body["properties"].items()
        if "description" not in value and "$ref" not in value
    ]
    assert undescribed == []
    assert all(body["description"] for body in SCHEMA["$defs"].values())


def test_the_keys_are_the_models():
    assert set(SCHEMA["properties"]) == set(Deployment.model_fields)


def test_known_boards_are_offered_and_others_allowed_with_a_file_that_brings_them():
    board = SCHEMA["$defs"]["DeviceRow"]["properties"]["board"]
    assert {"orin", "orin-nano"} <= {*board["anyOf"][0]["enum"]}
    fleet = "fleet: {devices: [{name: a, address: o@a, board: carrier}]}"
    assert "'carrier' does not match" in refusal(fleet)
    assert not refusal(f"targets_file: mine.yaml\n{fleet}")


@pytest.mark.parametrize(
    "name", ["orin", "orin-nano", "jetson-orin-nano", "Jetson Orin Nano", "TX2", "AGX_Orin"]
)
def test_an_editor_takes_a_board_by_all_names_that_jetship_takes(name):
    assert CATALOG.board(name)
    assert not refusal(f"fleet: {{defaults: {{board: {name}}}}}")


def test_defaults_are_as_people_write_them():
    strategy = SCHEMA["$defs"]["Strategy"]["properties"]
    assert (strategy["canary"]["default"], strategy["wave"]["default"]) == (1, 1)
    assert strategy["max_clock_skew"]["default"] == 300


@pytest.mark.parametrize(
    "text",
    [
        "targets: [{arch: 6.2}, {arch: 7}, {arch: '6.2,7.2+PTX', fat: true}]",
        "strategy: {canary: 10%, wave: [1, 25%], pause: confirm, max_clock_skew: 2.5}",
        "image: {repository: a/b, smoke: [x], environment: {LEVEL: 3, RATE: 0.5}}",
        "image: {repository: a/b, smoke: [x], mounts: [/a:/b, 'v:/c:ro', '/d:/e:rw']}",
        "image: {repository: a/b, smoke: [x], ports: ['80:80', '127.0.0.1:8:9/udp', '[::1]:1:2']}",
        "image: {repository: r.example/a, smoke: [x], user: '1000:44', tag: 'v{wheel}'}",
        "image: {repository: a, smoke: [x], devices: [/dev/a, '/dev/a:/dev/b:rw'], registry: r:5}",
        "fleet: {devices: [{name: a, address: 'o@[::1]:22'}, {name: b, address: me@b.example}]}",
    ],
)
def test_what_jetship_takes_an_editor_takes(text, tmp_path):
    assert refusal(text) == ""
    (tmp_path / "deploy.yaml").write_text(text)
    yamlfile.load(tmp_path / "deploy.yaml", Deployment)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("stratgy: {}", "'stratgy' was unexpected"),
        ("strategy: {canary: -1}", "not valid under any"),
        ("strategy: {canary: 101%}", "not valid under any"),
        ("strategy: {swap: blue}", "is not one of"),
        ("image: {repository: a/b}", "'smoke' is a required property"),
        ("fleet: {devices: [{host: a}]}", "'name' is a required property"),
        ("version: 2", "1 was expected"),
        ("image: {repository: A/B, smoke: [x]}", "does not match"),
        ("image: {repository: 'a/b:1', smoke: [x]}", "does not match"),
        ("image: {repository: a, smoke: [x], ports: ['80']}", "does not match"),
        ("image: {repository: a, smoke: [x], mounts: [data]}", "does not match"),
        ("image: {repository: a, smoke: [x], mounts: ['/a:b']}", "does not match"),
        ("image: {repository: a, smoke: [x], devices: [video0]}", "does not match"),
        ("image: {repository: a, smoke: [x], user: 'a b'}", "does not match"),
        ("image: {repository: a, smoke: [x], tag: 'a:b'}", "does not match"),
        ("image: {repository: a, smoke: [x], base: {debian: x}}", "is not one of"),
        ("fleet: {devices: [{name: a, address: host}]}", "does not match"),
        ("fleet: {defaults: {board: orinn}, devices: [{name: a, address: o@a}]}", "does not match"),
        ("targets: [{arch: 8.7, platform: jetpack}]", "is not one of"),
        ("own_parts: {jetpack: {}}", "is not one of"),
    ],
)
def test_what_jetship_refuses_an_editor_refuses(text, said, tmp_path):
    assert said in refusal(text)
    (tmp_path / "deploy.yaml").write_text(text)
    with pytest.raises(ConfigError):
        load_fleet(tmp_path / "deploy.yaml", CATALOG)

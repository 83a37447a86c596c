import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from jetship import yamlfile
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import Deployment
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


def test_known_boards_are_offered_and_others_allowed():
    board = SCHEMA["$defs"]["DeviceRow"]["properties"]["board"]
    assert "orin" in board["anyOf"][0]["enum"]
    assert not refusal("fleet: {devices: [{name: a, address: o@a, board: carrier}]}")


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
    ],
)
def test_what_jetship_refuses_an_editor_refuses(text, said):
    assert said in refusal(text)

import json

from jetship.targets.schema import SCHEMA_FILE


def test_the_schema_is_printed_or_written(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = call("schema")
    assert code == 0
    assert json.loads(out) == json.loads(SCHEMA_FILE.read_text())
    code, out, _ = call("schema", "--out", "deploy.schema.json")
    assert (code, out) == (0, "# yaml-language-server: $schema=deploy.schema.json\n")
    assert (tmp_path / "deploy.schema.json").read_text() == SCHEMA_FILE.read_text()


def test_boards_of_your_own_are_offered(call, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    board = "name: carrier, title: C, arch: 6.2, kind: jetson, platforms: [debian-12], source: x"
    (tmp_path / "own.yaml").write_text(f"boards: [{{{board}}}]\n")
    code, out, err = call("schema", "--targets-file", "own.yaml")
    assert code == 0, err
    assert (
        "carrier" in json.loads(out)["$defs"]["Reached"]["properties"]["board"]["anyOf"][0]["enum"]
    )

import json

import pytest
import yaml

DEPLOY = """\
targets: [{arch: 8.7, platform: jetpack-6.2}]
image: {repository: acme/ops, smoke: [python3, -c, pass]}
fleet: {devices: [{name: one, address: ops@one, board: orin}]}
strategy: {wave: 25%}
"""
ROW = {
    "target": "sm87-jetpack-6.2",
    "platform": "jetpack-6.2",
    "machine": "aarch64",
    "archs": ["8.7"],
    "l4t": ["r36.4.0"],
    "boards": ["orin"],
    "image": "acme/ops:1-sm87-jetpack-6.2",
    "id": "sha256:1",
    "digest": None,
    "architecture": "arm64",
    "version": "1",
    "wheel": "ops.whl",
    "wheel_sha256": "2",
}


@pytest.fixture
def here(tmp_path, monkeypatch):
    (tmp_path / "deploy.yaml").write_text(DEPLOY)
    (tmp_path / "dist").mkdir()
    index = {"schema_version": 1, "images": [ROW]}
    (tmp_path / "dist/images.json").write_text(json.dumps(index))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_manifests_are_printed_with_what_to_know_before(call, here):
    code, out, err = call("k8s")
    assert code == 0, err
    assert "#   kubectl label node one jetship/target=sm87-jetpack-6.2 jetship/board=orin" in out
    kinds = [one["kind"] for one in yaml.safe_load_all(out)]
    assert kinds == ["Namespace", "RuntimeClass", "DaemonSet"]


def test_a_file_and_a_list_say_the_same(call, here):
    code, out, _ = call("k8s", "--out", "k.yaml", "--namespace", "line")
    assert (code, out) == (0, "")
    written = list(yaml.safe_load_all((here / "k.yaml").read_text()))
    code, out, _ = call("k8s", "--json", "--namespace", "line")
    assert json.loads(out) == {"apiVersion": "v1", "kind": "List", "items": written}
    assert written[0]["metadata"]["name"] == written[2]["metadata"]["namespace"] == "line"


def test_without_an_index_or_with_an_old_one_it_says_how_to_get_one(call, here):
    (here / "deploy.yaml").write_text(DEPLOY.replace("[{arch", "[{arch: 6.2}, {arch", 1))
    code, _, err = call("k8s")
    assert code == 3
    assert "has none for sm62-debian-12" in err
    (here / "dist/images.json").unlink()
    code, _, err = call("k8s")
    assert code == 3
    assert "image --all writes it" in err


def test_devices_need_privileged_pods(call, here):
    text = DEPLOY.replace("smoke:", "devices: [/dev/video0], smoke:")
    (here / "deploy.yaml").write_text(text)
    code, _, err = call("k8s")
    assert code == 2
    assert "--privileged" in err
    code, out, _ = call("k8s", "--privileged")
    assert code == 0
    assert "type: CharDevice" in out

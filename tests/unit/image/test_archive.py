import hashlib
import io
import json
import os
import tarfile

import pytest
from jetship.errors import ConfigError, ImageError
from jetship.image.archive import plan
from jetship.image.tree import DEFAULT_EPOCH, Layer, write_tar


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.delenv("SOURCE_DATE_EPOCH", raising=False)
    return fill(tmp_path / "root")


def fill(folder, names=("b", "a", "c")):
    (folder / "usr/bin").mkdir(parents=True)
    for name in names:
        (folder / "usr/bin" / name).write_text(f"program {name}")
    (folder / "usr/bin/a").chmod(0o755)
    (folder / "bin").symlink_to("usr/bin")
    (folder / "tmp").mkdir()
    (folder / "tmp").chmod(0o1777)
    return folder


def archive_of(*layers, machine="aarch64", tag="acme/base:1"):
    out = io.BytesIO()
    plan(layers, machine, {"title": "base"}).write(out, tag)
    return out.getvalue()


def opened(data):
    return tarfile.open(fileobj=io.BytesIO(data))


def test_same_content_gives_the_same_bytes(root, tmp_path):
    other = fill(tmp_path / "other", names=("c", "a", "b"))
    os.utime(other / "usr/bin/a", (1, 1))
    assert archive_of(Layer(root)) == archive_of(Layer(other))
    (other / "usr/bin/a").write_text("another")
    assert archive_of(Layer(root)) != archive_of(Layer(other))


def test_config_says_arm64(root):
    with opened(archive_of(Layer(root))) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))
        (layer,) = manifest["Layers"]
        content = archive.extractfile(layer).read()
    assert manifest["RepoTags"] == ["acme/base:1"]
    assert (config["architecture"], config["variant"], config["os"]) == ("arm64", "v8", "linux")
    assert config["config"]["Labels"] == {"title": "base"}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(content).hexdigest()}"]
    assert len(config["history"]) == 1


def test_config_of_a_server_says_amd64(root):
    with opened(archive_of(Layer(root), machine="x86_64")) as archive:
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))
    assert config["architecture"] == "amd64"
    assert "variant" not in config


def test_digest_stands_for_all_layers(root, tmp_path):
    second = tmp_path / "second"
    second.mkdir()
    (second / "file").write_text("1")
    before = plan([Layer(root), Layer(second, prefix="opt")], "aarch64", {})
    (second / "file").write_text("2")
    after = plan([Layer(root), Layer(second, prefix="opt")], "aarch64", {})
    assert before.digest != after.digest
    assert before.digests[0] == after.digests[0]


def test_layer_keeps_modes_and_links_and_belongs_to_root(root):
    out = io.BytesIO()
    write_tar(out, Layer(root))
    with opened(out.getvalue()) as layer:
        members = {member.name: member for member in layer}
    assert list(members) == ["bin", "tmp", "usr", "usr/bin", "usr/bin/a", "usr/bin/b", "usr/bin/c"]
    assert members["bin"].linkname == "usr/bin"
    assert members["tmp"].mode == 0o1777
    assert members["usr/bin/a"].mode == 0o755
    for member in members.values():
        assert (member.uid, member.gid, member.uname, member.gname) == (0, 0, "", "")
        assert member.mtime == DEFAULT_EPOCH


def test_plain_modes_do_not_show_the_umask(root):
    (root / "usr").chmod(0o700)
    (root / "usr/bin/a").chmod(0o700)
    (root / "usr/bin/b").chmod(0o600)
    out = io.BytesIO()
    write_tar(out, Layer(root, prefix="opt/x", plain_modes=True), extra={"first": b"1"})
    with opened(out.getvalue()) as layer:
        modes = {member.name: member.mode for member in layer}
    assert list(modes)[:3] == ["first", "opt", "opt/x"]
    assert modes["opt/x/usr"] == modes["opt/x/usr/bin/a"] == 0o755
    assert modes["opt/x/usr/bin/b"] == 0o644


def test_source_date_epoch_is_the_time_stamp(root, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    with opened(archive_of(Layer(root))) as archive:
        assert {member.mtime for member in archive} == {1700000000}
        (manifest,) = json.load(archive.extractfile("manifest.json"))
        config = json.load(archive.extractfile(manifest["Config"]))
    assert config["created"] == "2023-11-14T22:13:20Z"


def test_malformed_source_date_epoch_is_named(root, monkeypatch):
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "yesterday")
    with pytest.raises(ConfigError, match="SOURCE_DATE_EPOCH is 'yesterday'"):
        archive_of(Layer(root))


def test_a_pipe_is_refused(root):
    os.mkfifo(root / "pipe")
    with pytest.raises(ImageError, match="neither file, folder nor link"):
        archive_of(Layer(root))

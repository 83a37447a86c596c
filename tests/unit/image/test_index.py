import json

import pytest
from jetship.errors import ConfigError, NothingSelectedError
from jetship.image.build import ImageResult
from jetship.image.index import ImageIndex, Made
from jetship.store import sha256_of
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from test_build import pack

CATALOG = Catalog.load()


def made(tmp_path, target, digest=""):
    image = ImageResult("acme/ops:1.0", f"sha256:{'1' * 64}", "arm64", digest)
    return Made(target, pack(tmp_path / target.id), image)


def test_the_index_says_of_each_target_what_a_rollout_needs(tmp_path):
    jetson, server = (
        resolve(CATALOG, board="orin", jetpack="6.2")[0],
        resolve(CATALOG, arch="8.0", platform="server-cuda-11.8")[0],
    )
    rows = [made(tmp_path, jetson), made(tmp_path, server, f"sha256:{'2' * 64}")]
    ImageIndex.of(rows, CATALOG).write(tmp_path / "out/images.json")
    document = json.loads((tmp_path / "out/images.json").read_text())
    assert document["schema_version"] == 1
    first, second = document["images"]
    assert first == {
        "target": "sm87-jetpack-6.2",
        "platform": "jetpack-6.2",
        "machine": "aarch64",
        "archs": ["8.7"],
        "l4t": list(jetson.platform.l4t),
        "boards": ["orin"],
        "image": "acme/ops:1.0",
        "id": f"sha256:{'1' * 64}",
        "digest": None,
        "architecture": "arm64",
        "version": "1.0+debian12",
        "wheel": "ops-1.0-cp311-cp311-linux_aarch64.whl",
        "wheel_sha256": sha256_of(rows[0].wheel),
    }
    assert (second["l4t"], second["boards"]) == ([], ["a100"])
    assert second["digest"] == f"sha256:{'2' * 64}"


def test_an_index_reads_back_and_names_what_is_pulled(tmp_path):
    jetson = resolve(CATALOG, board="orin", jetpack="6.2")[0]
    server = resolve(CATALOG, arch="8.0", platform="server-cuda-11.8")[0]
    index = ImageIndex.of([made(tmp_path, jetson), made(tmp_path, server, "sha256:22")], CATALOG)
    index.write(tmp_path / "images.json")
    assert ImageIndex.read(tmp_path / "images.json") == index
    assert index.require(jetson).reference == "acme/ops:1.0"
    assert index.require(server).reference == "acme/ops@sha256:22"
    with pytest.raises(NothingSelectedError, match="none for sm62-debian-12"):
        index.require(resolve(CATALOG, arch="6.2")[0])


def test_what_is_no_index_is_told(tmp_path):
    with pytest.raises(NothingSelectedError, match="invoke image --all writes it"):
        ImageIndex.read(tmp_path / "images.json")
    (tmp_path / "images.json").write_text('{"schema_version": 2, "images": [{"target": "x"}]}')
    with pytest.raises(ConfigError, match=r"images\.json:1:2: schema_version: 2 is not"):
        ImageIndex.read(tmp_path / "images.json")

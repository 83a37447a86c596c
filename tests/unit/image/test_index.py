import json

from jetship.image.build import ImageResult
from jetship.image.index import Indexed, write_index
from jetship.store import sha256_of
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from test_build import pack

CATALOG = Catalog.load()


def indexed(tmp_path, target, digest=""):
    image = ImageResult("acme/ops:1.0", f"sha256:{'1' * 64}", "arm64", digest)
    return Indexed(target, pack(tmp_path / target.id), image)


def test_the_index_says_of_each_target_what_a_rollout_needs(tmp_path):
    jetson, server = (
        resolve(CATALOG, board="orin", jetpack="6.2")[0],
        resolve(CATALOG, arch="8.0", platform="server-cuda-11.8")[0],
    )
    rows = [indexed(tmp_path, jetson), indexed(tmp_path, server, f"sha256:{'2' * 64}")]
    write_index(tmp_path / "out/images.json", rows, CATALOG)
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

"""What an engine saves of an image, as its versions write it, becomes layers in the cache."""

import gzip
import hashlib
import io
import json
import tarfile
import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import zstandard
from jetship.errors import DownloadError, ImageError
from jetship.fleet.layers import LayeredImage, layered_image
from jetship.store import Store

LAYERS = (b"one" * 5000, b"two" * 7000, b"{three" * 100)


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


CONFIG = json.dumps(
    {"rootfs": {"diff_ids": [f"sha256:{digest(data)}" for data in LAYERS]}}
).encode()


def archive(files: dict[str, bytes]) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    return out.getvalue()


def classic() -> bytes:
    """Engines up to 24."""
    names = [f"{number}/layer.tar" for number in range(3)]
    files = dict(zip(names, LAYERS, strict=True)) | {"0/json": b"{}", "0/VERSION": b"1.0"}
    row = {"Config": f"{digest(CONFIG)}.json", "RepoTags": None, "Layers": names}
    manifest = json.dumps([row]).encode()
    return archive(files | {f"{digest(CONFIG)}.json": CONFIG, "manifest.json": manifest})


def layout(*packed: bytes) -> bytes:
    """Engines from 25 on: blobs by their digests, packed where containerd keeps them."""
    blobs = {f"blobs/sha256/{digest(data)}": data for data in (*packed, CONFIG)}
    config = f"blobs/sha256/{digest(CONFIG)}"
    row = {"Config": config, "RepoTags": None, "Layers": list(blobs)[:3]}
    other = {"Config": "blobs/sha256/of-another-machine", "RepoTags": None, "Layers": []}
    manifest = json.dumps([other, row]).encode()
    return archive({"index.json": b"{}"} | blobs | {"manifest.json": manifest})


SAVED = {
    "classic": classic(),
    "layout": layout(*LAYERS),
    "gzip": layout(*(gzip.compress(data) for data in LAYERS)),
    "zstd": layout(*(zstandard.compress(data) for data in LAYERS)),
}


class Engine:
    """Has one image, and counts how often it is saved."""

    def __init__(self, saved: bytes) -> None:
        self.saved = saved
        self.asked = 0
        wanted = json.loads(CONFIG)["rootfs"]["diff_ids"]
        image = SimpleNamespace(id="sha256:" + "5" * 64, attrs={"RootFS": {"Layers": wanted}})
        self.images = SimpleNamespace(get=lambda _: image)
        self.api = self

    def get_image(self, _: str) -> Iterator[bytes]:
        self.asked += 1
        for start in range(0, len(self.saved), 1000):
            yield self.saved[start : start + 1000]


@pytest.mark.parametrize("form", SAVED)
def test_each_form_gives_the_same(store, form):
    engine = Engine(SAVED[form])
    found = layered_image(engine, "it", store)
    assert found.id == f"sha256:{digest(CONFIG)}"
    assert found.config == CONFIG
    for layer, data in zip(found.layers, LAYERS, strict=True):
        assert layer.diff_id == f"sha256:{digest(data)}"
        assert gzip.decompress(layer.path.read_bytes()) == data
        assert (layer.size, layer.unpacked) == (layer.path.stat().st_size, len(data))
        assert layer.sha256 == digest(layer.path.read_bytes())
    # The same bytes wherever they are made: what a device has of them can be gone on with.
    time.sleep(1.1)  # gzip notes the second, where it is not told otherwise
    again = layered_image(Engine(SAVED["classic"]), "it", Store(store.root / "other"))
    assert [one.sha256 for one in again.layers] == [one.sha256 for one in found.layers]
    assert layered_image(engine, "it", store) == found
    assert engine.asked == 1, "the cache has it"


def test_a_layer_that_is_damaged_is_made_anew(store):
    engine = Engine(SAVED["classic"])
    found = layered_image(engine, "it", store)
    layer = found.layers[1]
    layer.require_whole()
    layer.path.chmod(0o644)
    layer.path.write_bytes(b"x")
    with pytest.raises(DownloadError, match="is damaged in the cache"):
        layer.require_whole()
    assert layered_image(engine, "it", store) == found
    found.layers[1].require_whole()
    assert engine.asked == 2


@pytest.mark.parametrize("form", ["classic", "layout"])
def test_an_archive_that_lacks_a_layer_is_refused(store, form):
    lacking = SAVED[form].replace(LAYERS[1], bytes(len(LAYERS[1])))
    with pytest.raises(ImageError, match="did not save the layer"):
        layered_image(Engine(lacking), "it", store)


def test_an_archive_of_something_else_is_refused(store):
    wrong = SAVED["classic"].replace(CONFIG, CONFIG.replace(b"sha256:", b"sha512:"))
    with pytest.raises(ImageError, match="no config that fits"):
        layered_image(Engine(wrong), "it", store)


def test_only_a_common_beginning_counts(store):
    image: LayeredImage = layered_image(Engine(SAVED["classic"]), "it", store)
    one, two, three = image.diff_ids
    assert image.missing([]) == image.layers
    assert image.missing([(two, three)]) == image.layers
    assert image.missing([(one, three), (one, two, "sha256:other")]) == image.layers[2:]
    assert image.missing([(one, two, three, "sha256:more")]) == ()

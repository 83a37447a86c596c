"""Which image a target's devices get, and how a registry names it."""

import hashlib
from types import SimpleNamespace

import pytest
from fakefleet import IMAGE, TARGET
from jetship.errors import CheckError, ConfigError, ImageError, NothingSelectedError
from jetship.fleet.images import pin_image, pushed
from jetship.image.index import ImageIndex, IndexRow
from jetship.pin import Pin
from jetship.targets.imageplan import ImagePlan

NAMED = ImagePlan(repository="acme/ops", smoke=("true",), registry="reg.example:5000")
PIN = Pin.model_validate({
    "tool": {"version": "0"},
    "target": TARGET.id,
    "platform": "jetpack-6.2",
    "platform_kind": "jetpack",
    "machine": "aarch64",
    "torch": {"version": "2.5", "cuda": "12.6", "cxx11_abi": True},
    "cuda": {"version": "12.6", "code": []},
    "python": {"interpreter": "cp310", "abi": "cp310"},
    "glibc_floor": None,
})  # fmt: skip


def image(number: int, version: str, *, wheel: bytes = b"", target: str = TARGET.id, **labels):
    return SimpleNamespace(
        id=f"sha256:{number:064d}",
        tags=[f"acme/ops:{version}-{TARGET.id}"],
        labels={
            "jetship.target": TARGET.id,
            "jetship.pin": PIN.model_copy(update={"target": target}).model_dump_json(),
            "jetship.wheel.sha256": hashlib.sha256(wheel).hexdigest(),
            "org.opencontainers.image.version": f"{version}+local",
            **labels,
        },
        attrs={"RootFS": {"Layers": ["sha256:a"]}, "Size": 7},
    )


class Engine:
    """The engine's images, and a registry that answers as told."""

    def __init__(self, *found, answers=()) -> None:
        self.images, self.api = self, self
        self.found, self.answers, self.tagged = found, answers, []

    def list(self, *, name, filters):
        assert filters == {"label": f"jetship.target={TARGET.id}"}
        return list(self.found) if name in ("acme/ops", "reg.example:5000/acme/ops") else []

    def get(self, _):
        return SimpleNamespace(tag=lambda *words: self.tagged.append(words))

    def push(self, name, _tag, *, stream, decode):
        assert (name, stream, decode) == ("reg.example:5000/acme/ops", True, True)
        return iter(self.answers)


def pin(engine: Engine, dist, wanted: str = ""):
    return pin_image(engine, NAMED, TARGET, wanted=wanted, dist=dist)


def test_the_only_image_of_a_target_is_taken_by_its_id(tmp_path):
    found = pin(Engine(image(1, "1.0")), tmp_path)
    assert found.id == f"sha256:{1:064d}"
    assert (found.version, found.diff_ids, found.size_bytes) == ("1.0+local", ("sha256:a",), 7)


def test_of_several_the_one_that_is_wanted(tmp_path):
    engine = Engine(image(1, "1.0"), image(2, "2.0"))
    for wanted in ("2.0", "2.0+local", f"2.0-{TARGET.id}", f"acme/ops:2.0-{TARGET.id}"):
        assert pin(engine, tmp_path, wanted).id.endswith("2")
    with pytest.raises(NothingSelectedError, match=r"no image 3.0 for sm87-jetpack-6.2") as caught:
        pin(engine, tmp_path, "3.0")
    assert "acme/ops:1.0" in caught.value.why


def test_what_there_is_is_listed_in_order_where_a_version_is_none(tmp_path):
    engine = Engine(*(image(number, f"1.{number}") for number in (2, 10, 1, 9, 3, 4, 5)))
    with pytest.raises(NothingSelectedError) as caught:
        pin(engine, tmp_path, "2.0")
    tags = [f"acme/ops:1.{number}-{TARGET.id}" for number in (10, 9, 5, 4, 3, 2, 1)]
    assert caught.value.why == f"for that target it has {', '.join(tags)}"
    assert caught.value.fix.startswith("name one of these with --image, or make it: invoke image")


def test_of_several_the_one_whose_wheel_lies_there(tmp_path):
    engine = Engine(image(1, "1.0", wheel=b"old"), image(2, "2.0", wheel=b"new"))
    with pytest.raises(ConfigError, match=r"has 2 images for sm87-jetpack-6.2") as caught:
        pin(engine, tmp_path)
    assert "none of them" in caught.value.why
    (tmp_path / "ops-2.0.whl").write_bytes(b"new")
    assert pin(engine, tmp_path).id.endswith("2")
    (tmp_path / "ops-1.0.whl").write_bytes(b"old")
    with pytest.raises(ConfigError, match="say which with --image"):
        pin(engine, tmp_path)


def test_of_several_the_one_of_the_index(tmp_path):
    engine = Engine(image(1, "1.0", wheel=b"old"), image(2, "2.0", wheel=b"new"))
    (tmp_path / "ops-1.0.whl").write_bytes(b"old")
    row = IndexRow(
        target=TARGET.id, platform="jetpack-6.2", machine="aarch64", archs=(), l4t=(), boards=(),
        image="acme/ops:2.0", id=f"sha256:{2:064d}", digest=None, architecture="arm64",
        version="2.0", wheel="ops-2.0.whl", wheel_sha256="0",
    )  # fmt: skip
    other = row.model_copy(update={"target": "another", "id": "x"})
    index = tmp_path / "images.json"
    ImageIndex(images=(other, row)).write(index)
    assert pin(engine, tmp_path).id.endswith("2")
    ImageIndex(images=(other,)).write(index)
    assert pin(engine, tmp_path).id.endswith("1")
    index.write_text("[]")
    with pytest.raises(ConfigError, match=r"images\.json"):
        pin(engine, tmp_path)


def test_none_is_an_error_that_says_how_to_make_it(tmp_path):
    with pytest.raises(NothingSelectedError, match=r"no image reg.example:5000/acme/ops") as caught:
        pin(Engine(), tmp_path)
    assert caught.value.fix == "invoke image --arch '8.7' --platform jetpack-6.2"


def test_an_image_without_a_record_or_with_another_targets_is_refused(tmp_path):
    bare = image(1, "1.0")
    del bare.labels["jetship.pin"]
    with pytest.raises(CheckError, match="does not say which wheel it holds"):
        pin(Engine(bare), tmp_path)
    other = image(1, "1.0", target="sm87-jetpack-6.0")
    with pytest.raises(CheckError, match=r"its wheel is for sm87-jetpack-6.0"):
        pin(Engine(other), tmp_path)
    with pytest.raises(CheckError, match="not a pin record"):
        pin(Engine(image(1, "1.0", **{"jetship.pin": "{}"})), tmp_path)


def test_a_pushed_image_is_named_by_its_digest():
    engine = Engine(answers=[{"status": "…"}, {"aux": {"Tag": "2", "Digest": "sha256:d"}}])
    assert pushed(engine, IMAGE, NAMED) == "reg.example:5000/acme/ops@sha256:d"
    assert engine.tagged == [("reg.example:5000/acme/ops", "2")]


@pytest.mark.parametrize(
    ("answers", "said"), [([{"error": "denied"}], "denied"), ([], "told no digest")]
)
def test_a_push_that_fails_says_why(answers, said):
    with pytest.raises(ImageError, match="could not be pushed") as caught:
        pushed(Engine(answers=answers), IMAGE, NAMED)
    assert said in caught.value.why

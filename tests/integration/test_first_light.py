"""The whole path as a user walks it: build, image, smoke, on the op pack."""

import json
import shutil
import zipfile

import pytest
import yaml
from engine import running_engine
from product import ROOT, invoke


@pytest.fixture(scope="module")
def engine():
    with running_engine() as client:
        yield client


@pytest.fixture(scope="module")
def dist(engine, toolchain, tmp_path_factory):
    folder = tmp_path_factory.mktemp("first-light")
    invoke("build", "--arch", "6.2", "--dist", folder).good()
    return folder


def test_the_op_pack_runs_in_its_image_and_agrees_with_its_reference(engine, dist):
    (row,) = invoke("image", "--arch", "6.2", "--dist", dist, "--json").good().json["images"]
    assert engine.images.get(row["image"]).attrs["Architecture"] == "arm64"
    assert any("/dev/nvhost-gpu" in line["line"] for line in row["run"])
    answer = (
        invoke("smoke", "--arch", "6.2", "--dist", dist, "--json").good().json["sm62-debian-12"]
    )
    assert answer["ok"] is True
    assert answer["machine"] == "aarch64"
    assert {check["op"] for check in answer["checks"]} >= {"gelu", "fused_attn_nms"}


def test_all_images_of_a_deploy_yaml_are_made_and_indexed(engine, dist, tmp_path):
    deploy = tmp_path / "deploy.yaml"
    deploy.write_text(
        f"project: {ROOT}/csrc\ntargets: [{{arch: 6.2}}]\n"
        f"image: {{repository: jetship-test/all, tag: 'x-{{target}}-{{wheel}}', "
        "smoke: [python3, -m, jetops.selftest], environment: {LEVEL: 3}}\n"
    )
    words = ("--all", "--deploy", deploy, "--dist", dist, "--compose", tmp_path / "out", "--json")
    (row,) = invoke("image", *words).good().json["images"]
    try:
        (indexed,) = json.loads((dist / "images.json").read_text())["images"]
        made = engine.images.get(indexed["image"])
        assert made.id == row["id"] == indexed["id"]
        wheel = next(dist.glob("*.whl"))
        assert indexed["image"] == (
            f"jetship-test/all:x-sm62-debian-12-{indexed['wheel_sha256'][:12]}"
        )
        assert indexed["wheel"] == wheel.name
        assert made.labels["jetship.wheel.sha256"] == indexed["wheel_sha256"]
        assert indexed["boards"] == ["tx2"]
        assert indexed["digest"] is None
        assert any("--env LEVEL=3" in line["line"] for line in row["run"])
        service = yaml.safe_load((tmp_path / "out/tx2-debian-12/compose.yaml").read_text())
        assert service["services"]["all"]["image"] == indexed["image"]
        index = ("--index", dist / "images.json")
        manifests = invoke("k8s", "--deploy", deploy, *index, "--json").good().json
        assert [one["kind"] for one in manifests["items"]] == ["Namespace", "DaemonSet"]
        smoke = invoke("smoke", "--deploy", deploy, "--dist", dist).good().json
        assert smoke["ok"] is True
    finally:
        engine.images.remove(row["image"], force=True)


@pytest.fixture
def cut_short(engine, dist, tmp_path):
    """The op pack's image with half of its library."""
    (row,) = invoke("image", "--arch", "6.2", "--dist", dist, "--json").good().json["images"]
    with zipfile.ZipFile(next(dist.glob("*.whl"))) as wheel:
        (library,) = (name for name in wheel.namelist() if name.endswith(".so"))
        whole = wheel.read(library)
    (tmp_path / "half.so").write_bytes(whole[: len(whole) // 2])
    place = "/usr/local/lib/python3.11/dist-packages/" + library
    (tmp_path / "Dockerfile").write_text(f"FROM {row['image']}\nCOPY half.so {place}\n")
    name = f"jetship-test/cut-short:{tmp_path.name}"
    engine.images.build(path=str(tmp_path), tag=name, platform="linux/arm64", rm=True)
    yield name
    engine.images.remove(name, force=True)


def test_an_image_is_proved_like_a_wheel(engine, dist, cut_short):
    (row,) = invoke("image", "--arch", "6.2", "--dist", dist, "--json").good().json["images"]
    whole = invoke("check", row["image"], "--json").good().json
    assert {one["outcome"] for one in whole["reports"]} == {"pass"}
    # What else is installed there has no pin record, and is asked for all targets of deploy.yaml.
    assert [one["target"] for one in whole["reports"] if is_op_pack(one)] == ["sm62-debian-12"]
    broken = invoke("check", cut_short, "--json")
    assert broken.status == 7
    (report,) = (one for one in broken.json["reports"] if is_op_pack(one))
    reasons = [one["reason"] for one in report["findings"] if one["outcome"] == "fail"]
    assert any("cut off" in reason for reason in reasons), reasons


def is_op_pack(report) -> bool:
    return report["wheel"].startswith("jetops")


@pytest.fixture
def old_base(engine, dist):
    """An image under a name that NVIDIA never gave out; it is debian-12's base."""
    name = "nvcr.io/nvidia/l4t-pytorch:r32.2-pth1.0"
    invoke("image", "--arch", "6.2", "--dist", dist).good()
    made = engine.images.list("jetship/base-debian-12")
    taken = made[0].tag(*name.split(":"))
    yield name
    if taken:
        engine.images.remove(name)


def test_a_base_image_that_is_on_no_list_is_taken_with_a_warning(engine, dist, old_base):
    words = ("--arch", "6.2", "--dist", dist, "--base", old_base, "--json")
    done = invoke("image", *words).good()
    assert f"warning: no image {old_base} is known for debian-12" in done.stderr
    (row,) = done.json["images"]
    layers, below = (
        engine.images.get(name).attrs["RootFS"]["Layers"] for name in (row["image"], old_base)
    )
    assert layers[: len(below)] == below
    assert len(layers) > len(below)


def test_a_broken_operator_fails_the_smoke_run_and_is_named(engine, toolchain, tmp_path):
    project = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", project, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    kernel = project / "kernels/gelu_math.h"
    text = kernel.read_text()
    assert "kSlope = 0.3f;" in text  # of the polynomial for fp32
    kernel.write_text(text.replace("kSlope = 0.3f;", "kSlope = 0.5f;"))
    words = ("--arch", "6.2", "--dist", tmp_path / "dist")
    invoke("build", *words, "--project", project).good()
    stale = invoke("smoke", *words)
    assert stale.status == 8
    assert "holds another wheel" in stale.stderr
    invoke("image", *words).good()
    done = invoke("smoke", *words)
    assert done.status == 8
    assert "gelu cpu float32" in done.stderr

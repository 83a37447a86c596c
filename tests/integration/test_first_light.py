"""The whole path as a user walks it: build, image, smoke, on the op pack."""

import shutil

import pytest
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


def test_a_broken_operator_fails_the_smoke_run_and_is_named(engine, toolchain, tmp_path):
    project = tmp_path / "csrc"
    shutil.copytree(ROOT / "csrc", project, ignore=shutil.ignore_patterns("build", "*.egg-info"))
    kernel = project / "kernels/cpu/gelu.cpp"
    text = kernel.read_text()
    assert "0.5f" in text
    kernel.write_text(text.replace("0.5f", "0.75f"))
    words = ("--arch", "6.2", "--dist", tmp_path / "dist")
    invoke("build", *words, "--project", project).good()
    stale = invoke("smoke", *words)
    assert stale.status == 8
    assert "holds another wheel" in stale.stderr
    invoke("image", *words).good()
    done = invoke("smoke", *words)
    assert done.status == 8
    assert "gelu cpu float32" in done.stderr

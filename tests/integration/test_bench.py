"""What `bench` measures is measured: real builds, one of them under emulation."""

import pytest
from engine import running_engine
from product import copy_of, invoke

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def engine():
    with running_engine() as client:
        yield client


def test_a_cross_build_is_compared_with_the_emulated_build_of_the_same_project(
    engine, toolchain, tmp_path
):
    project = copy_of("kernel", tmp_path)
    words = ("--build", "--arch", "6.2", "--project", project, "--dist", tmp_path / "dist")
    rows = invoke("bench", *words, "--json").good().json["builds"]
    assert [row["way"] for row in rows] == [
        "emulated",
        "crossed, nothing cached",
        "crossed, objects cached",
    ]
    assert all(row["seconds"] > 0 for row in rows)
    log = (tmp_path / "dist/logs/bench-emulated.log").read_text()
    assert "/opt/cuda/bin/nvcc" in log

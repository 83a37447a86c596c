"""Ten wheels with native code that people download, on all platforms (long)."""

import sys
from pathlib import Path

import pytest
from jetship import proc
from product import invoke

pytestmark = pytest.mark.long

# By the Python that they are for: scipy and OpenCV for JetPack 5, and so on.
WHEELS = {
    "3.8": ("scipy==1.10.1", "opencv-python-headless"),
    "3.10": ("numpy==2.2.6", "pillow", "lxml", "torchvision"),
    "3.11": ("cryptography",),
    "3.12": ("onnxruntime", "grpcio", "av"),
}


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("real")
    tags = [f"--platform=manylinux{tag}_aarch64" for tag in ("_2_28", "_2_27", "2014", "_2_17")]
    for python, names in WHEELS.items():
        words = ["--no-deps", "--only-binary=:all:", f"--python-version={python}", *tags]
        done = proc.run([sys.executable, "-m", "pip", "download", *words, "-d", folder, *names])
        assert done.ok, done.stderr
    return folder


def test_what_they_run_on_is_told_in_a_sentence_each(real):
    done = invoke("check", real, "--all-platforms", "--json")
    assert done.status in (0, 7), done.stderr
    assert len(done.json["wheels"]) == 10
    assert done.json["errors"] == []
    outcomes = {
        (row["wheel"].partition("-")[0], row["target"]): row["outcome"]
        for row in done.json["reports"]
    }
    assert all(
        outcome == "fail" for (_, target), outcome in outcomes.items() if "-x86-64-" in target
    )
    wanted = {"scipy": "jetpack-5.1", "numpy": "jetpack-6.2", "grpcio": "jetpack-7.2"}
    for name, fits in wanted.items():
        refused = {target for (one, target), outcome in outcomes.items()
                   if one == name and outcome == "fail" and "-jetpack-" in target}  # fmt: skip
        assert refused, name
        others = {target for target in refused if not target.endswith(fits)}
        assert {f"sm62-{old}" for old in ("jetpack-4.2", "jetpack-4.6")} <= others

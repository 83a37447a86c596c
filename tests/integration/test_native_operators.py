"""jetops on this machine's CPU: its own tests, and its benchmark as `bench --ops` runs it."""

import json
import os
from pathlib import Path

import pytest
from jetship import proc
from native import interpreter
from product import ROOT, Ended, invoke


@pytest.fixture(scope="module")
def python(tmp_path_factory) -> Path:
    return interpreter(tmp_path_factory.mktemp("native"))


def test_the_operators_pass_their_own_tests(python, tmp_path):
    folders = {"TORCH_EXTENSIONS_DIR": str(tmp_path), "HYPOTHESIS_STORAGE_DIRECTORY": str(tmp_path)}
    words = [python, "-m", "pytest", "-q", "-p", "no:cacheprovider", ROOT / "csrc/tests"]
    done = proc.run(words, cwd=tmp_path, env={**os.environ, **folders})
    assert done.ok, done.stdout[-5000:] + done.stderr[-2000:]
    assert " passed" in done.stdout


@pytest.fixture(scope="module")
def measured(python, tmp_path_factory) -> tuple[Path, Ended]:
    out = tmp_path_factory.mktemp("measured") / "bench"
    return out, invoke("bench", "--ops", "--python", python, "--quick", "--out", out).good()


def test_the_benchmark_writes_page_results_and_plots(measured):
    out, done = measured
    assert done.stdout == f"{out / 'bench.md'}\n"
    assert "[1/4] gelu" in done.stderr
    assert sorted(path.name for path in out.iterdir()) == [
        "bench.json", "bench.md", "cpu-nms.png", "dropout.png", "gelu.png", "ingest.png",
        "roofline.png",
    ]  # fmt: skip
    assert all(path.stat().st_size < 200 * 1024 for path in out.glob("*.png"))


def test_every_operator_was_measured(measured):
    found = json.loads((measured[0] / "bench.json").read_text())
    ours = [row for row in found["rows"] if row["contender"].startswith("jetops")]
    assert {row["group"] for row in ours} == {"gelu", "dropout", "cpu-nms"}
    assert all(row["us"] > 0 and row["bytes"] > 0 for row in ours)
    (ingest,) = (row for row in found["rows"] if row["contender"] == "FrameIngest")
    assert ingest["us"] > 0
    assert set(found["ceilings"]) == {"cpu"}


def test_the_nms_is_far_faster_than_the_reference(measured):
    rows = json.loads((measured[0] / "bench.json").read_text())["rows"]
    times = {
        (row["case"], row["contender"]): row["us"] for row in rows if row["group"] == "cpu-nms"
    }
    for density in ("clusters", "dense", "uniform"):
        case = f"{density} 2000"
        # The goal is 50; other work on the machine of a test must not decide about it.
        assert times[case, "Python reference"] > 10 * times[case, "jetops"]


def test_one_group_runs_again_beside_the_others_and_is_compared(python, measured):
    out, _ = measured
    before = json.loads((out / "bench.json").read_text())
    older = out.parent / "older.json"
    older.write_text(json.dumps(before))
    words = ("--ops", "--python", python, "--quick", "--only", "ingest", "--compare", older)
    done = invoke("bench", *words, "--out", out, "--json").good()
    after = done.json
    kept = [row for row in before["rows"] if row["group"] != "ingest"]
    assert [row for row in after["rows"] if row["group"] != "ingest"] == kept
    assert len(after["rows"]) == len(before["rows"])
    assert "times compared" in (out / "bench.md").read_text()


def test_a_group_that_is_none_is_an_error_of_the_request(python, tmp_path):
    words = ("--ops", "--python", python, "--only", "nonsense", "--out", tmp_path)
    done = invoke("bench", *words)
    assert "no group nonsense" in done.stderr
    assert done.status == 2
    assert not (tmp_path / "bench.json").exists()


def test_without_jetops_the_error_says_which_command_brings_it(tmp_path):
    bare = interpreter(tmp_path, jetops=False)
    error = invoke("bench", "--ops", "--python", bare, "--out", tmp_path / "out").one_error(4)
    assert f"{bare} cannot import jetops" in error
    assert f"{bare} -m pip install --no-build-isolation '{ROOT / 'csrc'}[bench]'" in error

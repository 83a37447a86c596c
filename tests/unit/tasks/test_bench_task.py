"""`bench --ops`: which interpreter measures, and what is said where none can."""

import json
import sys
from pathlib import Path

import pytest
from jetship.bench import operators

STAND_IN = """#!{python}
import sys
if sys.argv[1] == "-c":
    print({found!r})
else:
    open("asked", "w").write("\\n".join(sys.argv[1:]))
    open("bench.md", "w").write("# page")
    if {saves}:
        open("bench.json", "w").write('{{"rows": []}}')
    sys.exit({status})
"""
BOTH = {"torch": ["2.7.1", ""], "jetops": ["0.1.0", ""]}


@pytest.fixture
def interpreter(tmp_path):
    """Make a program that answers as an interpreter would; the real one is for integration."""

    def make(found: object, status: int = 0, *, saves: bool = True) -> Path:
        path = tmp_path / "python"
        text = STAND_IN.format(
            python=sys.executable, found=json.dumps(found), status=status, saves=saves
        )
        path.write_text(text)
        path.chmod(0o755)
        return path

    return make


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_benchmark_gets_its_options_with_whole_paths(call, interpreter, folder):
    (folder / "old.json").write_text("{}")
    words = ("--only", "nms,gelu", "--quick", "--compare", "old.json", "--out", "results")
    code, out, err = call("bench", "--ops", "--python", str(interpreter(BOTH)), *words)
    assert (code, out) == (0, "results/bench.md\n")
    assert "torch 2.7.1, jetops 0.1.0" in err
    assert (folder / "results/asked").read_text().splitlines() == [
        "-m", "jetops.bench", "--out", str(folder / "results"), "--only", "nms,gelu",
        "--compare", str(folder / "old.json"), "--quick",
    ]  # fmt: skip


def test_results_lie_in_dist_unless_told_otherwise(call, interpreter):
    code, out, _ = call("bench", "--ops", "--python", str(interpreter(BOTH)))
    assert (code, out) == (0, "dist/bench/bench.md\n")


def test_with_json_the_results_are_the_answer(call, interpreter):
    code, out, _ = call("bench", "--ops", "--python", str(interpreter(BOTH)), "--json")
    assert (code, json.loads(out)) == (0, {"rows": []})


def test_jetships_own_interpreter_is_asked_where_none_is_named(call, monkeypatch, interpreter):
    monkeypatch.setattr(sys, "executable", str(interpreter(BOTH)))
    assert call("bench", "--ops")[0] == 0


def test_without_torch_two_commands_are_named(call, monkeypatch, interpreter):
    missing = ["", "ModuleNotFoundError: No module named 'torch'"]
    path = interpreter({"torch": missing, "jetops": missing})
    monkeypatch.setattr(sys, "executable", str(path))
    code, out, err = call("bench", "--ops")
    assert (code, out) == (4, "")
    assert f"{path} cannot import torch" in err
    assert "why: ModuleNotFoundError: No module named 'torch'" in err
    _, fix = err.split("fix: ")
    first, second, other = (line.strip() for line in fix.splitlines())
    assert first == f"{path} -m pip install torch torchvision setuptools wheel ninja"
    assert second == f"{path} -m pip install --no-build-isolation '{operators.sources()}[bench]'"
    assert other == "or name an interpreter that has both: invoke bench --ops --python PYTHON"


def test_the_named_sources_are_those_of_the_checkout():
    assert (Path(operators.sources()) / "setup.py").is_file()


def test_where_torch_is_there_only_the_second_command_is_named(call, interpreter):
    path = interpreter(
        {"torch": ["2.7.1", ""], "jetops": ["", "ImportError: jetops could not load"]}
    )
    code, _, err = call("bench", "--ops", "--python", str(path))
    assert code == 4
    assert f"{path} cannot import jetops" in err
    assert "torch 2.7.1 is there; jetops: ImportError: jetops could not load" in err
    assert err.split("fix: ")[1].strip() == (
        f"{path} -m pip install --no-build-isolation '{operators.sources()}[bench]'"
    )


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "bench measures one thing"),
        (("--ops", "--check"), "bench measures one thing"),
        (("--build", "--quick", "--out", "x"), "--quick and --out go with --ops"),
        (("--check", "--python", "python3"), "--python goes with --ops"),
        (("--ops", "--arch", "6.2"), "--arch goes with --build or --check"),
        (
            ("--ops", "--wheel", "a.whl", "--cuda-home", "x", "--deploy", "b.yaml"),
            "--cuda-home and --wheel and --deploy go with --build or --check",
        ),
        (("--ops", "--python", "no-such-python"), "there is no program no-such-python"),
        (("--ops", "--compare", "no.json"), "there is no file no.json"),
    ],
)
def test_requests_that_cannot_be_meant_are_refused(call, words, said):
    code, out, err = call("bench", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert "fix: " in err


def test_a_program_that_is_no_interpreter_is_told(call):
    code, _, err = call("bench", "--ops", "--python", "true")
    assert code == 4
    assert "does not run as a Python interpreter" in err


@pytest.mark.parametrize(("status", "code"), [(1, 10), (2, 2), (137, 10)])
def test_a_benchmark_that_fails_is_an_error(call, interpreter, status, code):
    path = interpreter(BOTH, status)
    ended, out, err = call("bench", "--ops", "--python", str(path))
    assert (ended, out) == (code, "")
    assert "error: " in err


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("saves", [False, True])
def test_where_results_are_is_said_only_if_this_run_saved_some(
    call, interpreter, folder, old, saves
):
    if old:
        (folder / "out").mkdir()
        (folder / "out/bench.json").write_text("{}")
    path = interpreter(BOTH, 1, saves=saves)
    _, _, err = call("bench", "--ops", "--python", str(path), "--out", "out")
    assert ("what was measured is in out/bench.json" in err) == saves
    assert ("nothing of this run was saved" in err) == (not saves)

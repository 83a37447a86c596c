"""The tools of csrc/tools as programs: what they say where something is missing."""

import json
import sys
import zipfile
from pathlib import Path

import pytest
import wheel_ptx
from jetship import proc
from jetship.proc import Finished

ROOT = Path(__file__).resolve().parents[3]
TOOLS = ROOT / "csrc/tools"
PROGRAMS = (
    "csrc/tools/jetson_model.py",
    "csrc/tools/kernel_instructions.py",
    "csrc/tools/kernel_resources.py",
    "csrc/tools/sanitize.py",
    "csrc/tools/wheel_ptx.py",
    "tests/integration/compile_matrix.py",
)
NO_NVCC = "--nvcc=/nonexistent/nvcc=6.2"


def run(program: Path, *words: str | Path) -> Finished:
    return proc.run([sys.executable, program, *words], seconds=60)


def refused(program: Path, *words: str | Path) -> str:
    """Run a program that has to fail without a traceback, and return what it said."""
    done = run(program, *words)
    assert done.status in (1, 2)
    assert "Traceback" not in done.stderr
    assert "Errno" not in done.stderr
    return done.stderr


def wheel(path: Path, *names: str) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name in names:
            archive.writestr(name, "")
    return path


@pytest.mark.parametrize("program", PROGRAMS)
def test_help_is_given_and_nothing_is_done(program):
    done = run(ROOT / program, "--help")
    assert done.ok, done.stderr
    assert done.stdout.startswith(f"usage: {Path(program).name}")
    about = done.stdout.partition("\npositional arguments:")[0].partition("\noptions:")[0]
    assert not about.rstrip().endswith(":")


@pytest.mark.parametrize("name", ["kernel_resources.py", "kernel_instructions.py"])
class TestAnOutputThatCannotBeWritten:
    # The nvcc that is not there would be told of, were the output not looked at first.
    @pytest.mark.parametrize(
        ("page", "why"),
        [("missing/page.md", "No such file or directory"), (".", "Is a directory")],
    )
    def test_is_told_before_anything_is_compiled(self, name, page, why, tmp_path):
        said = refused(TOOLS / name, NO_NVCC, tmp_path / page)
        assert f"error: {tmp_path / page} cannot be written ({why})" in said

    def test_a_good_one_is_neither_made_nor_changed_by_looking(self, name, tmp_path):
        (tmp_path / "old").write_text("old")
        for page in ("old", "new"):
            words = ["--nvdisasm", sys.executable] if "instructions" in name else []
            said = refused(TOOLS / name, NO_NVCC, *words, tmp_path / page)
            assert "/nonexistent/nvcc cannot be run" in said
        assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_missing_nvdisasm_is_told_with_where_to_get_it(tmp_path):
    words = (NO_NVCC, "--nvdisasm", "/nonexistent/nvdisasm", tmp_path / "out.json")
    said = refused(TOOLS / "kernel_instructions.py", *words)
    assert "there is no program /nonexistent/nvdisasm" in said
    assert "Debian's nvidia-cuda-toolkit" in said
    assert "nvidia-cuda-nvdisasm on PyPI" in said


def test_the_sanitizers_work_needs_torch_and_a_gpu():
    """Neither is in the Python that runs these tests, or else no GPU is."""
    done = run(TOOLS / "sanitize.py")
    if done.ok:
        assert done.stdout == "done\n"
        return
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: torch")


def test_the_matrix_looks_at_its_page_first(tmp_path):
    said = refused(ROOT / "tests/integration/compile_matrix.py", tmp_path / "missing/page.md")
    assert "page.md cannot be written" in said


class TestTheModel:
    @pytest.mark.parametrize(
        ("text", "why"),
        [
            (None, "bench.json cannot be read (No such file or directory)"),
            ("{", "bench.json is no JSON"),
            ("[]", "bench.json has no `machine`"),
            ('{"machine": {}}', "bench.json has no `rows`"),
            ('{"machine": {}, "rows": [{}]}', "bench.json has a row without 'group'"),
        ],
    )
    def test_a_benchmark_that_is_none_is_told(self, text, why, tmp_path):
        bench = tmp_path / "bench.json"
        if text is not None:
            bench.write_text(text)
        said = refused(TOOLS / "jetson_model.py", "--bench", bench)
        assert said.startswith(f"error: {tmp_path}/{why}")
        assert len(said.splitlines()) == 1

    def test_a_page_that_cannot_be_written_is_told(self, tmp_path):
        said = refused(TOOLS / "jetson_model.py", "--bench", tmp_path / "bench.json", tmp_path)
        assert said.startswith(f"error: {tmp_path} cannot be written (Is a directory)")


WITHOUT_ELFTOOLS = """
import runpy, sys
sys.modules["elftools"] = None
del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_ptx_of_wheels_needs_pyelftools_and_its_help_does_not():
    run_without = [sys.executable, "-c", WITHOUT_ELFTOOLS, TOOLS / "wheel_ptx.py"]
    done = proc.run([*run_without, "--help"], seconds=60)
    assert done.ok, done.stderr
    done = proc.run([*run_without, "--out", "out", "a.whl"], seconds=60)
    assert done.status == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("error: pyelftools has to be installed (pip install pyelftools): ")


class TestPtxOfWheels:
    # Without tools: the wheels and the folder are looked at before any is called.
    NO_TOOLS = ("--nvcc", "/nonexistent/nvcc", "--cuobjdump", "/nonexistent/cuobjdump")

    def refused(self, out: Path, *wheels: Path) -> str:
        return refused(TOOLS / "wheel_ptx.py", *self.NO_TOOLS, "--out", out, *wheels)

    def test_a_missing_wheel_is_told_first(self, tmp_path):
        said = self.refused(tmp_path / "out", tmp_path / "a-1-x.whl")
        assert "a-1-x.whl cannot be read: No such file or directory" in said

    def test_what_is_no_wheel_is_told(self, tmp_path):
        (tmp_path / "a-1-x.whl").write_text("text")
        assert "a-1-x.whl is no wheel" in self.refused(tmp_path / "out", tmp_path / "a-1-x.whl")
        other = wheel(tmp_path / "b-1-x.whl", "b/__init__.py")
        assert "b-1-x.whl has no jetops/_C*.so" in self.refused(tmp_path / "out", other)

    def test_two_wheels_of_one_version_are_told(self, tmp_path):
        wheels = [wheel(tmp_path / f"jetops-1-{tag}.whl", "jetops/_C.so") for tag in "ab"]
        assert "have the same version" in self.refused(tmp_path / "out", *wheels)

    def test_a_missing_tool_is_told_after_that(self, tmp_path):
        good = wheel(tmp_path / "jetops-1-x.whl", "jetops/_C.so")
        said = self.refused(tmp_path / "out", good)
        assert said.startswith("there is no program /nonexistent/nvcc: nvcc and cuobjdump come")

    def test_a_folder_that_is_a_file_is_told(self, tmp_path):
        good = wheel(tmp_path / "jetops-1-x.whl", "jetops/_C.so")
        said = self.refused(good, good)
        assert f"--out {good} cannot be used (File exists)" in said

    def test_a_folder_of_an_earlier_call_is_made_anew(self, tmp_path):
        out, scratch = tmp_path / "out", tmp_path / "scratch"
        for name, file in (("a-1", "foreign"), ("a-0", "wheel.json"), ("mine", "notes")):
            (out / name).mkdir(parents=True)
            (out / name / file).write_text("{}")
        made = scratch / "made/a-1"
        made.mkdir(parents=True)
        (made / "wheel.json").write_text(json.dumps({"wheel": "a-1-x.whl"}))
        wheel_ptx.publish([made], out, scratch / "gone")
        kept = {str(path.relative_to(out)) for path in out.rglob("*") if path.is_file()}
        assert kept == {"a-1/wheel.json", "mine/notes"}

"""What setup.py files ask of torch (docs/standin.md), asked in real builds."""

import json
from pathlib import Path

import pytest
from independent import Opened
from product import PROJECTS, copy_of, invoke, wheels_in

ANSWERS = {
    "version": "2.7.1+cpu",
    "at least 1.10": True,
    "major and minor": [2, 7],
    "metadata": "2.7.1+cpu",
    "version.cuda": "11.8",
    "version.debug": False,
    "git_version": True,
    "has_gpu": True,
    "capabilities": [[6, 2]],
    "majors": [6],
    "current device": 0,
    "archs": ["sm_62"],
    "arch flags": "sm_62",
    "bf16": False,
    "bad fork": False,
    "initialized": False,
    "nccl": "AttributeError",
    "device name": "AttributeError",
    "cxx11 abi": [True, True],
    "pybind11": "_gcc",
    "openmp": True,
    "blas is mkl": False,
    "mkl": False,
    "cudnn": False,
    "mps": False,
    "xpu": False,
    "npu": False,
    "mlu": None,
    "rocm": [None, None],
    "hipify": True,
    "distributed": True,
    "header": True,
    "beside": True,
    "found": True,
    "cmake": True,
    "includes": True,
}
WITHOUT_GPU = {
    "version.cuda": None,
    "has_gpu": False,
    "capabilities": [],
    "majors": [],
    "current device": "NoGpu",
    "archs": [],
    "arch flags": None,
}


def build(dist: Path, *words: str) -> tuple[dict[str, object], Path, str]:
    """Build the project that asks; return its answers, the wheel and the log."""
    done = invoke("build", *words, "--project", PROJECTS / "asks", "--dist", dist, "--json")
    (row,) = done.good().json["wheels"]
    wheel = Path(row["wheel"])
    return (
        json.loads(Opened(wheel).files["asks/answers.json"]),
        wheel,
        Path(row["log"]).read_text(),
    )


def test_questions_are_answered_for_the_target(toolchain, dist):
    answers, _, log = build(dist, "--arch", "6.2")
    assert answers == ANSWERS
    assert "was told that there is no torch.npu" in log


def test_a_build_without_device_code_is_told_of_no_gpu(toolchain, dist):
    answers, wheel, _ = build(dist, "--cpu-only")
    assert answers == ANSWERS | WITHOUT_GPU
    assert "nv_fatbin" not in Opened(wheel).library.decode("latin-1")


UNANSWERED = {
    "tensor": ("import torch\ntorch.zeros(1)\n", "setup.py, line 2 asks for torch.zeros of"),
    "name": (
        "from torch import cuda\ncuda.get_device_name()\n",
        "setup.py, line 2 asks for torch.cuda.get_device_name of",
    ),
    "from": ("from torch import nn\n", "setup.py, line 1 asks for torch.nn of"),
    "import": ("import torch.nn.functional\n", "setup.py, line 1 asks for torch.nn of"),
    "file": ("import tools.flags\n", "tools/flags.py, line 1 asks for torch.Tensor of"),
}


@pytest.mark.parametrize(("setup", "words"), UNANSWERED.values(), ids=UNANSWERED)
def test_what_cannot_be_answered_is_the_error(toolchain, tmp_path, dist, setup, words):
    project = copy_of("raises", tmp_path)
    (project / "setup.py").write_text(f"import sys; sys.path.insert(0, '.'); {setup}")
    (project / "tools").mkdir()
    (project / "tools/flags.py").write_text("from torch import Tensor\n")
    done = invoke("build", "--arch", "6.2", "--project", project, "--dist", dist)
    error = done.one_error(6)
    assert words in error
    assert "the project asks of torch what jetship cannot answer" in error
    assert "if it needs the answer, report it to the jetship project's issues" in error
    assert wheels_in(dist) == []

import sys

import pytest
from jetship import proc
from jetship.build.environment import compose, create


@pytest.fixture
def ask(toolchain, fat_target, tmp_path):
    """Run lines in a child process that sees the stand-in as a build does."""
    cross = create(toolchain, fat_target, tmp_path / "cross")
    env = compose({"PATH": "/usr/bin:/bin"}, cross, {})
    # The settings of the target's Python are for the real thing; here this Python runs itself.
    env = {key: value for key, value in env.items() if not key.startswith("_PYTHON")}

    def ask(*lines: str) -> proc.Finished:
        return proc.run([sys.executable, "-c", "\n".join(lines)], env=env)

    return ask


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("torch.__version__", "2.7.1"),
        ("torch.version.__version__", "2.7.1"),
        ("torch.version.cuda", "11.8"),
        ("torch.version.hip", "None"),
        ("torch.version.git_version", "abc"),
        ("torch.cuda.is_available()", "True"),
        ("torch.cuda.device_count()", "2"),
        ("torch.cuda.get_device_capability()", "(6, 2)"),
        ("torch.cuda.get_device_capability(1)", "(7, 2)"),
        ("torch.cuda.get_device_capability('cuda')", "(6, 2)"),
        ("torch.cuda.get_arch_list()", "['sm_62', 'sm_72']"),
        ("torch.xpu.is_available()", "False"),
        ("torch.backends.cuda.is_built()", "True"),
        ("torch.backends.mps.is_available()", "False"),
        ("torch.compiled_with_cxx11_abi()", "True"),
        ("torch._C._GLIBCXX_USE_CXX11_ABI", "True"),
        ("torch._C._PYBIND11_COMPILER_TYPE", "_gcc"),
        ("torch._C._PYBIND11_STDLIB", "_libstdcpp"),
        ("torch._C._PYBIND11_BUILD_ABI", "_cxxabi1014"),
        ("'OpenMP' in torch.__config__.parallel_info()", "True"),
        ("'OpenMP' in torch.__config__.show()", "True"),
    ],
)
def test_the_stand_in_answers_with_the_facts_of_the_target(ask, expression, answer):
    done = ask("import torch", f"print({expression})")
    assert (done.stdout, done.stderr) == (f"{answer}\n", "")


def test_plain_python_of_torch_is_the_targets_own(ask, toolchain):
    done = ask("from torch.utils import cpp_extension", "print(cpp_extension.WHERE)",
               "print(cpp_extension.CUDA)")  # fmt: skip
    assert done.stdout == f"{toolchain.torch}/utils/cpp_extension.py\n11.8\n", done.stderr


@pytest.mark.parametrize("name", ["randn", "_C._jit_init"])
def test_what_the_stand_in_cannot_answer_names_itself_and_jetship(ask, name):
    done = ask("import torch", f"torch.{name}")
    assert done.status == 1
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("AttributeError")
    assert f"torch.{name}" in last
    assert "jetship" in last


def test_a_build_may_try_for_what_is_not_there(ask):
    done = ask("import torch", "print(hasattr(torch, 'npu'), getattr(torch, 'npu', 'none'))")
    assert done.stdout == "False none\n", done.stderr


def test_nothing_is_written_into_the_toolchain(ask, toolchain):
    before = {path: path.stat().st_mtime_ns for path in toolchain.root.rglob("*")}
    assert ask("from torch.utils import cpp_extension").ok
    assert {path: path.stat().st_mtime_ns for path in toolchain.root.rglob("*")} == before

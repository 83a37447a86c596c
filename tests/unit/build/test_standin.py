import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from jetship import proc
from jetship.build.environment import compose, create
from jetship.targets.model import Target

Ask = Callable[..., proc.Finished]
MakeAsk = Callable[..., Ask]


@pytest.fixture
def ask_of(toolchain, tmp_path) -> MakeAsk:
    """Make what runs lines in a child process that sees the stand-in for a target as a build does.

    `elsewhere` comes last on the child's path, like the packages of the Python that builds.
    """

    def ask_of(target: Target, *, elsewhere: Path | None = None) -> Ask:
        cross = create(toolchain, target, tmp_path / "cross")
        env = compose({"PATH": "/usr/bin:/bin"}, cross, {})
        # The settings of the target's Python are for the real thing; here this Python runs itself.
        env = {key: value for key, value in env.items() if not key.startswith("_PYTHON")}
        if elsewhere is not None:
            env["PYTHONPATH"] += f":{elsewhere}"

        def ask(*lines: str, **variables: str) -> proc.Finished:
            command = [sys.executable, "-c", "\n".join(lines)]
            return proc.run(command, env={**env, **variables})

        return ask

    return ask_of


@pytest.fixture
def ask(ask_of, fat_target) -> Ask:
    return ask_of(fat_target)


@pytest.fixture
def state_fact(ask, tmp_path) -> Callable[[str, object], None]:
    """Let the stand-in that `ask` asks have another fact."""

    def state_fact(fact: str, value: object) -> None:
        path = tmp_path / "cross/torch-facts.json"
        path.write_text(json.dumps({**json.loads(path.read_text()), fact: value}))

    return state_fact


@pytest.fixture
def ask_cpu(ask_of, debian_12) -> Ask:
    """Ask the stand-in for a build without device code."""
    return ask_of(Target((), debian_12))


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
        ("torch.cuda.get_device_capability('cuda:1')", "(7, 2)"),
        ("torch.cuda.current_device()", "0"),
        ("torch.cuda.get_device_properties(1).minor", "2"),
        ("torch.cuda._is_compiled()", "True"),
        ("torch.cuda.is_initialized()", "False"),
        ("torch.cuda._is_in_bad_fork()", "False"),
        ("torch.cuda.is_bf16_supported()", "False"),
        (
            "torch.cuda.get_gencode_flags()",
            "-gencode compute=compute_62,code=sm_62 -gencode compute=compute_72,code=sm_72",
        ),
        ("torch._C._cuda_getArchFlags()", "sm_62 sm_72"),
        ("torch._C._cuda_getDeviceCount()", "2"),
        ("torch.xpu.is_available()", "False"),
        ("torch.xpu.device_count()", "0"),
        ("torch.distributed.is_available()", "True"),
        ("torch.distributed.is_initialized()", "False"),
        ("torch.backends.cudnn.is_available()", "False"),
        ("torch.backends.cudnn.version()", "None"),
        ("torch.backends.mkl.is_available()", "False"),
        ("torch.backends.mkldnn.is_available()", "True"),
        ("torch.backends.openmp.is_available()", "True"),
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


@pytest.mark.parametrize(
    ("expression", "answer"),
    [
        ("torch.version.cuda", "None"),
        ("torch.cuda.is_available()", "False"),
        ("torch.cuda._is_compiled()", "False"),
        ("torch.cuda.device_count()", "0"),
        ("torch.cuda.get_arch_list()", "[]"),
        ("torch.cuda.is_bf16_supported()", "False"),
        ("torch.backends.cuda.is_built()", "False"),
        ("torch._C._cuda_getArchFlags()", "None"),
        ("torch.utils.cpp_extension.CUDA_HOME", "None"),
    ],
)
def test_a_build_without_device_code_sees_no_gpu(ask_cpu, expression, answer):
    done = ask_cpu("import torch.utils.cpp_extension", f"print({expression})")
    assert (done.stdout, done.stderr) == (f"{answer}\n", "")


@pytest.mark.parametrize("kind", ["RuntimeError", "AssertionError", "Exception"])
@pytest.mark.parametrize("name", ["get_device_capability", "current_device"])
def test_asking_for_a_gpu_where_none_is_raises_what_torch_raises(ask_cpu, kind, name):
    done = ask_cpu(
        "import torch",
        "try:", f"    torch.cuda.{name}()",
        f"except {kind} as error:", "    print(error)",
    )  # fmt: skip
    assert "No CUDA GPUs are available: cpu-debian-12" in done.stdout, done.stderr


def test_a_device_that_is_not_there_is_refused(ask):
    done = ask("import torch", "torch.cuda.get_device_capability(2)")
    assert done.stderr.strip().endswith("AssertionError: Invalid device id")


def test_the_version_compares_as_torchs_own(ask, toolchain):
    (toolchain.torch / "torch_version.py").write_text(
        "from torch.version import __version__ as own\nclass TorchVersion(str): pass\n"
        "__version__ = TorchVersion(own)\n"
    )
    done = ask("import torch", "print(type(torch.__version__).__name__)")
    assert done.stdout == "TorchVersion\n", done.stderr


def test_torch_lies_where_the_targets_does(ask, toolchain):
    done = ask(
        "import importlib.util, torch",
        "print(torch.__path__[0], torch.__file__, torch.utils.cmake_prefix_path)",
        "spec = importlib.util.find_spec('torch')",
        "print(spec.origin, spec.submodule_search_locations)",
    )
    torch = toolchain.torch
    assert done.stdout == (
        f"{torch} {torch}/__init__.py {torch}/share/cmake\n{torch}/__init__.py ['{torch}']\n"
    ), done.stderr


def test_the_metadata_of_torch_is_found(ask):
    done = ask("from importlib.metadata import version", "print(version('torch'))")
    assert done.stdout == "2.7.1\n", done.stderr


def test_plain_python_of_torch_is_the_targets_own(ask, toolchain):
    done = ask("from torch.utils import cpp_extension", "print(cpp_extension.WHERE)",
               "print(cpp_extension.CUDA)")  # fmt: skip
    assert (done.stdout, done.stderr) == (f"{toolchain.torch}/utils/cpp_extension.py\n11.8\n", "")


def test_toolkits_of_the_build_machine_are_not_seen(ask):
    done = ask("from torch.utils.cpp_extension import ROCM_HOME", "print(ROCM_HOME)")
    assert done.stdout == "None\n", done.stderr


@pytest.mark.parametrize("arch_list", ["6.2;7.2+PTX", "7.2+PTX 6.2"])
def test_a_release_makes_code_for_archs_of_the_target_that_are_younger(ask, arch_list):
    done = ask(
        "from torch.utils import cpp_extension",
        "print(*cpp_extension._get_cuda_arch_flags(), sep='\\n')",
        TORCH_CUDA_ARCH_LIST=arch_list,
    )
    assert done.stdout.splitlines() == [
        "-gencode=arch=compute_62,code=sm_62",
        "-gencode=arch=compute_72,code=compute_72",
        "-gencode=arch=compute_72,code=sm_72",
    ], done.stderr


@pytest.mark.parametrize(
    ("flag", "expected"),
    [
        ("-ccbin=/tools/aarch64-linux-gnu-gcc", "-gencode=arch=compute_62,code=sm_62"),
        ("-I/home/archer/include", "-gencode=arch=compute_62,code=sm_62"),
        ("-arch=compute_50", ""),
        ("--gpu-architecture=sm_62", ""),
        ("-gencode=arch=compute_75,code=sm_75", ""),
        ("arch=compute_75,code=sm_75", ""),
        ("--generate-code=arch=compute_75,code=sm_75", ""),
    ],
)
def test_only_flags_that_choose_archs_take_the_place_of_the_targets(ask, flag, expected):
    done = ask(
        "from torch.utils import cpp_extension",
        f"print(*cpp_extension._get_cuda_arch_flags(['-O3', {flag!r}]))",
        TORCH_CUDA_ARCH_LIST="6.2",
    )
    assert done.stdout == f"{expected}\n", done.stderr


@pytest.mark.parametrize("arch_list", ["8.6", "7.2;8.6", "nonsense"])
def test_archs_of_neither_the_release_nor_the_target_are_the_releases_to_refuse(ask, arch_list):
    done = ask(
        "from torch.utils import cpp_extension",
        "cpp_extension._get_cuda_arch_flags()",
        TORCH_CUDA_ARCH_LIST=arch_list,
    )
    assert f"Unknown CUDA arch ({arch_list.split(';')[-1]})" in done.stderr


UNANSWERED = {
    "torch.zeros(3)": ("AttributeError", "torch.zeros"),
    "torch._C._jit_init()": ("AttributeError", "torch._C._jit_init"),
    "torch.cuda.get_device_name()": ("AttributeError", "torch.cuda.get_device_name"),
    "torch.cuda.get_device_properties(0).name": (
        "AttributeError", "torch.cuda.get_device_properties().name"
    ),
    "torch.backends.quantized": ("AttributeError", "torch.backends.quantized"),
    "torch.version.nonsense": ("AttributeError", "torch.version.nonsense"),
    "from torch import Tensor": ("ModuleNotFoundError", "torch.Tensor"),
    "from torch import nn": ("ModuleNotFoundError", "torch.nn"),
    "import torch.nn.functional": ("ModuleNotFoundError", "torch.nn"),
    "import torch.distributed.rpc": ("ModuleNotFoundError", "torch.distributed.rpc"),
}  # fmt: skip


@pytest.mark.parametrize(("line", "expected"), UNANSWERED.items(), ids=UNANSWERED)
def test_what_the_stand_in_cannot_answer_is_said_with_line_target_and_address(ask, line, expected):
    done = ask("import torch", line)
    assert done.status == 1
    kind, name = expected
    assert done.stderr.strip().splitlines()[-1] == (
        f"{kind}: setup.py, line 2 asks for {name} of torch 2.7.1, which jetship cannot answer for "
        "sm62.sm72ptx-debian-12: the target's compiled code does not run on the machine that "
        "builds. If a build needs it, please report the line to the jetship project's issues."
    )


def test_a_file_of_the_project_and_torchs_own_line_are_named(ask, toolchain, tmp_path):
    project = tmp_path / "project"
    (project / "tools").mkdir(parents=True)
    (project / "tools/flags.py").write_text("\nfrom torch.utils import cpp_extension\n")
    own = toolchain.torch / "utils/cpp_extension.py"
    own.write_text(own.read_text() + "torch.ops.load_library('x')\n")
    lines = len(own.read_text().splitlines())
    done = ask("import sys", f"sys.path.insert(0, {str(project / 'tools')!r})", "import flags",
               JETSHIP_SOURCES=str(project))  # fmt: skip
    assert (
        f"tools/flags.py, line 2 (through torch/utils/cpp_extension.py, line {lines}) "
        "asks for torch.ops of"
    ) in done.stderr


def test_a_build_may_try_for_what_is_not_there(ask):
    done = ask("import torch", "print(hasattr(torch, 'npu'), getattr(torch, 'npu', 'none'))")
    assert done.stdout == "False none\n"
    assert done.stderr.splitlines() == [
        "note: setup.py, line 2 was told that there is no torch.npu"
    ]


@pytest.mark.parametrize("line", ["import torch.nn", "from torch import nn, Tensor"])
def test_a_build_may_try_to_import_what_is_not_there(ask, line):
    done = ask("try:", f"    {line}", "except ImportError:", "    print('without')")
    assert done.stdout == "without\n", done.stderr


def test_modules_may_be_looked_for(ask):
    done = ask(
        "from importlib.util import find_spec", "import torch",
        "print(find_spec('torch.nn') is not None, find_spec('torch.nonsense'))",
    )  # fmt: skip
    assert done.stdout == "True None\n", done.stderr


def test_a_torch_of_the_build_machine_is_never_imported(ask_of, fat_target, toolchain, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    for name in ("__init__", "cuda/__init__", "cuda/amp", "nvtx", "utils/__init__", "utils/data"):
        module = elsewhere / f"torch/{name}.py"
        module.parent.mkdir(parents=True, exist_ok=True)
        module.write_text("raise AssertionError('of the build machine')\n")
    ask = ask_of(fat_target, elsewhere=elsewhere)
    for name in ("torch.cuda", "torch.utils.cpp_extension"):
        assert ask(f"import {name}").ok
    for name in ("torch.cuda.amp", "torch.nvtx", "torch.utils.data"):
        error = ask(f"import {name}").stderr
        assert f"asks for {name} of torch" in error
        assert "of the build machine" not in error


@pytest.mark.parametrize(
    ("fact", "question"),
    [
        ("openmp", "torch.backends.openmp.is_available"),
        ("openmp", "torch.__config__.parallel_info"),
        ("mkl", "torch.backends.mkl.is_available"),
        ("cudnn", "torch.backends.cudnn.is_available"),
        ("cudnn", "torch.backends.cudnn.version"),
        ("nccl", "torch.cuda.nccl.version"),
        ("git_version", "torch.version.git_version"),
    ],
)
def test_what_no_file_says_is_refused_and_not_guessed(ask, state_fact, fact, question):
    state_fact(fact, None)
    done = ask("import torch", question if fact == "git_version" else f"{question}()")
    assert f"asks for {question} of" in done.stderr
    assert done.status == 1


@pytest.mark.parametrize(
    ("fact", "expression", "answer"),
    [
        (("nccl", [2, 28, 9]), "torch.cuda.nccl.version()", "(2, 28, 9)"),
        (("cudnn", 91900), "torch.backends.cudnn.version()", "91900"),
        (("cudnn", 91900), "torch.backends.cudnn.is_available()", "True"),
        (("openmp", False), "'OpenMP not found' in torch.__config__.show()", "True"),
        (("openmp", False), "'backend: OpenMP' in torch.__config__.parallel_info()", "False"),
        (("distributed", False), "torch.distributed.is_available()", "False"),
        (("code", [[8, 7]]), "torch.cuda.is_bf16_supported(including_emulation=False)", "True"),
    ],
)
def test_other_targets_give_other_answers(ask, state_fact, fact, expression, answer):
    state_fact(*fact)
    done = ask("import torch", f"print({expression})")
    assert (done.stdout, done.stderr) == (f"{answer}\n", "")


def test_a_torch_without_nccl_raises_what_torch_raises(ask):
    done = ask("import torch", "torch.cuda.nccl.version()")
    assert done.stderr.endswith("AttributeError: torch 2.7.1 is built without NCCL\n")


def test_nothing_is_written_into_the_toolchain(ask, toolchain):
    before = {path: path.stat().st_mtime_ns for path in toolchain.root.rglob("*")}
    assert ask("from torch.utils import cpp_extension").ok
    assert {path: path.stat().st_mtime_ns for path in toolchain.root.rglob("*")} == before

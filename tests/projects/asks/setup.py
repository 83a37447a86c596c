"""Asks of torch what public setup.py files ask, and keeps the answers in the wheel."""

import importlib.util
import json
from importlib.metadata import version
from pathlib import Path

import torch
import torch.cuda
from setuptools import setup
from torch import version as torch_version
from torch.__config__ import parallel_info
from torch.utils.cpp_extension import (
    CUDA_HOME,
    ROCM_HOME,
    BuildExtension,
    CppExtension,
    CUDAExtension,
    include_paths,
)
from torch.utils.hipify import __version__ as hipify_version


def attempt(ask):
    """Return an answer, or what was raised."""
    try:
        return ask()
    except Exception as error:  # noqa: BLE001 - as setup.py files do
        return type(error).__name__


has_gpu = torch.cuda.is_available() and CUDA_HOME is not None and torch.version.hip is None
devices = range(torch.cuda.device_count())
answers = {
    "version": torch.__version__,
    "at least 1.10": torch.__version__ >= (1, 10),
    "major and minor": [int(part) for part in torch.__version__.split(".")[:2]],
    "metadata": version("torch"),
    "version.cuda": torch_version.cuda,
    "version.debug": torch.version.debug,
    "git_version": isinstance(torch.version.git_version, str),
    "has_gpu": has_gpu,
    "capabilities": [torch.cuda.get_device_capability(device) for device in devices],
    "majors": [torch.cuda.get_device_properties(device).major for device in devices],
    "current device": attempt(torch.cuda.current_device),
    "archs": torch.cuda.get_arch_list(),
    "arch flags": torch._C._cuda_getArchFlags(),
    "bf16": hasattr(torch.cuda, "is_bf16_supported") and torch.cuda.is_bf16_supported(),
    "bad fork": hasattr(torch.cuda, "_is_in_bad_fork") and torch.cuda._is_in_bad_fork(),
    "initialized": torch.cuda.is_initialized(),
    "nccl": attempt(torch.cuda.nccl.version),
    "device name": attempt(lambda: torch.cuda.get_device_name(0)),
    "cxx11 abi": [torch._C._GLIBCXX_USE_CXX11_ABI, torch.compiled_with_cxx11_abi()],
    "pybind11": getattr(torch._C, "_PYBIND11_COMPILER_TYPE", None),
    "openmp": "backend: OpenMP" in parallel_info() and "OpenMP not found" not in parallel_info(),
    "blas is mkl": "BLAS_INFO=mkl" in torch.__config__.show(),
    "mkl": torch.backends.mkl.is_available(),
    "cudnn": torch.backends.cudnn.is_available(),
    "mps": hasattr(torch.backends, "mps") and torch.backends.mps.is_available(),
    "xpu": hasattr(torch, "xpu") and torch.xpu.is_available(),
    "npu": hasattr(torch, "npu"),
    "mlu": getattr(torch, "is_mlu_available", None),
    "rocm": [ROCM_HOME, torch.version.hip],
    "hipify": bool(hipify_version),
    "distributed": torch.distributed.is_available(),
    "header": Path(torch.__path__[0], "include/ATen/Functions.h").exists(),
    "beside": Path(torch.__file__).with_name("lib").is_dir(),
    "found": importlib.util.find_spec("torch").origin == torch.__file__,
    "cmake": Path(torch.utils.cmake_prefix_path, "Torch/TorchConfig.cmake").exists(),
    "includes": all(Path(path).is_dir() for path in include_paths()),
}
Path("asks/answers.json").write_text(json.dumps(answers))

extension = CUDAExtension("asks._C", ["scale.cu"]) if has_gpu else CppExtension(
    "asks._C", ["empty.cpp"]
)  # fmt: skip
setup(
    name="asks",
    version="1.0",
    packages=["asks"],
    package_data={"asks": ["answers.json"]},
    ext_modules=[extension],
    cmdclass={"build_ext": BuildExtension},
)

"""Build jetops, native or cross, with torch.utils.cpp_extension.

Whether CUDA code is built follows FORCE_CUDA (1 yes, 0 no) and, when that is unset, the torch the
build sees. The build machine's own GPU is never asked: it says nothing about the target.
"""

import os
import re

from setuptools import setup

try:
    import torch
    from torch.utils import cpp_extension
except ImportError as exc:
    raise SystemExit(
        f"jetops is compiled against an installed torch, and importing it failed ({exc}). "
        "Install torch first, then: pip install --no-build-isolation ./csrc"
    ) from exc

HERE = os.path.dirname(os.path.abspath(__file__))

COMMON_SOURCES = [
    "bindings/schema.cpp",
    "bindings/autograd.cpp",
    "bindings/cpu.cpp",
    "bindings/module.cpp",
    "kernels/cpu/gelu.cpp",
    "kernels/cpu/fused_attn_nms.cpp",
]
CUDA_SOURCES = [
    "bindings/cuda.cpp",
    "kernels/gelu.cu",
    "kernels/fused_attn_nms.cu",
]
NO_CUDA_SOURCES = ["bindings/no_cuda.cpp"]
HEADERS = [
    "bindings/checks.h",
    "kernels/jetops_kernels.h",
    "kernels/jetops_types.h",
    "kernels/gelu.cuh",
    "kernels/nms_math.h",
    "kernels/cpu/jetops_cpu.h",
]

# A multiply and an add fused into one instruction round once instead of twice. GCC does that by
# default on aarch64 and not on x86-64, and the keep mask has to be the same on both. The CUDA code
# of the NMS names its roundings one by one (nms_math.h), so nvcc needs no flag and gelu keeps FMA.
CXX_FLAGS = ["-O3", "-ffp-contract=off"]
NVCC_FLAGS = ["-O3"]


def version():
    with open(os.path.join(HERE, "jetops", "__init__.py")) as stream:
        return re.search(r'^__version__ = "([^"]+)"', stream.read(), re.MULTILINE).group(1)


def wants_cuda():
    choice = os.environ.get("FORCE_CUDA", "")
    if choice == "0":
        return False
    if choice not in ("", "1"):
        raise SystemExit(f"FORCE_CUDA must be 0, 1 or unset, got {choice!r}")
    if choice == "" and torch.version.cuda is None:
        return False
    if cpp_extension.CUDA_HOME is None:
        why = "FORCE_CUDA=1 is set" if choice else f"torch was built for CUDA {torch.version.cuda}"
        raise SystemExit(
            f"jetops is to be built with CUDA ({why}), but no CUDA toolkit was found: set CUDA_HOME "
            "to the folder that holds bin/nvcc, or set FORCE_CUDA=0 for CPU only."
        )
    return True


def extension():
    cuda = wants_cuda()
    kind = cpp_extension.CUDAExtension if cuda else cpp_extension.CppExtension
    flags = {"cxx": CXX_FLAGS, "nvcc": NVCC_FLAGS} if cuda else {"cxx": CXX_FLAGS}
    ext = kind(
        "jetops._C",
        COMMON_SOURCES + (CUDA_SOURCES if cuda else NO_CUDA_SOURCES),
        include_dirs=[os.path.join(HERE, "kernels")],
        depends=HEADERS,
        extra_compile_args=flags,
    )
    # Nothing here binds Python objects; without this entry a C++ program can load the library too.
    ext.libraries = [name for name in ext.libraries if name != "torch_python"]
    return ext


setup(
    name="jetops",
    version=version(),
    description="GELU and attention-weighted NMS as PyTorch operators for CPU and CUDA",
    python_requires=">=3.6",
    packages=["jetops"],
    ext_modules=[extension()],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
    zip_safe=False,
)

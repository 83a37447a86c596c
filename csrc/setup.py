"""Build jetops, native or cross, with torch.utils.cpp_extension.

Whether CUDA code is built follows FORCE_CUDA (1 yes, 0 no) and, when that is unset, the torch the
build sees. The build machine's own GPU is never asked: it says nothing about the target.
"""

import os
import re
import runpy

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

SOURCES = runpy.run_path(os.path.join(HERE, "jetops", "_sources.py"))


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
    flags = {"cxx": SOURCES["CXX_FLAGS"]}
    if cuda:
        flags["nvcc"] = SOURCES["NVCC_FLAGS"]
    ext = kind(
        "jetops._C",
        SOURCES["COMMON"] + SOURCES["MODULE"] + SOURCES["CUDA" if cuda else "NO_CUDA"],
        include_dirs=[os.path.join(HERE, "kernels")],
        depends=SOURCES["HEADERS"],
        extra_compile_args=flags,
    )
    # Nothing here binds Python objects; without this entry a C++ program can load the library too.
    ext.libraries = [name for name in ext.libraries if name != "torch_python"]
    return ext


setup(
    name="jetops",
    version=version(),
    description="GELU, bias + GELU + dropout and attention-weighted NMS as PyTorch operators for CPU and CUDA",
    python_requires=">=3.6",
    packages=["jetops", "jetops.bench"],
    extras_require={"bench": ["matplotlib"]},
    ext_modules=[extension()],
    cmdclass={"build_ext": cpp_extension.BuildExtension},
    # Without ninja setuptools compiles what is older than its sources: not what another torch compiled.
    options={"build_ext": {"force": True}},
    zip_safe=False,
)

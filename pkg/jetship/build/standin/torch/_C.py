"""Constants of the target's compiled half, read from its libraries."""

from torch._standin import FACTS, unknown_to

_GLIBCXX_USE_CXX11_ABI = FACTS["cxx11_abi"]
_PYBIND11_COMPILER_TYPE = FACTS["pybind11"]["compiler_type"]
_PYBIND11_STDLIB = FACTS["pybind11"]["stdlib"]
_PYBIND11_BUILD_ABI = FACTS["pybind11"]["build_abi"]


def _cuda_getArchFlags():
    from torch import cuda

    return " ".join(cuda.get_arch_list()) or None


def _cuda_getDeviceCount():
    return len(FACTS["code"])


__getattr__ = unknown_to(__name__)

"""Constants of the target's compiled half, read from its libraries."""

from torch import _FACTS

_GLIBCXX_USE_CXX11_ABI = _FACTS["cxx11_abi"]
_PYBIND11_COMPILER_TYPE = _FACTS["pybind11"]["compiler_type"]
_PYBIND11_STDLIB = _FACTS["pybind11"]["stdlib"]
_PYBIND11_BUILD_ABI = _FACTS["pybind11"]["build_abi"]


def __getattr__(name):
    raise AttributeError(
        "this build asks torch._C.%s, which jetship's stand-in cannot answer" % name
    )

"""A stand-in for torch that answers what a setup.py asks, with the facts of the target.

It comes first on the build's path. `torch.utils.cpp_extension` and the plain Python that it needs
are the target's own, so that the flags are those of that release. The target's compiled half is
never loaded, no GPU is ever asked for, and a question that has no answer says so. docs/standin.md
lists the questions.
"""

import sys

from torch import _standin

_standin.take_the_place_of_torch(sys.modules[__name__])

from torch import _C, __config__, backends, cuda, distributed, utils, version, xpu
from torch.torch_version import __version__

__all__ = ["_C", "__config__", "__version__", "backends", "cuda", "distributed", "utils",
           "version", "xpu"]  # fmt: skip


def compiled_with_cxx11_abi():
    """Return whether the target's torch uses libstdc++'s C++11 ABI."""
    return _C._GLIBCXX_USE_CXX11_ABI


__getattr__ = _standin.unknown_to(__name__)

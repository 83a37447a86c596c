"""A stand-in for torch that answers what a setup.py asks, with the facts of the target.

It comes first on the build's path. The target's own torch folder stands behind it in
`__path__`, so `torch.utils.cpp_extension` and whatever else is plain Python is the target's,
and the flags are those of that release. The target's compiled half is never loaded.
"""

import json
import os

with open(os.environ["JETSHIP_STANDIN_FACTS"], encoding="utf-8") as _stream:
    _FACTS = json.load(_stream)

_TARGET = os.path.join(_FACTS["site_packages"], "torch")
__path__.append(_TARGET)

from torch import _C, __config__, backends, cuda, utils, version, xpu
from torch.torch_version import __version__

__all__ = ["_C", "__config__", "__version__", "backends", "cuda", "utils", "version", "xpu"]


def compiled_with_cxx11_abi():
    """Return whether the target's torch uses libstdc++'s C++11 ABI."""
    return _C._GLIBCXX_USE_CXX11_ABI


def __getattr__(name):
    raise AttributeError(
        "this build asks torch.%s of the target's torch %s, which jetship's stand-in cannot "
        "answer without running the target's code. Please report it to jetship with the line "
        "of setup.py that asks." % (name, version.__version__)
    )

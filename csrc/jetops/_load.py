"""Finds the compiled half of the package and loads it."""

import glob
import os
from importlib.machinery import EXTENSION_SUFFIXES

import torch


def find_library():
    # type: () -> str
    """The path of the compiled library beside this file.

    The name that this interpreter would choose comes first, then any other ``_C*.so``: the library
    binds nothing of Python, so one that was built for another version of Python serves as well.

    Raises:
        ImportError: there is none.
    """
    folder = os.path.dirname(os.path.abspath(__file__))
    exact = [os.path.join(folder, "_C" + suffix) for suffix in EXTENSION_SUFFIXES]
    for path in exact + sorted(glob.glob(os.path.join(folder, "_C*.so"))):
        if os.path.isfile(path):
            return path
    raise ImportError(
        f"jetops is not compiled: there is no _C*.so in {folder}. Install it with 'pip install "
        "--no-build-isolation ./csrc', and do not run Python from inside csrc/, where this source "
        "folder hides the installed package."
    )


def load_library():
    # type: () -> None
    """Load the compiled library, which registers the operators.

    Raises:
        ImportError: the library is missing, or does not fit this torch or this machine.
    """
    path = find_library()
    try:
        torch.ops.load_library(path)
    except OSError as exc:
        raise ImportError(
            f"jetops could not load {path} with torch {torch.__version__}: {exc}. The library "
            "must be built against the torch it is loaded with."
        ) from exc

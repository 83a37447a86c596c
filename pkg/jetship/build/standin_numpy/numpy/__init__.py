"""numpy as a build for another machine needs it: the build machine's own, with target's headers.

What a setup.py computes with numpy runs here. What it compiles with numpy runs on the target, with
the numpy that the target's Python can have, which may be another release: so `get_include` leads
to the headers of that one, and Cython finds its .pxd files behind this folder on the path.
"""

import importlib.machinery
import importlib.util
import os
import sys
import sysconfig

_own = importlib.machinery.PathFinder.find_spec("numpy", [sysconfig.get_path("platlib")])
if _own is None:
    raise ImportError("numpy is not among the project's build requirements")
numpy = importlib.util.module_from_spec(_own)
sys.modules["numpy"] = numpy
_own.loader.exec_module(numpy)


def get_include():
    """Return the folder with the headers of the target's numpy."""
    root = os.path.join(os.environ["JETSHIP_NUMPY"], "numpy")
    folders = [os.path.join(root, core, "include") for core in ("_core", "core")]
    return next(folder for folder in folders if os.path.isdir(folder))


numpy.get_include = get_include

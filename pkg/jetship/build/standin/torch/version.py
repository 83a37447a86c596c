"""The target torch's version, with the CUDA that extensions are compiled with."""

import os
import runpy

from torch import _FACTS

_own = runpy.run_path(os.path.join(_FACTS["site_packages"], "torch", "version.py"))

__version__ = _own["__version__"]
debug = _own.get("debug", False)
git_version = _own.get("git_version")
hip = None
xpu = None
# A CPU build of torch says None here, and its headers serve a CUDA extension all the same.
cuda = _FACTS["cuda"]

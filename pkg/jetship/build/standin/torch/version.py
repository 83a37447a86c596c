"""The target torch's version, with the CUDA that extensions are compiled with."""

import os
import runpy

from torch._standin import FACTS, TARGET, unknown_to

globals().update({
    name: value
    for name, value in runpy.run_path(os.path.join(TARGET, "version.py")).items()
    if not name.startswith("_") and name not in ("Optional", "git_version")
})  # fmt: skip

__version__ = FACTS["version"]
if FACTS["git_version"] is not None:
    git_version = FACTS["git_version"]
# A CPU build of torch says None here, and its headers serve a CUDA extension all the same.
cuda = FACTS["cuda"]

__getattr__ = unknown_to(__name__)

"""The target torch's utils, without its __init__, which would load the compiled half."""

import os

from torch._standin import TARGET, unknown_to

__file__ = os.path.join(TARGET, "utils", "__init__.py")
cmake_prefix_path = os.path.join(TARGET, "share", "cmake")

__getattr__ = unknown_to(__name__)

"""The target torch's utils, without its __init__, which would load the compiled half."""

import os

from torch import _FACTS

__path__.append(os.path.join(_FACTS["site_packages"], "torch", "utils"))

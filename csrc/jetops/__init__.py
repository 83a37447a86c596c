"""PyTorch operators for Jetson boards and servers: GELU and attention-weighted NMS.

Importing the package loads its compiled half, which registers the operators as
``torch.ops.jetops.*`` for eager mode, TorchScript and, on torch 2.1 and later, torch.compile.
"""

# A wheel made by a packaging tool may carry a module that compares the wheel with the machine it
# was installed on; it has to speak before the compiled half is loaded. A plain build has none.
try:
    from ._jetship_guard import check as _check_machine
except ModuleNotFoundError as _error:
    if _error.name != __name__ + "._jetship_guard":
        raise
else:
    _check_machine()

from ._load import load_library

__version__ = "0.1.0"

load_library()

from . import fake  # noqa: F401  the operators exist from here on
from .ops import fused_attn_nms, fused_attn_nms_scored, gelu

__all__ = ["fused_attn_nms", "fused_attn_nms_scored", "gelu"]

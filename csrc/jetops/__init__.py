"""PyTorch operators for Jetson boards and servers: GELU, alone and with bias and dropout, and
attention-weighted NMS.

Importing the package loads its compiled half, which registers the operators as
``torch.ops.jetops.*`` for eager mode, TorchScript, torch.compile and torch.export.
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

from .ingest import Frame, FrameIngest, IngestError
from .jit import jit_load
from .ops import bias_gelu_dropout, fused_attn_nms, fused_attn_nms_scored, gelu, new_seed

__all__ = [
    "Frame",
    "FrameIngest",
    "IngestError",
    "bias_gelu_dropout",
    "fused_attn_nms",
    "fused_attn_nms_scored",
    "gelu",
    "jit_load",
    "new_seed",
]

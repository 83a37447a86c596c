"""What torch.compile and torch.export need to know: shapes and dtypes without data.

torch 2.4 calls the hook register_fake, 2.1 to 2.3 call it impl_abstract, and older releases have
none: there the operators work in eager mode and in TorchScript only.
"""

import torch


def _gelu(x, approximate="none"):
    return x.new_empty(x.shape)


def _fused_attn_nms(boxes, scores, attn_map, iou_threshold):
    return scores.new_empty(scores.shape, dtype=torch.bool)


def _fused_attn_nms_scored(boxes, scores, attn_map, iou_threshold):
    return scores.new_empty(scores.shape, dtype=torch.bool), scores.new_empty(scores.shape)


def _register():
    # type: () -> None
    library = getattr(torch, "library", None)
    register = getattr(library, "register_fake", None) or getattr(library, "impl_abstract", None)
    if register is None:
        return
    register("jetops::gelu")(_gelu)
    register("jetops::fused_attn_nms")(_fused_attn_nms)
    register("jetops::fused_attn_nms_scored")(_fused_attn_nms_scored)


_register()

"""The operators as typed Python functions. Scriptable, traceable, and visible to torch.compile."""

from typing import Tuple

import torch
from torch import Tensor


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit, elementwise, computed in float32 and rounded once.

    ``approximate="none"`` is x/2 * (1 + erf(x / sqrt 2)); ``"tanh"`` is
    x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). Both are from Hendrycks and Gimpel, "Gaussian
    Error Linear Units" (arXiv 1606.08415), and are evaluated without cancellation on the negative
    side. The limits hold: 0 at -inf, inf at inf; NaN stays NaN.

    Args:
        x: any shape, contiguous, float32, float16 or bfloat16, on CPU or CUDA.
        approximate: "none" or "tanh".

    Returns:
        A tensor of the shape, dtype and device of ``x``.

    Raises:
        RuntimeError: an argument is not as described.
        NotImplementedError: ``x`` requires grad and grad mode is on; there is no backward.
    """
    return torch.ops.jetops.gelu(x, approximate=approximate)


def fused_attn_nms(boxes: Tensor, scores: Tensor, attn_map: Tensor, iou_threshold: float) -> Tensor:
    """Greedy non-maximum suppression in the order of attention-weighted scores.

    weighted = scores * (attn_map @ scores), as the duplicate removal of "Relation Networks for
    Object Detection" (Hu et al., arXiv 1711.11575) multiplies two scores, the second of which
    comes from attention over all boxes. Boxes are visited by weighted score descending, equal ones
    by index ascending; a visited box that no kept box has suppressed is kept, and suppresses every
    later box whose IoU with it is greater than ``iou_threshold``.

    All arithmetic is float32 in one fixed order (kernels/nms_math.h), so the result has the same
    bits on every machine and in every run. A box whose weighted score is NaN is never kept and
    suppresses nothing. A box without positive width and height has IoU 0 with every box.

    Args:
        boxes: [N, 4] as x1, y1, x2, y2; N at most 16384.
        scores: [N].
        attn_map: [N, N]; row i weights all scores for box i.
        iou_threshold: within [0, 1], rounded to float32.
        All tensors are float32, contiguous and on one device, CPU or CUDA.

    Returns:
        [N] bool, True where the box is kept; it has no gradient.

    Raises:
        RuntimeError: an argument is not as described.
    """
    return torch.ops.jetops.fused_attn_nms(boxes, scores, attn_map, iou_threshold)


def fused_attn_nms_scored(
    boxes: Tensor, scores: Tensor, attn_map: Tensor, iou_threshold: float
) -> Tuple[Tensor, Tensor]:
    """:func:`fused_attn_nms`, returning the weighted scores as well.

    Returns:
        The keep mask, [N] bool, and the weighted scores, [N] float32, both in the order of
        ``boxes``.

    Raises:
        RuntimeError: an argument is not as described.
        NotImplementedError: ``scores`` or ``attn_map`` requires grad and grad mode is on.
    """
    return torch.ops.jetops.fused_attn_nms_scored(boxes, scores, attn_map, iou_threshold)

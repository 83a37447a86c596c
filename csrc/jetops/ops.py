"""The operators as typed Python functions. Scriptable, traceable, and visible to torch.compile.

What holds for all: gradients come from autograd alone. A gradient of a gradient, forward mode and the
transforms of torch.func that differentiate (grad, jvp, jacrev) are refused. torch.func.vmap works, as
a loop over the batch, where the slices that in_dims cuts are contiguous: with 0 and a contiguous
tensor, and seldom with another. Under autocast, tensors of one call are brought to one dtype: bias to
that of x, boxes to float32, scores and attn_map to float32 where they differ. Before torch 2.4 Inductor
may hand strides of its own to an operator, which is refused; torch.compile(backend="aot_eager") does
not. new_seed is scriptable from torch 2.2 on, whose TorchScript knows generators. On the CPU, gelu is
slower than torch.nn.functional.gelu; on a GPU it is not, but calling any of these from Python takes
4 us longer, which shows where tensors are small.
"""

from typing import Optional, Tuple

import torch
from torch import Tensor


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """Gaussian error linear unit, elementwise, computed in float32 and rounded once.

    ``approximate="none"`` is x/2 * (1 + erf(x / sqrt 2)); ``"tanh"`` is
    x/2 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3))). Both are from Hendrycks and Gimpel, "Gaussian
    Error Linear Units" (arXiv 1606.08415), and are evaluated without cancellation on the negative
    side. The limits hold: 0 at -inf, where torch.nn.functional.gelu gives NaN, and inf at inf; the
    gradient is 0 at -inf and 1 at inf. NaN stays NaN in both.

    Args:
        x: any shape, contiguous, float32, float16 or bfloat16, on CPU or CUDA.
        approximate: "none" or "tanh".

    Returns:
        A tensor of the shape, dtype and device of ``x``.

    Raises:
        RuntimeError: an argument is not as described.

    It has a gradient, and no second one.
    """
    if x is None:
        raise RuntimeError("jetops::gelu: x must be a tensor, got None.")
    return torch.ops.jetops.gelu(x, approximate=approximate)


def new_seed(device: torch.device, generator: Optional[torch.Generator] = None) -> Tensor:
    """Two random numbers for :func:`bias_gelu_dropout`, made on ``device``.

    They come from ``generator``, or from the default one of the device, so torch.manual_seed makes
    them repeat. Nothing is read back to the host; the call can be captured in a CUDA graph, and every
    replay gives other numbers. A captured graph knows the default generator; another one has to be
    made known to it by CUDAGraph.register_generator_state.

    Returns:
        int64 of sizes [2].
    """
    if generator is None:
        return _seed_of_the_default_generator(device)
    largest = 9223372036854775807  # 2**63 - 1, which is a float in TorchScript
    return torch.randint(largest, (2,), dtype=torch.int64, device=device, generator=generator)


def _seed_of_the_default_generator(device: torch.device) -> Tensor:
    """By itself: TorchScript of old versions knows no generators, and none knows global numbers."""
    largest = 9223372036854775807  # 2**63 - 1, which is a float in TorchScript
    return torch.randint(largest, (2,), dtype=torch.int64, device=device)


def _check_number(p):
    # type: (object) -> None
    if not isinstance(p, (float, int)) and not hasattr(p, "__float__"):
        raise RuntimeError(
            "jetops::bias_gelu_dropout: p must be a number within [0, 1], got a " + type(p).__name__
        )


def bias_gelu_dropout(
    x: Tensor,
    bias: Tensor,
    p: float = 0.5,
    training: bool = True,
    approximate: str = "none",
    seed: Optional[Tensor] = None,
) -> Tensor:
    """dropout(gelu(x + bias)) in one pass over ``x``, and the same again in the backward.

    The arithmetic is float32, rounded once. What dropout drops is made from ``seed`` in the forward and
    again in the backward, so no mask is stored; it depends on the seed, ``p``, the dtype's size and
    the place of an element, and neither on the device nor on how the work is cut. With ``p`` in units
    of 2^-16 for 16-bit dtypes and 2^-32 for float32, what is kept is scaled by the inverse of exactly
    the probability with which it is kept. What is dropped is 0, also where gelu is not finite.

    torch.utils.checkpoint calls the forward again: with a ``seed`` that was made outside it drops the
    same elements. With None it does so while preserve_rng_state is True, which is the default; with
    False other elements would be dropped than in the forward, and the gradient would be wrong.

    Args:
        x: [..., C], contiguous, float32, float16 or bfloat16, on CPU or CUDA.
        bias: [C], of the dtype and device of ``x``.
        p: probability of being dropped, within [0, 1].
        training: False switches dropout off.
        approximate: "none" or "tanh", as for :func:`gelu`.
        seed: int64 of sizes [2] on the device of ``x``, any two numbers; None makes new ones
            with :func:`new_seed`.

    Returns:
        A tensor of the shape, dtype and device of ``x``.

    Raises:
        RuntimeError: an argument is not as described.

    It has gradients of x and bias, and no second ones. That of bias is summed in float32, in an
    order that is the same in every run.
    """
    if x is None or bias is None:
        raise RuntimeError("jetops::bias_gelu_dropout: x and bias must be tensors, got None.")
    if not torch.jit.is_scripting():
        _check_number(p)
    # What is no probability goes on to the operator, which refuses it: also where it has no use, and
    # before a random number is drawn.
    probability = p if training or not 0.0 <= p <= 1.0 else 0.0
    if seed is None:
        # Where no random number is used, none is drawn: the default generator stays as it is.
        if 0.0 < probability < 1.0:
            seed = _seed_of_the_default_generator(x.device)
        else:
            seed = torch.empty(2, dtype=torch.int64, device=x.device)
    return torch.ops.jetops.bias_gelu_dropout(x, bias, seed, probability, approximate=approximate)


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

    On a GPU the time depends on the longest chain in which a box waits for the fate of the one
    before it. In detections that is some ten boxes. A chain through all boxes, their indices in no
    order, takes 1 to 1.6 us a box on an H200, and is the one case in which sorting first is faster.

    Args:
        boxes: [N, 4] as x1, y1, x2, y2; N at most 16384.
        scores: [N], float32, float16 or bfloat16.
        attn_map: [N, N], of the dtype of ``scores``; row i weights all scores for box i.
        iou_threshold: within [0, 1], rounded to float32.
        boxes are float32. All tensors are contiguous and on one device, CPU or CUDA.

    Returns:
        [N] bool, True where the box is kept; it has no gradient.

    Raises:
        RuntimeError: an argument is not as described.
    """
    if boxes is None or scores is None or attn_map is None:
        raise RuntimeError(
            "jetops::fused_attn_nms: boxes, scores and attn_map must be tensors, got None."
        )
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
    if boxes is None or scores is None or attn_map is None:
        raise RuntimeError(
            "jetops::fused_attn_nms_scored: boxes, scores and attn_map must be tensors, got None."
        )
    return torch.ops.jetops.fused_attn_nms_scored(boxes, scores, attn_map, iou_threshold)

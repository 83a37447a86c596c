"""What the operators compute, written to be read. Slow, on the CPU, and the definition of truth."""

import math
from typing import List, Tuple

import torch
from torch import Tensor

WORD = 0xFFFFFFFF
PARTIALS = 128
LANES = 32


def gelu(x: Tensor, approximate: str = "none") -> Tensor:
    """GELU of any float tensor in float64, one value at a time.

    Formulas: Hendrycks and Gimpel, arXiv 1606.08415. erfc(-z) stands for 1 + erf(z), and
    2 sigmoid(2u) for 1 + tanh(u), which are equal but keep their digits for negative ``x``. The
    value at -inf is the limit, -0.

    Returns:
        float64, of the shape of ``x``, on the CPU.

    Raises:
        ValueError: ``approximate`` is neither "none" nor "tanh".
    """
    if approximate not in ("none", "tanh"):
        raise ValueError(f'approximate must be "none" or "tanh", got {approximate!r}')
    one = _gelu_tanh if approximate == "tanh" else _gelu_erf
    values = [one(value) for value in x.detach().double().cpu().flatten().tolist()]
    return torch.tensor(values, dtype=torch.float64).reshape(x.shape)


def _gelu_erf(x):
    # type: (float) -> float
    return -0.0 if x == -math.inf else 0.5 * x * math.erfc(-x / math.sqrt(2.0))


def _gelu_tanh(x):
    # type: (float) -> float
    if math.isinf(x):
        return x if x > 0 else -0.0
    u = math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x)
    # exp overflows above 709; the quotient is below the smallest float32 long before that.
    return -0.0 if u < -350.0 else x / (1.0 + math.exp(-2.0 * u))


def gelu_slope(x: Tensor, approximate: str = "none") -> Tensor:
    """The derivative of :func:`gelu` in float64, by its formula. ``x`` is finite."""
    x = x.detach().double().cpu()
    if approximate == "tanh":
        c = math.sqrt(2.0 / math.pi)
        sigmoid = torch.sigmoid(2.0 * c * (x + 0.044715 * x**3))
        return sigmoid + x * sigmoid * (1.0 - sigmoid) * 2.0 * c * (1.0 + 3.0 * 0.044715 * x**2)
    normal = 0.5 * torch.special.erfc(-x / math.sqrt(2.0))
    return normal + x * torch.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi)


def philox(key, counter, rounds=7):
    # type: (int, int, int) -> List[int]
    """Philox4x32-7 of a 64-bit key and a 128-bit counter: four 32-bit numbers.

    Salmon, Moraes, Dror and Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3" (SC 2011).
    """
    word = [(counter >> shift) & WORD for shift in (0, 32, 64, 96)]
    key0, key1 = key & WORD, (key >> 32) & WORD
    for _ in range(rounds):
        product0, product1 = 0xD2511F53 * word[0], 0xCD9E8D57 * word[2]
        word = [
            (product1 >> 32) ^ word[1] ^ key0,
            product1 & WORD,
            (product0 >> 32) ^ word[3] ^ key1,
            product0 & WORD,
        ]
        key0, key1 = (key0 + 0x9E3779B9) & WORD, (key1 + 0xBB67AE85) & WORD
    return word


def dropout_mask(shape, seed, p, dtype):
    # type: (Tuple[int, ...], Tuple[int, int], float, torch.dtype) -> Tuple[Tensor, float]
    """Which elements are kept, bool of ``shape``, and what those are multiplied by.

    An element takes 16 bits of its chunk's random numbers, or 32 for float32, lower ones first; it is
    dropped when they are below p in units of 2^-16, or 2^-32. A chunk is 16 bytes of the tensor.
    """
    bits = 32 if dtype == torch.float32 else 16
    count = 1
    for size in shape:
        count *= size
    if p >= 1.0:
        return torch.zeros(shape, dtype=torch.bool), 0.0
    threshold = min(math.floor(p * 2.0**bits + 0.5), 2**bits - 1)
    key, stream = (number & (2**64 - 1) for number in seed)
    shares = []  # type: List[int]
    while len(shares) < count:
        chunk = len(shares) * bits // 128
        for word in philox(key, stream << 64 | chunk):
            shares += [word] if bits == 32 else [word & 0xFFFF, word >> 16]
    kept = [share >= threshold for share in shares[:count]]
    scale = 2.0**bits / (2.0**bits - threshold)
    return torch.tensor(kept, dtype=torch.bool).reshape(shape), scale


def bias_gelu_dropout(x, bias, seed, p, approximate="none"):
    # type: (Tensor, Tensor, Tuple[int, int], float, str) -> Tensor
    """float64, of the shape of ``x``, on the CPU; the mask is that of the dtype of ``x``."""
    kept, scale = dropout_mask(tuple(x.shape), seed, p, x.dtype)
    activated = gelu(x.detach().cpu().float() + bias.detach().cpu().float(), approximate)
    return torch.where(kept, activated * scale, torch.zeros_like(activated))


def bias_gelu_dropout_backward(grad_y, x, bias, seed, p, approximate="none"):
    # type: (Tensor, Tensor, Tensor, Tuple[int, int], float, str) -> Tuple[Tensor, Tensor]
    """The gradients of x and of bias, float64, on the CPU. Inputs are finite."""
    kept, scale = dropout_mask(tuple(x.shape), seed, p, x.dtype)
    slope = gelu_slope(x.detach().cpu().float() + bias.detach().cpu().float(), approximate)
    grad = grad_y.detach().cpu().double() * slope * scale
    grad_x = torch.where(kept, grad, torch.zeros_like(grad))
    return grad_x, grad_x.reshape(-1, bias.shape[0]).sum(0)


def weighted_scores(scores: Tensor, attn_map: Tensor) -> Tensor:
    """scores * (attn_map @ scores) in float32, bit for bit as the kernels compute it.

    The sum over the columns of a row goes into 128 partial sums, partial p taking columns p, p+128,
    p+256, ... in turn. Then lane l of 32 joins its four neighbours, and the lanes are halved
    until one is left. Each torch call below rounds once, for all rows at a time.

    Args:
        scores: [N], and attn_map: [N, N]; 16-bit values are converted first, which is exact.

    Returns:
        [N] float32 on the CPU.
    """
    scores, attn_map = scores.detach().cpu().float(), attn_map.detach().cpu().float()
    count = scores.shape[0]
    partial = torch.zeros(count, PARTIALS)
    for start in range(0, count, PARTIALS):
        stop = min(start + PARTIALS, count)
        products = attn_map[:, start:stop] * scores[start:stop]
        partial[:, : stop - start] = partial[:, : stop - start] + products
    four = partial.reshape(count, LANES, 4)
    lanes = (four[:, :, 0] + four[:, :, 2]) + (four[:, :, 1] + four[:, :, 3])
    width = LANES // 2
    while width > 0:
        lanes = lanes[:, :width] + lanes[:, width : 2 * width]
        width //= 2
    return scores * lanes[:, 0]


def visiting_order(weighted: Tensor) -> List[int]:
    """Indices by score descending, then by index ascending; those with a NaN score are left out."""
    values = weighted.tolist()
    return sorted(
        (i for i, v in enumerate(values) if not math.isnan(v)), key=lambda i: (-values[i], i)
    )


def areas(boxes: Tensor) -> Tensor:
    """[N] float32: 0 for a box without positive width and height."""
    x1, y1, x2, y2 = boxes.unbind(1)
    return torch.where((x2 > x1) & (y2 > y1), (x2 - x1) * (y2 - y1), torch.zeros_like(x1))


def iou_with_all(index: int, boxes: Tensor, area: Tensor) -> Tensor:
    """[N] float32: the IoU of box ``index`` with each box, 0 where either has area 0."""
    one = boxes[index]
    width = torch.min(one[2], boxes[:, 2]) - torch.max(one[0], boxes[:, 0])
    height = torch.min(one[3], boxes[:, 3]) - torch.max(one[1], boxes[:, 1])
    common = width * height
    union = (area[index] + area) - common
    meets = (width > 0) & (height > 0) & (area > 0) & (area[index] > 0) & (union > 0)
    return torch.where(meets, common / union, torch.zeros_like(common))


def greedy_nms(boxes: Tensor, weighted: Tensor, iou_threshold: float) -> Tensor:
    """Sequential greedy suppression: the keep mask, [N] bool, for the given weighted scores."""
    boxes, weighted = boxes.detach().cpu(), weighted.detach().cpu()
    threshold = torch.tensor(iou_threshold, dtype=torch.float32)
    area = areas(boxes)
    keep = torch.zeros(len(boxes), dtype=torch.bool)
    suppressed = torch.zeros(len(boxes), dtype=torch.bool)
    for index in visiting_order(weighted):
        if not suppressed[index]:
            keep[index] = True
            suppressed |= iou_with_all(index, boxes, area) > threshold
    return keep


def fused_attn_nms_scored(
    boxes: Tensor, scores: Tensor, attn_map: Tensor, iou_threshold: float
) -> Tuple[Tensor, Tensor]:
    """The keep mask, [N] bool, and the weighted scores, [N] float32, on the CPU."""
    weighted = weighted_scores(scores, attn_map)
    return greedy_nms(boxes, weighted, iou_threshold), weighted


def fused_attn_nms(boxes: Tensor, scores: Tensor, attn_map: Tensor, iou_threshold: float) -> Tensor:
    """The keep mask alone."""
    return fused_attn_nms_scored(boxes, scores, attn_map, iou_threshold)[0]

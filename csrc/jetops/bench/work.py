"""How much the operators have to do: bytes and arithmetic, counted from what they are defined as.

Bytes are those of inputs and outputs, each moved once; whatever else an implementation moves is its
own doing. Arithmetic is counted from the formulas in kernels/*.h, a multiply with an add in one
instruction (FMA) as two operations and one instruction, everything else (add, multiply, minimum,
comparison, choice, power of two, reciprocal, integer step) as one of each. Conversions between 16 and
32 bits, addresses and loops are not counted.
"""

import math
from typing import NamedTuple


class Work(NamedTuple):
    """What one call has to do at least."""

    bytes: int
    operations: float
    instructions: float


class Tally(NamedTuple):
    """Arithmetic of one element: FMAs, and other instructions."""

    fma: float
    other: float

    def plus(self, fma=0.0, other=0.0):
        # type: (float, float) -> Tally
        return Tally(self.fma + fma, self.other + other)

    def times(self, count, size):
        # type: (float, int) -> Work
        """The work of ``count`` elements that are ``size`` bytes in all."""
        return Work(size, count * (2 * self.fma + self.other), count * (self.fma + self.other))


# gelu_math.h, by form and whether 16-bit results are asked for.
# erf: |x| cut off, max(x, 0), s = 1/(1 + k|x|) as FMA and reciprocal, g(s) in 5 FMAs (9 for fp32),
#   exp(-x^2/2) as two products and 2^y (fp32 carries the rounding error along: 5 FMAs, 4 others),
#   their product, and an FMA for the result.
# tanh: x kept finite (2), x*x, FMA, product, 2^y, +1, reciprocal, product.
FORWARD = {
    ("none", True): Tally(7, 7),
    ("none", False): Tally(16, 8),
    ("tanh", True): Tally(1, 8),
    ("tanh", False): Tally(1, 8),
}
# The slope, times the gradient. erf: as above without max(x, 0), then |x| exp(-x^2/2), 1/2 - Q, FMA,
# sign, +1/2. tanh: the sigmoid s (1 FMA, 5 others), |x| cut off, its inner slope (FMA and 2), s - s*s,
# sign, FMA.
BACKWARD = {
    ("none", True): Tally(7, 11),
    ("none", False): Tally(16, 12),
    ("tanh", True): Tally(4, 10),
    ("tanh", False): Tally(4, 10),
}

# philox.h: in each of 7 rounds two products of 32 by 32 bits (low and high half), 4 exclusive ors and
# 2 additions to the key. One call is for 16 bytes of elements.
PHILOX = 7 * (4 + 4 + 2)
CHUNK_BYTES = 16


def gelu(count, item_bytes, form):
    # type: (int, int, str) -> Work
    """x is read and y written."""
    return FORWARD[form, item_bytes == 2].times(count, 2 * count * item_bytes)


def gelu_backward(count, item_bytes, form):
    # type: (int, int, str) -> Work
    """x and the gradient of y are read, the gradient of x is written."""
    return BACKWARD[form, item_bytes == 2].times(count, 3 * count * item_bytes)


def _philox_share(item_bytes):
    # type: (int) -> float
    return PHILOX * item_bytes / CHUNK_BYTES


def bias_gelu_dropout(rows, columns, item_bytes, form):
    # type: (int, int, int, str) -> Work
    """gelu, and of each element: + bias, the random bits, comparison, choice, scale."""
    tally = FORWARD[form, item_bytes == 2].plus(other=4 + _philox_share(item_bytes))
    return tally.times(rows * columns, (2 * rows * columns + columns) * item_bytes)


def bias_gelu_dropout_both(rows, columns, item_bytes, form):
    # type: (int, int, int, str) -> Work
    """The forward, and the backward, which also adds up the gradient of the bias."""
    forward = bias_gelu_dropout(rows, columns, item_bytes, form)
    tally = BACKWARD[form, item_bytes == 2].plus(other=5 + _philox_share(item_bytes))
    backward = tally.times(rows * columns, (3 * rows * columns + 2 * columns) * item_bytes)
    return Work(*(one + other for one, other in zip(forward, backward)))


# nms_math.h: of a pair of boxes 2 minima, 3 maxima and 2 differences of corners, the common area, both
# areas together (2), and the comparison with the threshold: an FMA, a product, an integer step, >.
PAIR = Tally(1, 13)


def nms(count, item_bytes):
    # type: (int, int) -> Work
    """attn_map, scores and boxes are read, a byte a box is written.

    Arithmetic is a multiply and an add, rounded apart, for each element of attn_map, one comparison of
    each pair of boxes and a sort. What a kernel skips since one of a pair is suppressed already is
    counted all the same.
    """
    pairs = PAIR.times(count * (count - 1) / 2, 0)
    single = 2 * count * count + count + count * math.log2(max(count, 2))
    size = count * count * item_bytes + count * (16 + item_bytes + 1)
    return Work(size, pairs.operations + single, pairs.instructions + single)

"""Inputs of fused_attn_nms of every kind that can go wrong, made from a few numbers.

Tests that hypothesis draws and tests that take thousands at once share them. A kind is a function of
the number of boxes and a generator.
"""

import math

import torch

INF, NAN = math.inf, math.nan


def rand(generator, *sizes):
    return torch.rand(*sizes, generator=generator)


def shuffled(generator, count):
    return torch.randperm(count, generator=generator)


# ---------------------------------------------------------------- boxes


def clusters(count, generator):
    homes = rand(generator, max(1, count // 12), 2) * 300.0
    home = torch.randint(len(homes), (count,), generator=generator)
    corner = homes[home] + rand(generator, count, 2) * 25.0
    return torch.cat([corner, corner + 30.0 + rand(generator, count, 2) * 20.0], 1)


def uniform(count, generator):
    corner = rand(generator, count, 2) * 100.0
    return torch.cat([corner, corner + rand(generator, count, 2) * 40.0], 1)


def chain(count, step=4.0):
    """Boxes of 10 by 10, ``step`` apart: at a threshold of 0.4 each overlaps its next with a step of 4,
    and its next two with a step of 2."""
    left = torch.arange(count, dtype=torch.float32) * step
    zero = torch.zeros(count)
    return torch.stack([left, zero, left + 10.0, zero + 10.0], 1)


def chain_in_any_order(count, generator):
    return chain(count, 2.0)[shuffled(generator, count)]


def identical(count, generator):
    return torch.tensor([[3.0, 4.0, 13.0, 9.0]]).repeat(count, 1)


def nested(count, generator):
    inset = torch.arange(count, dtype=torch.float32)
    boxes = torch.stack([inset, inset, 2.0 * count - inset, 2.0 * count - inset], 1)
    return boxes[shuffled(generator, count)]


def small_integers(count, generator):
    """They share edges, tie, hit thresholds exactly, have no area or are inside out."""
    return torch.randint(-2, 12, (count, 4), generator=generator).float()


def not_finite(count, generator):
    boxes = clusters(count, generator)
    wrong = torch.tensor([NAN, INF, -INF, 3e38, -3e38, 1e-45, 0.0, -0.0])
    pick = wrong[torch.randint(len(wrong), (count, 4), generator=generator)]
    return torch.where(rand(generator, count, 4) < 0.15, pick, boxes)


def of_any_scale(count, generator):
    """Also where areas overflow, or round to zero."""
    exponent = torch.randint(-24, 20, (1,), generator=generator).item()
    return clusters(count, generator) * 10.0**exponent


def far_away(count, generator):
    """So far from zero that coordinates are rounded to a few places."""
    return clusters(count, generator) + 2.0**22


BOXES = (
    clusters,
    uniform,
    chain_in_any_order,
    identical,
    nested,
    small_integers,
    not_finite,
    of_any_scale,
    far_away,
)

# ---------------------------------------------------------------- scores


def any_scores(count, generator):
    return rand(generator, count)


def falling(count, generator):
    return torch.linspace(1.0, 0.25, count)


def rising(count, generator):
    return torch.linspace(0.25, 1.0, count)


def tied(count, generator):
    return torch.randint(1, 4, (count,), generator=generator).float() / 4.0


def all_equal(count, generator):
    return torch.full((count,), 0.5)


def of_both_signs(count, generator):
    return torch.randn(count, generator=generator)


def special(count, generator):
    values = torch.tensor([NAN, INF, -INF, 0.0, -0.0, 1.0, 2.0, 1e-45, 3e38])
    return values[torch.randint(len(values), (count,), generator=generator)]


SCORES = (any_scores, falling, rising, tied, all_equal, of_both_signs, special)

# ---------------------------------------------------------------- attention


def identity(count, generator):
    return torch.eye(count)


def softmax(count, generator):
    return torch.softmax(torch.randn(count, count, generator=generator), 1)


def constant(count, generator):
    return torch.full((count, count), 1.0 / max(count, 1))


def whole_numbers(count, generator):
    return torch.randint(-2, 3, (count, count), generator=generator).float()


def with_nan(count, generator):
    attn_map = rand(generator, count, count)
    rows = rand(generator, count, 1) < 0.2
    return torch.where(rows & (rand(generator, count, count) < 0.1), torch.tensor(NAN), attn_map)


ATTENTION = (identity, softmax, constant, whole_numbers, with_nan)

# ---------------------------------------------------------------- cases

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
THRESHOLDS = (0.0, 0.2, 0.25, 1 / 3, 0.4, 0.5, 0.7, 1.0, 1e-38, 1e-12, 0.99999994)


def make(count, seed, boxes, scores, attention, dtype=torch.float32):
    """Boxes, scores and attention map, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    return (
        boxes(count, generator),
        scores(count, generator).to(dtype),
        attention(count, generator).to(dtype),
    )


def any_case(seed, largest):
    """A case with everything chosen by ``seed``, and a threshold for it."""
    generator = torch.Generator().manual_seed(seed)

    def pick(values):
        return values[torch.randint(len(values), (1,), generator=generator).item()]

    count = torch.randint(largest + 1, (1,), generator=generator).item()
    tensors = make(count, seed, pick(BOXES), pick(SCORES), pick(ATTENTION), pick(DTYPES))
    return tensors, pick(THRESHOLDS)


def misaligned(tensor, offset):
    """The same values, contiguous, ``offset`` elements into storage of their own."""
    storage = torch.empty(tensor.numel() + offset, dtype=tensor.dtype, device=tensor.device)
    return storage[offset:].reshape(tensor.shape).copy_(tensor)

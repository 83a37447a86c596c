"""Inputs in which each decision hangs on the one before, through all boxes; and sizes at all edges.

A kernel whose blocks wait for each other's decisions has its longest waits here, in every order of the
ranks over the blocks.
"""

import pytest
import torch
from nms_cases import (
    BOXES,
    DTYPES,
    THRESHOLDS,
    all_equal,
    any_scores,
    chain,
    falling,
    identical,
    identity,
    make,
    misaligned,
    rising,
    softmax,
    tied,
)
from test_fused_attn_nms import plain, run

import jetops

EDGES = [1, 2, 3, 31, 32, 33, 63, 64, 65, 95, 96, 97, 127, 128, 129, 191, 192, 193, 255, 256, 257,
         383, 384, 385, 511, 512, 513, 767, 768, 769, 1023, 1024, 1025, 1535, 1536, 1537, 2047, 2048,
         2049, 3071, 3072, 3073, 4095, 4096]  # fmt: skip


def ranks_in_order(count):
    return torch.arange(count)


def ranks_reversed(count):
    return torch.arange(count).flip(0)


def ranks_scrambled(count):
    return torch.randperm(count, generator=torch.Generator().manual_seed(count))


def ranks_from_both_ends(count):
    return torch.cat([torch.arange(0, count, 2), torch.arange(1, count, 2).flip(0)])


def ranks_of_many_chains(count):
    """Neighbours in rank belong to different chains; 37 is no divisor of any tile."""
    return torch.cat([torch.arange(start, count, 37) for start in range(min(37, count))])


ORDERS = (
    ranks_in_order,
    ranks_reversed,
    ranks_scrambled,
    ranks_from_both_ends,
    ranks_of_many_chains,
)


def scores_by_rank(count):
    """Falling, all different, and exact in float32."""
    return 1.0 - torch.arange(count, dtype=torch.float32) / 8192.0


@pytest.mark.parametrize("order", ORDERS[:3])
@pytest.mark.parametrize("reach", [1, 2])
@pytest.mark.parametrize("count", EDGES)
def test_a_chain_from_one_end_to_the_other(device, count, reach, order):
    """Every box suppresses its next ``reach``, so every (reach + 1)st is kept."""
    place = order(count)  # of the rank in the input
    boxes, weighted = torch.empty(count, 4), torch.empty(count)
    boxes[place] = chain(count, {1: 4.0, 2: 2.0}[reach])
    weighted[place] = scores_by_rank(count)
    keep, _ = run(device, *plain(boxes, weighted), 0.4)
    assert keep[place].nonzero().flatten().tolist() == list(range(0, count, reach + 1))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("count", [129, 1000, 4096])
def test_a_chain_that_is_visited_in_another_order(device, count, order):
    weighted = torch.empty(count)
    weighted[order(count)] = scores_by_rank(count)
    for step in (4.0, 2.0, 1.0):
        run(device, *plain(chain(count, step), weighted), 0.4)


@pytest.mark.parametrize("scores", [falling, rising, any_scores, tied, all_equal])
@pytest.mark.parametrize("count", [1, 32, 33, 64, 127, 128, 129, 1000, 2048, 4096])
def test_of_identical_boxes_the_best_is_kept(device, count, scores):
    boxes, weighted, attn_map = make(count, count, identical, scores, identity)
    weighted = weighted + 0.5
    keep, _ = run(device, *plain(boxes, weighted), 0.5)
    assert keep.nonzero().flatten().tolist() == [int(weighted.argmax())]
    placed = [tensor.to(device) for tensor in (boxes, weighted, attn_map)]
    assert jetops.fused_attn_nms(*placed, 1.0).all()


@pytest.mark.parametrize("copies", [2, 32, 64, 100])
def test_groups_of_identical_boxes(device, copies):
    """Each group's best lies anywhere in it; the members of a group lie far apart."""
    groups = 4096 // copies
    boxes = (chain(groups, 20.0)).repeat(copies, 1)
    count = len(boxes)
    weighted = torch.empty(count)
    weighted[ranks_scrambled(count)] = scores_by_rank(count)
    keep, _ = run(device, *plain(boxes, weighted), 0.5)
    assert torch.equal(keep.reshape(copies, groups).sum(0), torch.ones(groups).long())
    best = weighted.reshape(copies, groups).max(0)[0]
    assert torch.equal(weighted[keep].sort()[0], best.sort()[0])


@pytest.mark.parametrize("boxes", BOXES)
@pytest.mark.parametrize("count", [64, 1000, 4096])
def test_many_boxes_of_every_kind(device, count, boxes):
    run(device, *make(count, count, boxes, any_scores, softmax), 0.4)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [3, 128, 131, 1000])
def test_views_that_are_not_aligned(device, dtype, count):
    """Each input by itself at each distance from an address that a wide load could take."""
    case = make(count, count, BOXES[0], any_scores, softmax, dtype)
    expected, weighted = run(device, *case, 0.4)
    for which in range(3):
        for offset in (1, 2, 3, 4, 5, 7):
            placed = [tensor.to(device) for tensor in case]
            placed[which] = misaligned(placed[which], offset)
            assert placed[which].is_contiguous()
            keep, scores = jetops.fused_attn_nms_scored(*placed, 0.4)
            assert torch.equal(keep.cpu(), expected) and torch.equal(scores.cpu(), weighted)


def test_views_with_strides_are_refused_and_their_copies_taken(device):
    boxes, scores, attn_map = (t.to(device) for t in make(90, 5, BOXES[0], any_scores, softmax))
    views = {
        "boxes": (boxes.t().contiguous().t(), scores, attn_map),
        "scores": (boxes, torch.stack([scores, scores], 1)[:, 0], attn_map),
        "attn_map": (boxes, scores, attn_map.repeat(1, 2)[:, :90]),
    }
    expected = jetops.fused_attn_nms(boxes, scores, attn_map, 0.4)
    for name, case in views.items():
        with pytest.raises(RuntimeError, match=f"{name} must be contiguous.*call .contiguous()"):
            jetops.fused_attn_nms(*case, 0.4)
        copies = [tensor.contiguous() for tensor in case]
        assert torch.equal(jetops.fused_attn_nms(*copies, 0.4), expected)


@pytest.mark.parametrize("boxes", BOXES)
def test_thresholds_over_the_whole_range(device, boxes):
    case = make(150, 3, boxes, any_scores, softmax)
    steps = [index / 40.0 for index in range(41)]
    for threshold in [*THRESHOLDS, *steps, -0.0, 1e-46, 1e-45, 0.1 + 0.2, 1.0 - 1e-12, 1]:
        run(device, *case, threshold)

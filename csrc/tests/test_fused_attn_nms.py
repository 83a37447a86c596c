"""fused_attn_nms, exactly: no tolerance on the keep mask anywhere in this file.

Two halves: the weighted scores have the bits of the reference's order of summation, and the mask is
the one that the sequential loop gives for the operator's own weighted scores.
"""

import math

import pytest
import torch

import jetops
from jetops import reference

INF, NAN = math.inf, math.nan


def plain(boxes, weighted):
    """Inputs whose weighted scores are ``weighted`` (positive): the attention map undoes one s."""
    weighted = torch.as_tensor(weighted, dtype=torch.float32)
    boxes = torch.as_tensor(boxes, dtype=torch.float32).reshape(len(weighted), 4)
    return boxes, torch.ones(len(weighted)), torch.diag(weighted)


def run(device, boxes, scores, attn_map, threshold, placed=None):
    """The operator's answer on the CPU, after checking it in both halves and in both forms.

    ``placed`` are the same inputs on the device, where they are to lie in some other way.
    """
    if placed is None:
        placed = [tensor.to(device) for tensor in (boxes, scores, attn_map)]
    keep, weighted = jetops.fused_attn_nms_scored(*placed, threshold)
    assert keep.dtype == torch.bool and weighted.dtype == torch.float32
    assert keep.device == weighted.device == placed[0].device
    keep_alone = jetops.fused_attn_nms(*placed, threshold)
    assert torch.equal(keep, keep_alone)
    keep, weighted = keep.cpu(), weighted.cpu()
    expected = reference.weighted_scores(scores, attn_map)
    assert torch.equal(torch.isnan(weighted), torch.isnan(expected))
    number = ~torch.isnan(expected)
    assert torch.equal(weighted[number].view(torch.int32), expected[number].view(torch.int32))
    assert torch.equal(keep, reference.greedy_nms(boxes, weighted, threshold))
    return keep, weighted


def kept(device, boxes, weighted, threshold):
    keep, _ = run(device, *plain(boxes, weighted), threshold)
    return keep.nonzero().flatten().tolist()


def random_case(count, seed, spread=12.0, clusters=None):
    generator = torch.Generator().manual_seed(seed)
    clusters = clusters or max(1, count // 20)
    centres = torch.rand(clusters, 2, generator=generator) * 500.0
    home = torch.randint(clusters, (count,), generator=generator)
    corner = centres[home] + torch.randn(count, 2, generator=generator) * spread
    sides = 40.0 + torch.rand(count, 2, generator=generator) * 20.0
    boxes = torch.cat([corner, corner + sides], 1)
    scores = torch.rand(count, generator=generator)
    attn_map = torch.softmax(torch.randn(count, count, generator=generator), 1)
    return boxes, scores, attn_map


A, B, C = (0, 0, 10, 10), (4, 0, 14, 10), (8, 0, 18, 10)


def test_a_suppressed_box_suppresses_nothing(device):
    """A removes B, so B is not there to remove C, although B scores higher and overlaps it."""
    assert kept(device, [A, B, C], [0.9, 0.8, 0.7], 0.4) == [0, 2]


def test_order_of_input_does_not_matter(device):
    assert kept(device, [C, B, A], [0.7, 0.8, 0.9], 0.4) == [0, 2]
    assert kept(device, [B, C, A], [0.8, 0.7, 0.9], 0.4) == [1, 2]


def test_attention_changes_who_wins(device):
    boxes = torch.tensor([A, A], dtype=torch.float32)
    scores = torch.tensor([0.9, 0.8])
    keep, _ = run(device, boxes, scores, torch.eye(2), 0.5)
    assert keep.tolist() == [True, False]
    keep, _ = run(device, boxes, scores, torch.tensor([[0.1, 0.0], [0.0, 1.0]]), 0.5)
    assert keep.tolist() == [False, True]


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63, 64, 65, 127, 128, 129, 1000, 2000])
def test_clusters_of_any_size(device, count):
    for threshold in (0.3, 0.5, 0.7):
        run(device, *random_case(count, seed=count), threshold)


def test_more_boxes_than_are_prepared_ahead(device):
    boxes, scores, _ = random_case(2241, seed=9, clusters=70)
    run(device, boxes, scores, torch.full((2241, 2241), 1.0 / 2241), 0.5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("count", [1, 33, 128, 1001, 2000])
def test_scores_and_attention_of_16_bits(device, dtype, count):
    boxes, scores, attn_map = random_case(count, seed=count)
    run(device, boxes, scores.to(dtype), attn_map.to(dtype), 0.5)


def test_huge_and_tiny_coordinates(device):
    """Where areas leave the range in which quotients can be compared without a division."""
    for scale in (1e-24, 1e-18, 1e-10, 1e10, 3e17, 1e19):
        boxes, scores, attn_map = random_case(300, seed=12)
        run(device, boxes * scale, scores, attn_map, 0.5)


def test_thresholds_next_to_a_quotient(device):
    """IoU that equals the threshold, and is one step of fp32 above and below it."""
    boxes = torch.tensor([(0, 0, 10, 10), (0, 0, 10, 7), (0, 0, 3, 10), (0, 3, 10, 10)]).float()
    scores, attn_map = torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.eye(4)
    area = reference.areas(boxes)
    for other in (1, 2, 3):
        quotient = reference.iou_with_all(0, boxes, area)[other]
        for towards in (0.0, quotient.item(), 1.0):
            threshold = torch.nextafter(quotient, torch.tensor(towards)).item()
            run(device, boxes, scores, attn_map, threshold)


def test_tiny_thresholds(device):
    for threshold in (0.0, 1e-38, 1e-25, 1e-15):
        run(device, *random_case(200, seed=13), threshold)


def test_dense_objects(device):
    keep, _ = run(device, *random_case(2000, seed=5, spread=8.0, clusters=20), 0.3)
    assert 20 <= keep.sum() < 300


def test_uniform_boxes(device):
    run(device, *random_case(500, seed=6, spread=200.0), 0.7)


def test_ties_go_to_the_lower_index(device):
    assert kept(device, [A] * 100, [0.5] * 100, 0.5) == [0]
    boxes, _, attn_map = random_case(300, seed=7)
    run(device, boxes, torch.ones(300), torch.eye(300), 0.5)
    run(device, boxes, torch.ones(300), (attn_map * 400).round(), 0.5)


def test_zeros_of_either_sign_tie(device):
    boxes, scores = torch.tensor([A, A], dtype=torch.float32), torch.ones(2)
    for first, second in [(0.0, -0.0), (-0.0, 0.0)]:
        keep, _ = run(device, boxes, scores, torch.diag(torch.tensor([first, second])), 0.5)
        assert keep.tolist() == [True, False]
    # the sums start at +0, so a weighted score of -0 needs a negative own score
    keep, weighted = run(device, boxes, torch.tensor([0.0, -0.0]), torch.zeros(2, 2), 0.5)
    assert math.copysign(1, weighted[1]) == -1
    assert keep.tolist() == [True, False]
    keep, _ = run(device, boxes, torch.tensor([-0.0, 0.0]), torch.zeros(2, 2), 0.5)
    assert keep.tolist() == [True, False]


def test_negative_scores_are_ordered(device):
    boxes = torch.tensor([A, A, A], dtype=torch.float32)
    scores = torch.tensor([1.0, 1.0, 1.0])
    keep, _ = run(device, boxes, scores, torch.diag(torch.tensor([-3.0, -1.0, -2.0])), 0.5)
    assert keep.tolist() == [False, True, False]


def test_infinite_scores(device):
    boxes = torch.tensor([A, A, C, C], dtype=torch.float32)
    # rows of one value: -inf, 1, inf, 2, times scores of 1 against one column
    attn_map = torch.zeros(4, 4)
    attn_map[:, 0] = torch.tensor([-INF, 1.0, INF, 2.0])
    keep, _ = run(device, boxes, torch.ones(4), attn_map, 0.5)
    assert keep.tolist() == [False, True, True, False]


def test_nan_is_never_kept_and_suppresses_nothing(device):
    boxes = torch.tensor([A, A, C], dtype=torch.float32)
    attn_map = torch.diag(torch.tensor([1.0, 0.5, 0.2]))
    attn_map[0, 0] = NAN
    keep, weighted = run(device, boxes, torch.ones(3), attn_map, 0.5)
    assert torch.isnan(weighted[0])
    assert keep.tolist() == [False, True, True]


def test_all_nan(device):
    boxes, _, attn_map = random_case(70, seed=3)
    keep, _ = run(device, boxes, torch.full((70,), NAN), attn_map, 0.5)
    assert not keep.any()


def test_a_few_nan_among_many(device):
    boxes, scores, attn_map = random_case(500, seed=4)
    attn_map[::7, 3] = NAN
    keep, _ = run(device, boxes, scores, attn_map, 0.5)
    assert not keep[::7].any()


def test_boxes_without_area_overlap_nothing(device):
    point, line, inverted, doubly = (5, 5, 5, 5), (0, 5, 10, 5), (10, 0, 0, 10), (10, 10, 0, 0)
    boxes = [A, point, point, line, inverted, doubly, A]
    scores = [0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3]
    assert kept(device, boxes, scores, 0.0) == [0, 1, 2, 3, 4, 5]


def test_boxes_that_are_not_finite(device):
    boxes = [A, (NAN, 0, 10, 10), (0, 0, INF, 10), (-INF, -INF, INF, INF), (0, 0, 3e38, 3e38), A]
    assert kept(device, boxes, [0.9, 0.8, 0.7, 0.6, 0.5, 0.4], 0.0) == [0, 1, 2, 3, 4]


def test_threshold_zero_removes_what_touches_with_area(device):
    beside = (10, 0, 20, 10)
    assert kept(device, [A, beside, B], [0.9, 0.8, 0.7], 0.0) == [0, 1]


def test_threshold_one_keeps_everything(device):
    boxes, scores, attn_map = random_case(200, seed=8)
    keep, _ = run(device, torch.cat([boxes[:100], boxes[:100]]), scores, attn_map, 1.0)
    assert keep.all()


def test_suppression_is_strictly_above_the_threshold(device):
    half = (0, 0, 10, 5)  # IoU with A is exactly 0.5
    assert kept(device, [A, half], [0.9, 0.8], 0.5) == [0, 1]
    assert kept(device, [A, half], [0.9, 0.8], 0.4999) == [0]


def test_no_boxes(device):
    keep, weighted = run(device, torch.zeros(0, 4), torch.zeros(0), torch.zeros(0, 0), 0.5)
    assert keep.shape == (0,) and weighted.shape == (0,)


def test_one_box(device):
    assert kept(device, [A], [0.5], 0.0) == [0]


@pytest.mark.parametrize("count", [33, 256, 1001])
def test_weighted_scores_are_close_to_float64(device, count):
    boxes, scores, attn_map = random_case(count, seed=count)
    _, weighted = run(device, boxes, scores, attn_map, 0.5)
    exact = scores.double() * (attn_map.double() @ scores.double())
    torch.testing.assert_close(weighted.double(), exact, rtol=1e-5, atol=1e-7)


def test_subnormal_products_are_not_flushed(device):
    boxes = torch.tensor([A, A], dtype=torch.float32)
    _, weighted = run(device, boxes, torch.ones(2), torch.diag(torch.tensor([1e-40, 2e-40])), 0.5)
    assert weighted[0] > 0


def test_twenty_runs_give_the_same_bits(device):
    placed = [tensor.to(device) for tensor in random_case(1500, seed=11)]
    first = jetops.fused_attn_nms_scored(*placed, 0.5)
    for _ in range(20):
        again = jetops.fused_attn_nms_scored(*placed, 0.5)
        assert torch.equal(first[0], again[0]) and torch.equal(first[1], again[1])


def good(device="cpu", count=3):
    return {
        "boxes": torch.zeros(count, 4, device=device),
        "scores": torch.zeros(count, device=device),
        "attn_map": torch.zeros(count, count, device=device),
        "iou_threshold": 0.5,
    }


def with_strides(tensor, device):
    # Tensor.to() makes a tensor with gaps, such as every second score, dense on the way.
    copy = torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)
    return copy.copy_(tensor)


WRONG = {
    "boxes dtype": ({"boxes": torch.zeros(3, 4).double()}, "boxes must be float32, got Double"),
    "scores dtype": (
        {"scores": torch.zeros(3).double()},
        "scores must be float32, float16 or bfloat16, got Double",
    ),
    "attn dtype": (
        {"attn_map": torch.zeros(3, 3).half()},
        r"attn_map must have the dtype of scores \(Float\), got Half",
    ),
    "boxes dim": ({"boxes": torch.zeros(12)}, r"boxes must have sizes \[N, 4\], got \[12\]"),
    "boxes width": ({"boxes": torch.zeros(3, 5)}, r"boxes must have sizes .*, got \[3, 5\]"),
    "scores dim": ({"scores": torch.zeros(3, 1)}, r"scores must .* here \[3\], got \[3, 1\]"),
    "scores size": ({"scores": torch.zeros(4)}, r"scores must .* here \[3\], got \[4\]"),
    "attn dim": ({"attn_map": torch.zeros(9)}, r"attn_map must .* here \[3, 3\], got \[9\]"),
    "attn size": ({"attn_map": torch.zeros(3, 2)}, r"attn_map must .*, got \[3, 2\]"),
    "boxes strides": ({"boxes": torch.zeros(4, 3).t()}, "boxes must be contiguous, got strides"),
    "scores strides": ({"scores": torch.zeros(6)[::2]}, "scores must be contiguous, got strides"),
    "attn strides": (
        {"attn_map": torch.arange(9.0).reshape(3, 3).t()},
        "attn_map must be contiguous, got strides",
    ),
    "threshold low": ({"iou_threshold": -0.1}, r"iou_threshold must be .* \[0, 1\], got -0.1"),
    "threshold high": ({"iou_threshold": 1.01}, r"iou_threshold must be .* \[0, 1\], got 1.01"),
    "threshold nan": ({"iou_threshold": NAN}, r"iou_threshold must be a finite .*, got nan"),
    "threshold inf": ({"iou_threshold": INF}, r"iou_threshold must be a finite .*, got inf"),
}


@pytest.mark.parametrize("operator", [jetops.fused_attn_nms, jetops.fused_attn_nms_scored])
@pytest.mark.parametrize("case", sorted(WRONG))
def test_refuses(device, operator, case):
    change, message = WRONG[case]
    arguments = good(device)
    for name, value in change.items():
        arguments[name] = with_strides(value, device) if torch.is_tensor(value) else value
    with pytest.raises(RuntimeError, match=f"jetops::{operator.__name__}: {message}"):
        operator(**arguments)


def test_refuses_more_boxes_than_it_can_take(device):
    count = 16385
    attn_map = torch.empty(1, device=device).expand(
        count, count
    )  # sizes are checked before strides
    with pytest.raises(RuntimeError, match="boxes must hold at most 16384 boxes, got 16385"):
        jetops.fused_attn_nms(
            torch.zeros(count, 4, device=device), torch.zeros(count, device=device), attn_map, 0.5
        )


def test_gradients(device):
    arguments = good(device)
    arguments["boxes"].requires_grad_()
    arguments["scores"].requires_grad_()
    assert not jetops.fused_attn_nms(**arguments).requires_grad
    with pytest.raises(NotImplementedError, match="no backward, but scores requires grad"):
        jetops.fused_attn_nms_scored(**arguments)
    with torch.no_grad():
        assert not jetops.fused_attn_nms_scored(**arguments)[1].requires_grad

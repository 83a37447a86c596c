"""Inputs that hypothesis makes up, on every device in sight. Skipped where it is not installed."""

import pytest
import torch
from nms_cases import ATTENTION, BOXES, DTYPES, SCORES, THRESHOLDS, make, misaligned
from test_fused_attn_nms import run
from test_gelu import FORMS, assert_close

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=200, deadline=None)
@given(values=st.lists(st.floats(width=32), min_size=1, max_size=20))
def test_gelu_of_any_float32(device, values):
    for form in FORMS:
        assert_close(torch.tensor(values, dtype=torch.float32, device=device), form)


CASES = {
    "count": st.integers(min_value=0, max_value=140),
    "seed": st.integers(min_value=0, max_value=2**32),
    "boxes": st.sampled_from(BOXES),
    "scores": st.sampled_from(SCORES),
    "attention": st.sampled_from(ATTENTION),
    "dtype": st.sampled_from(DTYPES),
}


@settings(max_examples=3000, deadline=None)
@given(
    case=st.builds(make, **CASES),
    threshold=st.sampled_from(THRESHOLDS) | st.floats(min_value=0.0, max_value=1.0),
    offsets=st.tuples(*[st.integers(min_value=0, max_value=7)] * 3),
)
def test_nms_of_any_kind(device, case, threshold, offsets):
    placed = [misaligned(tensor.to(device), offset) for tensor, offset in zip(case, offsets)]
    run(device, *case, threshold, placed=placed)


SIDES = st.integers(min_value=-2, max_value=12)


@settings(max_examples=1000, deadline=None)
@given(data=st.data())
def test_small_integer_boxes(device, data):
    """Small integers meet on edges, tie, and hit thresholds exactly far more often than floats."""
    corners = st.tuples(SIDES, SIDES, SIDES, SIDES)
    boxes = data.draw(st.lists(corners, min_size=1, max_size=40))
    scores = data.draw(
        st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=len(boxes), max_size=len(boxes))
    )
    threshold = data.draw(st.sampled_from([0.0, 0.2, 0.25, 1 / 3, 0.5, 1.0]))
    count = len(boxes)
    run(
        device,
        torch.tensor(boxes, dtype=torch.float32),
        torch.tensor(scores),
        torch.eye(count) + 0.5,
        threshold,
    )

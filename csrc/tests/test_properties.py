"""Inputs that hypothesis makes up, on the CPU. Skipped where it is not installed."""

import pytest
import torch
from test_fused_attn_nms import run
from test_gelu import FORMS, assert_close

pytest.importorskip("hypothesis")

from hypothesis import given, settings
from hypothesis import strategies as st


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1, max_size=20))
def test_gelu_of_any_float32(values):
    for form in FORMS:
        assert_close(torch.tensor(values, dtype=torch.float32), form)


SIDES = st.integers(min_value=-2, max_value=12)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_small_integer_boxes(data):
    """Small integers meet on edges, tie, and hit thresholds exactly far more often than floats."""
    corners = st.tuples(SIDES, SIDES, SIDES, SIDES)
    boxes = data.draw(st.lists(corners, min_size=1, max_size=40))
    scores = data.draw(
        st.lists(st.sampled_from([0.25, 0.5, 1.0]), min_size=len(boxes), max_size=len(boxes))
    )
    threshold = data.draw(st.sampled_from([0.0, 0.2, 0.25, 1 / 3, 0.5, 1.0]))
    count = len(boxes)
    run(
        "cpu",
        torch.tensor(boxes, dtype=torch.float32),
        torch.tensor(scores),
        torch.eye(count) + 0.5,
        threshold,
    )

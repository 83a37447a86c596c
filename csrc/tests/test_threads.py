"""On the CPU the work is shared among torch's threads, and not a bit depends on how many there are."""

import pytest
import torch
from test_fused_attn_nms import random_case

import jetops

DTYPES = [torch.float32, torch.float16, torch.bfloat16]


@pytest.fixture
def with_threads():
    """Runs a function with a number of threads."""
    before = torch.get_num_threads()

    def run(count, function):
        torch.set_num_threads(count)
        return function()

    yield run
    torch.set_num_threads(before)


def assert_same(with_threads, function):
    alone = with_threads(1, function)
    for count in (2, 3, 7):
        for one, other in zip(alone, with_threads(count, function)):
            assert torch.equal(one, other), f"{count} threads"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("form", ["none", "tanh"])
def test_gelu(with_threads, dtype, form):
    x = torch.randn(100003).to(dtype)

    def both():
        return jetops.gelu(x, form), torch.ops.jetops.gelu_backward(x, x, approximate=form)

    assert_same(with_threads, both)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_gelu_dropout(with_threads, dtype):
    x, bias = torch.randn(301, 333).to(dtype), torch.randn(333).to(dtype)
    seed = torch.tensor([5, 6])
    assert_same(with_threads, lambda: [jetops.bias_gelu_dropout(x, bias, 0.3, seed=seed)])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("count", [1, 300, 1501])
def test_nms(with_threads, dtype, count):
    boxes, scores, attn_map = random_case(count, seed=count)
    case = boxes, scores.to(dtype), attn_map.to(dtype)
    assert_same(with_threads, lambda: jetops.fused_attn_nms_scored(*case, 0.5))

"""gelu against float64. The tolerances, with their reasons, are those of jetops.selftest."""

import pytest
import torch

import jetops
from jetops import reference, selftest

DTYPES = list(selftest.DTYPES)
FORMS = list(selftest.FORMS)


def assert_close(x, form):
    error = selftest.gelu_error(jetops.gelu(x, form), reference.gelu(x, form), x.dtype)
    assert error <= 1.0, f"error is {error} times what is allowed"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_close_to_float64_over_the_whole_range(device, dtype, form):
    assert_close(selftest.gelu_inputs(dtype).to(device), form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_every_value_of_16_bits(device, dtype, form):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    assert_close(x.to(device), form)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_limits(device, dtype, form):
    x = torch.tensor([float("inf"), float("-inf"), float("nan"), -1e4, 0.0], dtype=dtype)
    y = jetops.gelu(x.to(device), form).cpu()
    assert y[0] == float("inf")
    assert y[1] == 0
    assert torch.isnan(y[2])
    assert y[3] == 0
    assert y[4] == 0


def test_the_negative_tail_keeps_its_digits(device):
    x = torch.tensor([-8.0], device=device)
    expected = reference.gelu(x).item()
    assert expected < 0
    assert jetops.gelu(x).item() == pytest.approx(expected, rel=1e-4)


@pytest.mark.skipif(
    "approximate" not in (torch.nn.functional.gelu.__doc__ or ""),
    reason="this torch has no tanh form",
)
@pytest.mark.parametrize("dtype", DTYPES)
def test_agrees_with_torch(device, dtype):
    x = torch.linspace(-4, 4, 1000, device=device).to(dtype)
    for form in FORMS:
        expected = torch.nn.functional.gelu(x, approximate=form)
        torch.testing.assert_close(jetops.gelu(x, form), expected, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("count", [0, 1, 3, 4, 5, 7, 8, 9, 255, 256, 257, 4099])
@pytest.mark.parametrize("dtype", DTYPES)
def test_any_length(device, dtype, count):
    x = torch.linspace(-3, 3, count, dtype=torch.float64).to(dtype).to(device)
    y = jetops.gelu(x)
    assert y.shape == x.shape and y.dtype == dtype and y.device == x.device
    if count:
        assert_close(x, "none")


@pytest.mark.parametrize("dtype", DTYPES)
def test_storage_that_is_not_aligned_to_16_bytes(device, dtype):
    x = torch.linspace(-3, 3, 1001, dtype=torch.float64).to(dtype).to(device)[1:]
    assert x.is_contiguous()
    assert_close(x, "none")


def test_shapes(device):
    for shape in [(), (2, 3, 4), (0, 5), (1, 1)]:
        assert jetops.gelu(torch.zeros(shape, device=device)).shape == shape


def test_input_is_left_alone(device):
    x = torch.randn(100, device=device)
    before = x.clone()
    jetops.gelu(x)
    assert torch.equal(x, before)


def test_refuses_other_dtypes(device):
    with pytest.raises(RuntimeError, match="x must be float32, float16 or bfloat16, got Double"):
        jetops.gelu(torch.zeros(3, dtype=torch.float64, device=device))
    with pytest.raises(RuntimeError, match="x must be float32, float16 or bfloat16, got Int"):
        jetops.gelu(torch.zeros(3, dtype=torch.int32, device=device))


def test_refuses_other_forms(device):
    with pytest.raises(RuntimeError, match='approximate must be "none" or "tanh", got "exact"'):
        jetops.gelu(torch.zeros(3, device=device), approximate="exact")


def test_refuses_strides(device):
    with pytest.raises(RuntimeError, match=r"x must be contiguous, got strides \[1, 3\]"):
        jetops.gelu(torch.zeros(4, 3, device=device).t())


def test_refuses_to_drop_a_gradient(device):
    x = torch.zeros(3, device=device, requires_grad=True)
    with pytest.raises(NotImplementedError, match="gelu has no backward, but x requires grad"):
        jetops.gelu(x)
    with torch.no_grad():
        assert not jetops.gelu(x).requires_grad
    assert not jetops.gelu(x.detach()).requires_grad

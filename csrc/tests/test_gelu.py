"""gelu against float64. The tolerances, with their reasons, are those of jetops.selftest."""

import pytest
import torch
from nms_cases import misaligned

import jetops
from jetops import reference, selftest

DTYPES = list(selftest.DTYPES)
FORMS = list(selftest.FORMS)
INF, NAN = float("inf"), float("nan")


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
    x = torch.tensor([INF, -INF, NAN, -1e4, 0.0], dtype=dtype)
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
        expected = torch.nn.functional.gelu(x.float(), approximate=form).to(dtype)
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
    x = torch.linspace(-3, 3, 1000, dtype=torch.float64).to(dtype).to(device)
    whole = jetops.gelu(x)
    for offset in range(9):
        view = misaligned(x, offset)
        assert view.is_contiguous()
        assert torch.equal(jetops.gelu(view), whole)
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


SLOPE_TOLERANCE = {
    torch.float32: {"rtol": 2e-5, "atol": 2e-6},
    torch.float16: {"rtol": 6e-4, "atol": 6e-5},
    torch.bfloat16: {"rtol": 4.1e-3, "atol": 1e-4},
}


def gradient_of(x, grad_y, form):
    x = x.detach().clone().requires_grad_()
    jetops.gelu(x, form).backward(grad_y)
    return x.grad


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_is_close_to_float64(device, dtype, form):
    x = torch.linspace(-12.0, 12.0, 4001, dtype=torch.float64).to(dtype)
    grad_y = torch.linspace(0.5, 2.0, 4001, dtype=torch.float64).to(dtype)
    actual = gradient_of(x.to(device), grad_y.to(device), form)
    assert actual.dtype == dtype
    expected = grad_y.double() * reference.gelu_slope(x, form)
    torch.testing.assert_close(actual.cpu().double(), expected, **SLOPE_TOLERANCE[dtype])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_at_the_limits(device, dtype, form):
    """The formula of the tanh form has inf * 0 in it from |x| = 2e19 on."""
    largest = torch.finfo(dtype).max
    x = torch.tensor([INF, -INF, largest, -largest, NAN, 0.0], dtype=dtype, device=device)
    slope = gradient_of(x, torch.ones_like(x), form).cpu()
    assert slope[:4].tolist() == [1.0, 0.0, 1.0, 0.0]
    assert torch.isnan(slope[4])
    assert slope[5] == 0.5


@pytest.mark.parametrize("form", FORMS)
def test_gradient_agrees_with_differences(device, form):
    """Against the operator itself, not a second formula for the slope."""
    x = torch.linspace(-4.0, 4.0, 201, dtype=torch.float64)
    step = 1e-3
    wide = (reference.gelu(x + step, form) - reference.gelu(x - step, form)) / (2 * step)
    slope = gradient_of(x.float().to(device), torch.ones(201, device=device), form)
    torch.testing.assert_close(slope.cpu().double(), wide, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("count", [0, 1, 7, 8, 9, 255, 4099])
@pytest.mark.parametrize("dtype", DTYPES)
def test_gradient_of_any_length_and_alignment(device, dtype, count):
    x = torch.linspace(-3, 3, count, dtype=torch.float64).to(dtype).to(device)
    grad_y = torch.linspace(1, 2, count, dtype=torch.float64).to(dtype).to(device)
    whole = torch.ops.jetops.gelu_backward(grad_y, x)
    assert whole.shape == x.shape and whole.dtype == dtype
    for of_gradient in range(9):
        for of_x in (0, 1, 4):
            views = misaligned(grad_y, of_gradient), misaligned(x, of_x)
            assert torch.equal(torch.ops.jetops.gelu_backward(*views), whole)


def test_a_gradient_with_strides_is_taken(device):
    """Autograd hands over what it has, here one number expanded to all places."""
    x = torch.randn(4, 5, device=device, requires_grad=True)
    jetops.gelu(x).sum().backward()
    expected = reference.gelu_slope(x)
    torch.testing.assert_close(x.grad.cpu().double(), expected, rtol=1e-4, atol=1e-5)


def test_refuses_a_second_gradient(device):
    x = torch.randn(3, device=device, requires_grad=True)
    message = "gelu_backward has no backward, .*second gradients. Leave create_graph=True out"
    with pytest.raises(NotImplementedError, match=message):
        torch.autograd.grad(jetops.gelu(x).sum(), x, create_graph=True)


def test_backward_refuses_what_does_not_fit(device):
    x = torch.zeros(2, 3, device=device)
    backward = torch.ops.jetops.gelu_backward
    with pytest.raises(
        RuntimeError, match=r"grad_y must have the sizes of x, \[2, 3\], got \[3, 2\]"
    ):
        backward(torch.zeros(3, 2, device=device), x)
    with pytest.raises(RuntimeError, match=r"grad_y must have the dtype of x \(Float\), got Half"):
        backward(torch.zeros(2, 3, device=device).half(), x)
    with pytest.raises(RuntimeError, match="grad_y must be contiguous"):
        backward(torch.zeros(3, 2, device=device).t(), x)

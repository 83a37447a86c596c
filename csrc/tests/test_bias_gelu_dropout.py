"""bias_gelu_dropout: values against float64, dropped elements exactly, statistics, gradients."""

import inspect
import math

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import jetops
from jetops import reference, selftest

DTYPES = list(selftest.DTYPES)
FORMS = list(selftest.FORMS)
SEED = (123456789012345, -7)
ROUNDING = {torch.float32: 2e-5, torch.float16: 7e-4, torch.bfloat16: 4.2e-3}
SHAPES = [(1, 1), (3, 8), (5, 7), (2, 3, 16), (17, 33), (4, 1000), (9,), (300, 2)]


def case(device, shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=generator).to(dtype)
    bias = torch.randn(shape[-1], generator=generator).to(dtype)
    grad_y = torch.randn(shape, generator=generator).to(dtype)
    return [tensor.to(device) for tensor in (x, bias, grad_y)]


def seed_on(device):
    return torch.tensor(SEED, device=device)


def assert_close(actual, expected, dtype):
    assert actual.dtype == dtype and actual.shape == expected.shape
    tolerance = ROUNDING[dtype]
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance / 20)


def check(x, bias, grad_y, p, form):
    """Forward and backward against the reference; zeros have to be in the very same places."""
    seed = seed_on(x.device)
    leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
    y = jetops.bias_gelu_dropout(*leaves, p, approximate=form, seed=seed)
    y.backward(grad_y)
    kept, _ = reference.dropout_mask(tuple(x.shape), SEED, p, x.dtype)
    assert not y.detach().cpu()[~kept].any()
    assert_close(y.detach(), reference.bias_gelu_dropout(x, bias, SEED, p, form), x.dtype)
    grad_x, grad_bias = reference.bias_gelu_dropout_backward(grad_y, x, bias, SEED, p, form)
    assert not leaves[0].grad.cpu()[~kept].any()
    assert_close(leaves[0].grad, grad_x, x.dtype)
    assert_close(leaves[1].grad, grad_bias, x.dtype)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.0, 0.1, 0.5, 0.999, 1.0])
def test_matches_the_reference(device, dtype, form, p):
    check(*case(device, (6, 40), dtype), p, form)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_any_shape(device, dtype, shape):
    check(*case(device, shape, dtype), 0.3, "none")


@pytest.mark.parametrize("dtype", DTYPES)
def test_storage_that_is_not_aligned_to_16_bytes(device, dtype):
    x, bias, grad_y = case(device, (6, 16), dtype)
    memory = torch.empty(97, dtype=dtype, device=device)
    shifted = memory[1:].reshape(6, 16).copy_(x)
    check(shifted, bias, grad_y, 0.4, "tanh")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(0, 8), (8, 0), (0,), (0, 0)])
def test_empty(device, dtype, shape):
    x, bias, grad_y = case(device, shape, dtype)
    leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
    jetops.bias_gelu_dropout(*leaves, 0.5, seed=seed_on(device)).backward(grad_y)
    assert leaves[0].grad.shape == x.shape
    assert torch.equal(leaves[1].grad, torch.zeros_like(bias))


def test_philox_gives_the_published_numbers():
    """Known answers of the authors' library Random123, for philox4x32 with 7 and with 10 rounds."""
    ones = (2**64 - 1, 2**128 - 1)
    assert reference.philox(0, 0) == [0x5F6FB709, 0x0D893F64, 0x4F121F81, 0x4F730A48]
    assert reference.philox(*ones) == [0x5207DDC2, 0x45165E59, 0x4D8EE751, 0x8C52F662]
    assert reference.philox(0, 0, 10) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert reference.philox(*ones, 10) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_share_of_dropped_elements(device, dtype, p):
    """Within five standard deviations of a binomial distribution, for rows, columns and all."""
    rows, columns = 512, 768
    x = torch.ones(rows, columns, dtype=dtype, device=device)
    bias = torch.zeros(columns, dtype=dtype, device=device)
    dropped = (jetops.bias_gelu_dropout(x, bias, p, seed=seed_on(device)) == 0).double().cpu()

    def deviation(share, count):
        return (share - p).abs().max() / (p * (1 - p) / count) ** 0.5

    assert deviation(dropped.mean(), rows * columns) < 5
    assert deviation(dropped.mean(0), rows) < 5.5
    assert deviation(dropped.mean(1), columns) < 5.5
    for shift in (1, 2, 4, 8):  # neighbours of a chunk share one call of the generator
        both = (dropped[:, shift:] * dropped[:, :-shift]).mean()
        assert abs(both - p * p) < 5 * (p * p * (1 - p * p) / dropped.numel()) ** 0.5 * 1.5


@pytest.mark.parametrize("dtype", DTYPES)
def test_mean_is_kept(device, dtype):
    x = torch.full((1024, 1024), 2.0, dtype=dtype, device=device)
    bias = torch.zeros(1024, dtype=dtype, device=device)
    mean = jetops.bias_gelu_dropout(x, bias, 0.3, seed=seed_on(device)).double().mean().item()
    assert mean == pytest.approx(reference.gelu(torch.tensor(2.0)).item(), rel=5e-3)


def test_seeds(device):
    x, bias, _ = case(device, (64, 64), torch.float32)

    def masks(*seed):
        return jetops.bias_gelu_dropout(x, bias, 0.5, seed=torch.tensor(seed, device=device)) == 0

    assert torch.equal(masks(1, 2), masks(1, 2))
    for other in [(2, 1), (1, 3), (1 + 2**32, 2), (1, 2 + 2**32), (-1, 2)]:
        assert not torch.equal(masks(1, 2), masks(*other))


def test_manual_seed_makes_it_repeat(device):
    x, bias, _ = case(device, (64, 64), torch.float32)
    torch.manual_seed(5)
    first = jetops.bias_gelu_dropout(x, bias)
    second = jetops.bias_gelu_dropout(x, bias)
    torch.manual_seed(5)
    assert torch.equal(jetops.bias_gelu_dropout(x, bias), first)
    assert not torch.equal(first, second)
    generator = torch.Generator(device).manual_seed(9)
    one = jetops.new_seed(torch.device(device), generator)
    assert torch.equal(one, jetops.new_seed(torch.device(device), generator.manual_seed(9)))


@pytest.mark.parametrize("dtype", DTYPES)
def test_share_over_many_seeds(device, dtype):
    """Each element by itself, and each with its neighbours, over seeds that differ by little."""
    x = torch.ones(1, 64, dtype=dtype, device=device)
    bias = torch.zeros(64, dtype=dtype, device=device)
    seeds = torch.stack([torch.arange(3000) // 50, torch.arange(3000) % 50], 1).to(device)
    drops = [jetops.bias_gelu_dropout(x, bias, 0.3, seed=seed) == 0 for seed in seeds]
    dropped = torch.cat(drops).double().cpu()
    for share, p in [
        (dropped.mean(0), 0.3),
        ((dropped[:, 1:] * dropped[:, :-1]).mean(0), 0.09),
        ((dropped[1:] * dropped[:-1]).mean(0), 0.09),
    ]:
        assert (share - p).abs().max() < 5 * math.sqrt(p * (1 - p) / 3000)


def test_a_generator_makes_it_repeat(device):
    x, bias, _ = case(device, (64, 64), torch.float32)
    generator = torch.Generator(device)

    def masks(number):
        seed = jetops.new_seed(torch.device(device), generator.manual_seed(number))
        return jetops.bias_gelu_dropout(x, bias, seed=seed) == 0

    torch.manual_seed(1)
    first = masks(9)
    torch.manual_seed(2)
    assert torch.equal(masks(9), first)
    assert not torch.equal(masks(10), first)


KINDS = [True, False] if "use_reentrant" in str(inspect.signature(checkpoint)) else [True]


def gradients_of_checkpoint(device, reentrant, seed, **options):
    """Which elements the forward kept, and which those of the recomputation."""
    if len(KINDS) == 2:
        options["use_reentrant"] = reentrant
    x = torch.ones(64, 64, device=device, requires_grad=True)
    bias = torch.zeros(64, device=device, requires_grad=True)

    def block(x, bias):
        return jetops.bias_gelu_dropout(x * 1.0, bias, 0.5, seed=seed)

    y = checkpoint(block, x, bias, **options)
    y.sum().backward()
    return y != 0, x.grad != 0


@pytest.mark.parametrize("reentrant", KINDS)
def test_checkpoint_drops_the_same_again(device, reentrant):
    for seed, options in [
        (seed_on(device), {}),
        (seed_on(device), {"preserve_rng_state": False}),
        (None, {}),
    ]:
        forward, again = gradients_of_checkpoint(device, reentrant, seed, **options)
        assert torch.equal(forward, again)


@pytest.mark.parametrize("reentrant", KINDS)
def test_checkpoint_without_seed_and_generator_state_drops_others(device, reentrant):
    """As documented: there is no way for the operator to know of the first call."""
    forward, again = gradients_of_checkpoint(device, reentrant, None, preserve_rng_state=False)
    assert not torch.equal(forward, again)


def test_a_seed_that_changed_before_the_backward_is_refused(device):
    x, bias, _ = case(device, (8, 8), torch.float32)
    seed = seed_on(device)
    y = jetops.bias_gelu_dropout(x.requires_grad_(), bias, 0.5, seed=seed)
    seed.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("columns", [40, 37])
def test_the_bias_gradient_has_the_precision_of_float32(device, dtype, columns):
    """Each kept element brings 1 here: slope 1/2, scale 2. In 16 bits, 256 or 2048 and 1 are no more.

    On GPUs the slope for 16-bit results is right to 2.6e-5.
    """
    rows = 9001
    x, bias = torch.zeros(rows, columns, dtype=dtype), torch.zeros(columns, dtype=dtype)
    placed = [tensor.to(device) for tensor in (torch.ones_like(x), x, bias)]
    seed = seed_on(device)
    _, grad_bias = torch.ops.jetops.bias_gelu_dropout_backward(*placed, seed, 0.5)
    kept, _ = reference.dropout_mask((rows, columns), SEED, 0.5, dtype)
    tolerance = 3e-5 + torch.finfo(dtype).eps / 2
    torch.testing.assert_close(
        grad_bias.cpu().double(), kept.sum(0).double(), rtol=tolerance, atol=0.0
    )


@pytest.mark.parametrize("form", FORMS)
def test_the_bias_gradient_of_many_rows(device, form):
    """Within what rounding each term and each partial sum can amount to, of terms of both signs."""
    x, bias, grad_y = case(device, (30000, 24), torch.float32)
    seed = seed_on(device)
    grad_x, grad_bias = torch.ops.jetops.bias_gelu_dropout_backward(
        grad_y, x, bias, seed, 0.25, approximate=form
    )
    terms = grad_x.cpu().double()
    bound = 30000**0.5 * 2.0**-24 * terms.abs().sum(0)
    assert ((grad_bias.cpu().double() - terms.sum(0)).abs() < bound).all()


@pytest.mark.parametrize("wanted", [(True, False), (False, True)])
def test_one_gradient_without_the_other(device, wanted):
    x, bias, grad_y = case(device, (6, 16), torch.float32)
    both = torch.ops.jetops.bias_gelu_dropout_backward(grad_y, x, bias, seed_on(device), 0.5)
    leaves = [tensor.clone().requires_grad_(want) for tensor, want in zip((x, bias), wanted)]
    jetops.bias_gelu_dropout(*leaves, 0.5, seed=seed_on(device)).backward(grad_y)
    for leaf, want, expected in zip(leaves, wanted, both):
        assert torch.equal(leaf.grad, expected) if want else leaf.grad is None


def test_refuses_a_second_gradient(device):
    x, bias, grad_y = case(device, (3, 8), torch.float32)
    y = jetops.bias_gelu_dropout(x.requires_grad_(), bias, seed=seed_on(device))
    message = r"bias_gelu_dropout_backward has no backward, .*Leave create_graph=True out"
    with pytest.raises(NotImplementedError, match=message):
        torch.autograd.grad(y, x, grad_y, create_graph=True)


@pytest.mark.parametrize("p", [0.0, 1.0])
def test_draws_no_random_number_without_need(device, p):
    x, bias, _ = case(device, (8, 8), torch.float32)
    torch.manual_seed(5)
    expected = torch.rand(3, device=device)
    torch.manual_seed(5)
    jetops.bias_gelu_dropout(x, bias, p)
    jetops.bias_gelu_dropout(x, bias, 0.5, training=False)
    assert torch.equal(torch.rand(3, device=device), expected)


def test_without_training_it_is_gelu_of_the_sum(device):
    x, bias, _ = case(device, (8, 40), torch.float32)
    y = jetops.bias_gelu_dropout(x, bias, 0.5, training=False)
    torch.testing.assert_close(y, jetops.gelu(x + bias), rtol=1e-6, atol=1e-7)


def test_what_is_dropped_is_zero_even_if_it_is_not_finite(device):
    x = torch.full((64, 64), float("nan"), device=device)
    y = jetops.bias_gelu_dropout(x, torch.zeros(64, device=device), 0.5, seed=seed_on(device))
    kept, _ = reference.dropout_mask((64, 64), SEED, 0.5, torch.float32)
    assert torch.equal(torch.isnan(y).cpu(), kept)
    y = jetops.bias_gelu_dropout(x, torch.zeros(64, device=device), 1.0)
    assert not y.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.0, 0.5])
def test_limits(device, dtype, form, p):
    inf, nan = math.inf, math.nan
    largest = torch.finfo(dtype).max
    values = [inf, -inf, nan, largest, -largest, 0.0, 1.0, -1.0]
    x = torch.tensor(values, dtype=dtype).repeat(64, 1)
    bias = torch.zeros(8, dtype=dtype)
    seed = seed_on(device)
    placed = [tensor.to(device) for tensor in (x, bias)]
    y = torch.ops.jetops.bias_gelu_dropout(*placed, seed, p, approximate=form).cpu().double()
    kept, scale = reference.dropout_mask((64, 8), SEED, p, dtype)
    expected = (reference.gelu(x, form) * scale).to(dtype).double()
    expected = torch.where(kept, expected, torch.zeros_like(expected))
    torch.testing.assert_close(y, expected, rtol=ROUNDING[dtype], atol=1e-6, equal_nan=True)
    ones = torch.ones_like(placed[0])
    slope, _ = torch.ops.jetops.bias_gelu_dropout_backward(ones, *placed, seed, p, approximate=form)
    limits = torch.tensor([1.0, 0.0, nan, 1.0, 0.0, 0.5]).double().repeat(64, 1)
    limits = torch.where(kept[:, :6], limits * scale, torch.zeros_like(limits))
    torch.testing.assert_close(slope[:, :6].cpu().double(), limits, equal_nan=True)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("p", [-0.1, 1.1, math.nan, math.inf])
def test_a_probability_that_is_none_is_refused_before_a_number_is_drawn(device, p, training):
    x, bias, _ = case(device, (4, 8), torch.float32)
    torch.manual_seed(5)
    expected = torch.rand(3, device=device)
    torch.manual_seed(5)
    with pytest.raises(RuntimeError, match="p must be a number within"):
        jetops.bias_gelu_dropout(x, bias, p, training=training)
    assert torch.equal(torch.rand(3, device=device), expected)
    backward = torch.ops.jetops.bias_gelu_dropout_backward
    with pytest.raises(RuntimeError, match="bias_gelu_dropout_backward: p must be a number"):
        backward(x, x, bias, seed_on(device), p)


@pytest.mark.parametrize("p", ["0.5", None, [0.5], 1j])
def test_a_probability_that_is_no_number_is_refused(device, p):
    x, bias, _ = case(device, (4, 8), torch.float32)
    with pytest.raises(RuntimeError, match=f"p must be a number .* got a {type(p).__name__}"):
        jetops.bias_gelu_dropout(x, bias, p)


def test_none_for_a_tensor_is_refused():
    """torch takes it for a tensor that is not defined, and says no name."""
    x = torch.zeros(2, 4)
    message = "jetops::{}: .* must be .*, got None"
    with pytest.raises(RuntimeError, match=message.format("gelu")):
        jetops.gelu(None)
    with pytest.raises(RuntimeError, match=message.format("bias_gelu_dropout")):
        jetops.bias_gelu_dropout(x, None)
    for name in ("fused_attn_nms", "fused_attn_nms_scored"):
        with pytest.raises(RuntimeError, match=message.format(name)):
            getattr(jetops, name)(x, torch.zeros(2), None, 0.5)


def test_probabilities_next_to_zero_and_one(device):
    x, bias, grad_y = case(device, (40, 40), torch.bfloat16)
    for p in (1e-9, 2.0**-17, 1.0 - 2.0**-20):
        check(x, bias, grad_y, p, "none")


WRONG = {
    "x dtype": ({"x": torch.zeros(2, 4).double()}, "x must be float32, float16 or bfloat16"),
    "x strides": ({"x": torch.zeros(4, 2).t()}, "x must be contiguous"),
    "x scalar": ({"x": torch.zeros(())}, "bias must have sizes"),
    "bias dtype": ({"bias": torch.zeros(4).half()}, r"bias must have the dtype of x \(Float\)"),
    "bias size": ({"bias": torch.zeros(5)}, r"bias must have sizes \[C\] with C the last size"),
    "bias dim": ({"bias": torch.zeros(1, 4)}, "bias must have sizes"),
    "seed dtype": ({"seed": torch.zeros(2).int()}, r"seed must be int64 of sizes \[2\], got Int"),
    "seed size": ({"seed": torch.zeros(3).long()}, "seed must be int64"),
    "p low": ({"p": -0.1}, r"p must be a number within \[0, 1\], got -0.1"),
    "p high": ({"p": 1.1}, "p must be a number"),
    "p nan": ({"p": float("nan")}, "p must be a number within .*, got nan"),
    "form": ({"approximate": "exact"}, 'approximate must be "none" or "tanh", got "exact"'),
}


@pytest.mark.parametrize("name", sorted(WRONG))
def test_refuses(device, name):
    change, message = WRONG[name]
    arguments = {
        "x": torch.zeros(2, 4),
        "bias": torch.zeros(4),
        "p": 0.5,
        "seed": torch.tensor([1, 2]),
        **change,
    }
    for key, value in arguments.items():
        if torch.is_tensor(value):
            copy = torch.empty_strided(
                value.shape, value.stride(), dtype=value.dtype, device=device
            )
            arguments[key] = copy.copy_(value)
    with pytest.raises(RuntimeError, match=f"jetops::bias_gelu_dropout: {message}"):
        jetops.bias_gelu_dropout(**arguments)

"""The operators inside torch.compile, the operator checks of torch, and TorchScript."""

import warnings

import pytest
import torch
from test_fused_attn_nms import random_case

import jetops
from jetops import ops

needs_compile = pytest.mark.skipif(
    not hasattr(torch, "compile"), reason="this torch has no torch.compile"
)
needs_export = pytest.mark.skipif(
    not hasattr(torch, "export") or not hasattr(torch.library, "opcheck"),
    reason="this torch has no torch.export",
)
needs_opcheck = pytest.mark.skipif(
    not hasattr(torch.library, "opcheck"), reason="this torch has no opcheck"
)


def nms_inputs(device):
    return tuple(tensor.to(device) for tensor in random_case(50, seed=1))


@needs_opcheck
@pytest.mark.parametrize("form", ["none", "tanh"])
def test_opcheck_of_gelu(device, form):
    for shape in [(7,), (2, 3), (0,)]:
        x = torch.randn(shape, device=device)
        for value in (x, x.clone().requires_grad_()):
            torch.library.opcheck(torch.ops.jetops.gelu.default, (value,), {"approximate": form})


@needs_opcheck
@pytest.mark.parametrize("name", ["fused_attn_nms", "fused_attn_nms_scored"])
def test_opcheck_of_nms(device, name):
    operator = getattr(torch.ops.jetops, name).default
    torch.library.opcheck(operator, (*nms_inputs(device), 0.5))


def detect(x, boxes, scores, attn_map):
    keep, weighted = jetops.fused_attn_nms_scored(boxes, scores, attn_map, 0.5)
    alone = jetops.fused_attn_nms(boxes, scores, attn_map, 0.5)
    return jetops.gelu(x + 1.0, approximate="tanh"), keep & alone, weighted * 2.0


@needs_compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_a_graph_break(device, backend):
    torch._dynamo.reset()
    inputs = (torch.randn(5, 6, device=device), *nms_inputs(device))
    compiled = torch.compile(detect, fullgraph=True, backend=backend)
    for actual, expected in zip(compiled(*inputs), detect(*inputs)):
        assert torch.equal(actual, expected)


@needs_compile
def test_compiles_with_dynamic_sizes(device):
    torch._dynamo.reset()
    compiled = torch.compile(detect, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (20, 33):
        case = [tensor.to(device) for tensor in random_case(count, seed=count)]
        inputs = (torch.randn(count, device=device), *case)
        for actual, expected in zip(compiled(*inputs), detect(*inputs)):
            assert torch.equal(actual, expected)


def feed_forward(x, bias, seed):
    hidden = jetops.bias_gelu_dropout(x * 2.0, bias, 0.25, seed=seed)
    return jetops.gelu(hidden - 0.1, approximate="tanh").square().mean()


@needs_compile
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiled_gradients_are_the_eager_ones(device, backend):
    torch._dynamo.reset()
    seed = torch.tensor([3, 4], device=device)
    x, bias = torch.randn(6, 24, device=device), torch.randn(24, device=device)
    compiled = torch.compile(feed_forward, fullgraph=True, backend=backend)
    gradients = []
    for function in (feed_forward, compiled):
        leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
        function(*leaves, seed).backward()
        gradients.append([leaf.grad for leaf in leaves])
    for eager, other in zip(*gradients):
        torch.testing.assert_close(eager, other, rtol=1e-6, atol=1e-8)


@needs_export
def test_exports(device):
    class Detector(torch.nn.Module):
        def forward(self, x, boxes, scores, attn_map):
            return detect(x, boxes, scores, attn_map)

    inputs = (torch.randn(8, device=device), *nms_inputs(device))
    exported = torch.export.export(Detector(), inputs).module()
    for actual, expected in zip(exported(*inputs), detect(*inputs)):
        assert torch.equal(actual, expected)


@needs_opcheck
def test_opcheck_of_bias_gelu_dropout(device):
    x, bias = torch.randn(5, 16, device=device), torch.randn(16, device=device)
    seed = torch.tensor([1, 2], device=device)
    operator = torch.ops.jetops.bias_gelu_dropout.default
    torch.library.opcheck(operator, (x, bias, seed, 0.3))
    with_gradients = (x.clone().requires_grad_(), bias.clone().requires_grad_(), seed, 0.3)
    torch.library.opcheck(operator, with_gradients)


def test_autocast_brings_dtypes_together(device):
    kind = device.split(":")[0]
    boxes, scores, attn_map = nms_inputs(device)
    x = torch.randn(4, 16, device=device, dtype=torch.bfloat16)
    bias = torch.randn(16, device=device, requires_grad=True)
    seed = torch.tensor([1, 2], device=device)
    with pytest.raises(RuntimeError, match="bias must have the dtype of x"):
        jetops.bias_gelu_dropout(x, bias, 0.5, seed=seed)
    with torch.autocast(kind, dtype=torch.bfloat16):
        y = jetops.bias_gelu_dropout(x, bias, 0.5, seed=seed)
        keep = jetops.fused_attn_nms(boxes.double(), scores.bfloat16(), attn_map, 0.5)
        assert jetops.gelu(x).dtype == torch.bfloat16
    assert y.dtype == torch.bfloat16
    assert torch.equal(y, jetops.bias_gelu_dropout(x, bias.bfloat16(), 0.5, seed=seed))
    y.sum().backward()
    assert bias.grad.dtype == torch.float32
    expected = jetops.fused_attn_nms(boxes, scores.bfloat16().float(), attn_map, 0.5)
    assert torch.equal(keep, expected)


@needs_compile
def test_fake_tensors_have_the_right_shapes():
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        keep, weighted = jetops.fused_attn_nms_scored(
            torch.empty(9, 4), torch.empty(9), torch.empty(9, 9), 0.5
        )
        assert keep.shape == weighted.shape == (9,)
        assert keep.dtype == torch.bool and weighted.dtype == torch.float32
        assert jetops.gelu(torch.empty(2, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_scripts(device):
    inputs = nms_inputs(device)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        gelu = torch.jit.script(ops.gelu)
        nms = torch.jit.script(ops.fused_attn_nms_scored)
    assert torch.equal(gelu(inputs[1], "tanh"), jetops.gelu(inputs[1], "tanh"))
    for actual, expected in zip(nms(*inputs, 0.5), jetops.fused_attn_nms_scored(*inputs, 0.5)):
        assert torch.equal(actual, expected)


def test_traces(device):
    inputs = (torch.randn(8, device=device), *nms_inputs(device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(detect, inputs)
    for actual, expected in zip(traced(*inputs), detect(*inputs)):
        assert torch.equal(actual, expected)

"""The operators inside torch.compile, the operator checks of torch, and TorchScript."""

import warnings

import pytest
import torch
from test_fused_attn_nms import random_case

import jetops
from jetops import ops

HAS_FAKE = hasattr(torch.library, "register_fake") or hasattr(torch.library, "impl_abstract")
needs_fake = pytest.mark.skipif(not HAS_FAKE, reason="this torch has no fake kernels")
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
        torch.library.opcheck(torch.ops.jetops.gelu.default, (x,), {"approximate": form})


@needs_opcheck
@pytest.mark.parametrize("name", ["fused_attn_nms", "fused_attn_nms_scored"])
def test_opcheck_of_nms(device, name):
    operator = getattr(torch.ops.jetops, name).default
    torch.library.opcheck(operator, (*nms_inputs(device), 0.5))


def detect(x, boxes, scores, attn_map):
    keep, weighted = jetops.fused_attn_nms_scored(boxes, scores, attn_map, 0.5)
    alone = jetops.fused_attn_nms(boxes, scores, attn_map, 0.5)
    return jetops.gelu(x + 1.0, approximate="tanh"), keep & alone, weighted * 2.0


@needs_fake
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compiles_without_a_graph_break(device, backend):
    torch._dynamo.reset()
    inputs = (torch.randn(5, 6, device=device), *nms_inputs(device))
    compiled = torch.compile(detect, fullgraph=True, backend=backend)
    for actual, expected in zip(compiled(*inputs), detect(*inputs)):
        assert torch.equal(actual, expected)


@needs_fake
def test_compiles_with_dynamic_sizes(device):
    torch._dynamo.reset()
    compiled = torch.compile(detect, fullgraph=True, backend="aot_eager", dynamic=True)
    for count in (20, 33):
        case = [tensor.to(device) for tensor in random_case(count, seed=count)]
        inputs = (torch.randn(count, device=device), *case)
        for actual, expected in zip(compiled(*inputs), detect(*inputs)):
            assert torch.equal(actual, expected)


@needs_fake
def test_compiled_code_refuses_to_drop_a_gradient(device):
    torch._dynamo.reset()
    compiled = torch.compile(jetops.gelu, backend="aot_eager")
    with pytest.raises(Exception, match="gelu has no backward, but x requires grad"):
        compiled(torch.randn(3, device=device, requires_grad=True))


@needs_fake
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

"""The operators inside torch.compile and torch.export, under torch's own checks, and in TorchScript."""

import importlib.util
import io
import os
import shutil
import subprocess
import sys
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


BACKENDS = ["eager", "aot_eager", "inductor"]


@pytest.fixture
def backend(request, device, tmp_path_factory, monkeypatch):
    """A backend of torch.compile; Inductor where its compiler is, and with nothing compiled before."""
    torch._dynamo.reset()
    if request.param == "inductor":
        compiler = os.environ.get("CXX", "g++")
        if device == "cpu" and shutil.which(compiler) is None:
            pytest.skip("Inductor needs a C++ compiler for the CPU")
        if device != "cpu" and importlib.util.find_spec("triton") is None:
            pytest.skip("Inductor needs Triton for a GPU")
        folder = tmp_path_factory.getbasetemp() / "inductor"
        monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(folder))
    return request.param


def nms_inputs(device, dtype=torch.float32):
    boxes, scores, attn_map = (tensor.to(device) for tensor in random_case(50, seed=1))
    return boxes, scores.to(dtype), attn_map.to(dtype)


def dropout_inputs(device, dtype, *sizes):
    x = torch.randn(*sizes, device=device).to(dtype)
    bias = torch.randn(sizes[-1], device=device).to(dtype)
    return torch.randn_like(x), x, bias, torch.tensor([1, 2], device=device)


NAMES = [
    "gelu",
    "gelu_backward",
    "bias_gelu_dropout",
    "bias_gelu_dropout_backward",
    "fused_attn_nms",
    "fused_attn_nms_scored",
]


def calls_of(name, device, dtype, form="none"):
    """Arguments of an operator: usual ones, empty ones, and some that want gradients."""
    if name.startswith("fused"):
        empty = [torch.zeros(sizes, device=device) for sizes in ((0, 4), (0,), (0, 0))]
        return [((*nms_inputs(device, dtype), 0.5), {}), ((*empty, 0.5), {})]
    calls = []
    for sizes in [(7,), (2, 3), (5, 16), (0, 8)]:
        grad_y, x, bias, seed = dropout_inputs(device, dtype, *sizes)
        arguments = (x, bias, seed, 0.3) if "dropout" in name else (x,)
        if name.endswith("backward"):
            calls.append(((grad_y, *arguments), {"approximate": form}))
            continue
        calls.append((arguments, {"approximate": form}))
        leaf, bias_leaf = x.clone().requires_grad_(), bias.clone().requires_grad_()
        if "dropout" in name:
            calls.append(((leaf, bias_leaf, seed, 0.3), {"approximate": form}))
            calls.append(((x, bias_leaf, seed, 0.3), {"approximate": form}))
        else:
            calls.append(((leaf,), {"approximate": form}))
    return calls


def test_these_are_all_operators():
    names = {schema.name for schema in torch._C._jit_get_all_schemas()}
    assert sorted(n[8:] for n in names if n.startswith("jetops::")) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_every_backend_has_a_kernel(name):
    for key in ("CPU", "CUDA", "Meta", "Autograd"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"jetops::{name}", key), key


@needs_opcheck
@pytest.mark.parametrize("form", ["none", "tanh"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", NAMES)
def test_opcheck(device, name, dtype, form):
    if name.startswith("fused") and form == "tanh":
        pytest.skip("has no form")
    operator = getattr(torch.ops.jetops, name).default
    for arguments, named in calls_of(name, device, dtype, form):
        torch.library.opcheck(operator, arguments, named)


def detect(x, boxes, scores, attn_map):
    keep, weighted = jetops.fused_attn_nms_scored(boxes, scores, attn_map, 0.5)
    alone = jetops.fused_attn_nms(boxes, scores, attn_map, 0.5)
    return jetops.gelu(x + 1.0, approximate="tanh"), keep & alone, weighted * 2.0


@needs_compile
@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_compiles_without_a_graph_break(device, backend):
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
@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_compiled_gradients_are_the_eager_ones(device, backend):
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


def permuted(x, bias, seed):
    """Between permutations a compiler is free to choose strides, but the operators are not."""
    hidden = jetops.gelu((x.permute(0, 2, 1) + 1.0).contiguous())
    turned = (hidden.transpose(0, 1) * 2.0).contiguous()
    return jetops.bias_gelu_dropout(turned, bias, 0.5, seed=seed).permute(2, 0, 1) * 1.5


@needs_compile
@pytest.mark.skipif(
    not hasattr(torch._C, "Tag") or not hasattr(torch._C.Tag, "needs_fixed_stride_order"),
    reason="in this torch operators cannot say which strides they take",
)
@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_compiled_code_hands_over_contiguous_tensors(device, backend):
    _, x, _, seed = dropout_inputs(device, torch.float32, 4, 8, 16)
    bias = torch.randn(8, device=device)
    compiled = torch.compile(permuted, fullgraph=True, backend=backend)
    results = []
    for function in (permuted, compiled):
        leaves = [x.clone().requires_grad_(), bias.clone().requires_grad_()]
        y = function(*leaves, seed)
        y.square().sum().backward()
        results.append([y.detach(), leaves[0].grad, leaves[1].grad])
    for eager, other in zip(*results):
        torch.testing.assert_close(other, eager, rtol=1e-5, atol=1e-6)


@needs_compile
@pytest.mark.parametrize("backend", BACKENDS, indirect=True)
def test_compiled_code_draws_a_seed_once(device, backend):
    """New in every call, and the same in the forward and the backward."""

    def block(x, bias):
        return jetops.bias_gelu_dropout(x * 2.0, bias, 0.5)

    compiled = torch.compile(block, fullgraph=True, backend=backend)
    bias = torch.zeros(64, device=device)
    masks = []
    for _ in range(2):
        x = torch.ones(64, 64, device=device, requires_grad=True)
        y = compiled(x, bias)
        y.sum().backward()
        masks.append(y.detach() != 0)
        assert torch.equal(x.grad != 0, masks[-1])
        assert 0.4 < masks[-1].float().mean() < 0.6
    assert not torch.equal(*masks)


class Detector(torch.nn.Module):
    """All four operators that have a use in a model."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Parameter(torch.linspace(-1.0, 1.0, 8))

    def forward(self, x, seed, boxes, scores, attn_map):
        activated, keep, weighted = detect(x, boxes, scores, attn_map)
        dropped = jetops.bias_gelu_dropout(activated, self.bias, 0.25, seed=seed)
        return jetops.bias_gelu_dropout(dropped, self.bias, training=False), keep, weighted


def detector_and_inputs(device):
    seed = torch.tensor([5, 6], device=device)
    x = torch.linspace(-3.0, 3.0, 48, device=device).reshape(6, 8)
    return Detector().to(device), (x, seed, *nms_inputs(device))


@needs_export
def test_exports(device):
    model, inputs = detector_and_inputs(device)
    expected = model(*inputs)
    exported = torch.export.export(model, inputs)
    called = {str(node.target) for node in exported.graph.nodes if "jetops" in str(node.target)}
    assert called == {f"jetops.{name}.default" for name in NAMES if not name.endswith("backward")}
    for program in (exported, exported.run_decompositions()):
        for actual, value in zip(program.module()(*inputs), expected):
            assert torch.equal(actual, value)


@needs_export
def test_an_export_is_saved_and_loaded_by_another_process(device, tmp_path):
    model, inputs = detector_and_inputs(device)
    torch.export.save(torch.export.export(model, inputs), str(tmp_path / "detector.pt2"))
    torch.save((inputs, [value.detach() for value in model(*inputs)]), str(tmp_path / "values.pt"))
    code = (
        "import sys, torch, jetops\n"
        "inputs, expected = torch.load(sys.argv[2])\n"
        "actual = torch.export.load(sys.argv[1]).module()(*inputs)\n"
        "assert all(torch.equal(a, b) for a, b in zip(actual, expected)), actual\n"
        "print('equal')\n"
    )
    files = [str(tmp_path / name) for name in ("detector.pt2", "values.pt")]
    done = subprocess.run(
        [sys.executable, "-c", code, *files],
        check=False,
        cwd=os.path.dirname(__file__),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    assert done.stdout.decode().endswith("equal\n"), done.stdout.decode()


@needs_export
def test_exports_with_sizes_that_change(device):
    sizes = torch.export.Dim("n", min=2, max=1000)
    shapes = ({0: sizes}, {0: sizes}, {0: sizes, 1: sizes})

    class Suppress(torch.nn.Module):
        def forward(self, boxes, scores, attn_map):
            return jetops.fused_attn_nms_scored(boxes, scores, attn_map, 0.5)

    exported = torch.export.export(Suppress(), nms_inputs(device), dynamic_shapes=shapes)
    saved = io.BytesIO()
    torch.export.save(exported, saved)
    saved.seek(0)
    loaded = torch.export.load(saved).module()
    for count in (2, 33, 700):
        case = [tensor.to(device) for tensor in random_case(count, seed=count)]
        for actual, expected in zip(loaded(*case), jetops.fused_attn_nms_scored(*case, 0.5)):
            assert torch.equal(actual, expected)


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


def test_autocast_of_nms(device):
    kind = device.split(":")[0]
    boxes, scores, attn_map = nms_inputs(device)
    half = boxes.half(), scores.half(), attn_map.half()
    with pytest.raises(RuntimeError, match="boxes must be float32"):
        jetops.fused_attn_nms_scored(*half, 0.5)
    with torch.autocast(kind, dtype=torch.bfloat16):
        rounded = jetops.fused_attn_nms_scored(*half, 0.5)
        mixed = jetops.fused_attn_nms_scored(boxes, half[1], attn_map, 0.5)
    for actual, expected in [
        (rounded, jetops.fused_attn_nms_scored(half[0].float(), *half[1:], 0.5)),
        (mixed, jetops.fused_attn_nms_scored(boxes, half[1].float(), attn_map, 0.5)),
    ]:
        assert torch.equal(actual[0], expected[0]) and torch.equal(actual[1], expected[1])


@pytest.mark.parametrize("name", NAMES)
def test_meta_tensors_have_the_results_of_real_ones(name):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for arguments, named in calls_of(name, "cpu", dtype):
            operator = getattr(torch.ops.jetops, name)
            real = operator(*arguments, **named)
            meta = operator(
                *[a.to("meta") if torch.is_tensor(a) else a for a in arguments], **named
            )
            for one, other in zip(*[r if isinstance(r, tuple) else (r,) for r in (real, meta)]):
                assert other.device.type == "meta"
                assert (other.shape, other.stride()) == (one.shape, one.stride())
                assert (other.dtype, other.requires_grad) == (one.dtype, one.requires_grad)


@pytest.mark.parametrize("name", NAMES)
def test_one_meta_tensor_among_others_is_refused(device, name):
    """The dispatcher takes it for a call with meta tensors, and the others' results have no data."""
    arguments, named = calls_of(name, device, torch.float32)[0]
    places = [place for place, value in enumerate(arguments) if torch.is_tensor(value)]
    for place in places if len(places) > 1 else []:
        mixed = list(arguments)
        mixed[place] = mixed[place].to("meta")
        with pytest.raises(RuntimeError, match=f"jetops::{name}: .* must be on the same device as"):
            getattr(torch.ops.jetops, name)(*mixed, **named)


def test_a_refused_meta_tensor_is_named():
    x, bias = torch.zeros(2, 4), torch.zeros(4, device="meta")
    message = r"bias must be on the same device as x \(cpu\), got meta"
    with pytest.raises(RuntimeError, match=message):
        jetops.bias_gelu_dropout(x, bias)
    seed = torch.zeros(2, dtype=torch.int64, device="meta")
    with pytest.raises(RuntimeError, match=message.replace("bias", "seed")):
        jetops.bias_gelu_dropout(x, torch.zeros(4), seed=seed)


def meta(*sizes):
    return torch.empty(sizes, device="meta")


def test_sizes_and_limits_hold_for_meta_tensors_too():
    seed = torch.empty(2, dtype=torch.int64, device="meta")
    count = 16385
    for call, message in [
        (lambda: jetops.gelu(meta(2), "exact"), 'approximate must be "none" or "tanh"'),
        (lambda: torch.ops.jetops.gelu_backward(meta(3), meta(2)), "must have the sizes of x"),
        (lambda: jetops.bias_gelu_dropout(meta(2, 4), meta(5), seed=seed), "bias must have sizes"),
        (lambda: jetops.bias_gelu_dropout(meta(2), meta(2), seed=meta(2)), "seed must be int64"),
        (lambda: jetops.bias_gelu_dropout(meta(2), meta(2), 1.5), "p must be a number within"),
        (lambda: jetops.fused_attn_nms(meta(9, 5), meta(9), meta(9, 9), 0.5), "boxes must have"),
        (lambda: jetops.fused_attn_nms(meta(9, 4), meta(8), meta(9, 9), 0.5), "scores must have"),
        (lambda: jetops.fused_attn_nms(meta(9, 4), meta(9), meta(9, 9), 1.5), "iou_threshold must"),
        (
            lambda: jetops.fused_attn_nms(meta(count, 4), meta(count), meta(count, count), 0.5),
            "boxes must hold at most 16384 boxes, got 16385",
        ),
    ]:
        with pytest.raises(RuntimeError, match=message):
            call()


@needs_compile
@pytest.mark.parametrize("training", [True, False])
def test_compiled_code_says_what_is_wrong_with_a_probability(device, training):
    torch._dynamo.reset()

    def block(x, bias, p):
        return jetops.bias_gelu_dropout(x, bias, p, training)

    compiled = torch.compile(block, fullgraph=True, backend="eager")
    x, bias = torch.zeros(2, 4, device=device), torch.zeros(4, device=device)
    assert compiled(x, bias, 0.5).shape == (2, 4)
    for p in (1.5, -0.5, float("nan")):
        with pytest.raises(Exception, match=r"p must be a number within \[0, 1\], got"):
            compiled(x, bias, p)


def test_inference_mode(device):
    model, inputs = detector_and_inputs(device)
    expected = model(*inputs)
    with torch.inference_mode():
        for actual, value in zip(model(*inputs), expected):
            assert torch.equal(actual, value)


needs_func = pytest.mark.skipif(not hasattr(torch, "func"), reason="this torch has no torch.func")


@needs_func
@pytest.mark.filterwarnings("ignore:There is a performance drop")
def test_vmap_is_a_loop_over_the_batch(device):
    batch = [random_case(40, seed=seed) for seed in range(3)]
    boxes, scores, attn_map = (torch.stack(tensors).to(device) for tensors in zip(*batch))
    nms = torch.func.vmap(jetops.fused_attn_nms, in_dims=(0, 0, 0, None))
    keep = nms(boxes, scores, attn_map, 0.5)
    for index in range(3):
        case = boxes[index], scores[index], attn_map[index]
        assert torch.equal(keep[index], jetops.fused_attn_nms(*case, 0.5))
    x = torch.randn(3, 5, device=device)
    assert torch.equal(torch.func.vmap(jetops.gelu)(x), jetops.gelu(x))
    with pytest.raises(RuntimeError, match="x must be contiguous"):
        torch.func.vmap(jetops.gelu, in_dims=1)(x)


@needs_func
def test_transforms_that_differentiate_are_refused(device):
    x = torch.randn(5, device=device)
    for transform in (torch.func.grad, torch.func.jacrev):
        with pytest.raises(RuntimeError, match="functorch transforms"):
            transform(lambda x: jetops.gelu(x).sum())(x)


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
        dropout = torch.jit.script(ops.bias_gelu_dropout)
    assert torch.equal(gelu(inputs[1], "tanh"), jetops.gelu(inputs[1], "tanh"))
    _, x, bias, seed = dropout_inputs(device, torch.float32, 6, 8)
    for options in ({"seed": seed}, {"training": False}, {"p": 0.1, "seed": seed}):
        expected = jetops.bias_gelu_dropout(x, bias, **options)
        assert torch.equal(dropout(x, bias, **options), expected)
    with pytest.raises(Exception, match="p must be a number within"):
        dropout(x, bias, 1.5)
    for actual, expected in zip(nms(*inputs, 0.5), jetops.fused_attn_nms_scored(*inputs, 0.5)):
        assert torch.equal(actual, expected)


@pytest.mark.skipif(
    tuple(map(int, torch.__version__.split(".")[:2])) < (2, 2),
    reason="TorchScript knows generators from torch 2.2 on",
)
def test_a_scripted_seed_has_the_same_numbers(device):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        scripted = torch.jit.script(jetops.new_seed)
    where, numbers = torch.device(device), []
    for new_seed in (jetops.new_seed, scripted):
        torch.manual_seed(7)
        own = torch.Generator(device).manual_seed(8)
        numbers.append((new_seed(where).tolist(), new_seed(where, own).tolist()))
    assert numbers[0] == numbers[1]
    torch.manual_seed(7)
    assert numbers[0][0] == torch.randint(2**63 - 1, (2,), device=device).tolist()


def test_traces(device):
    inputs = (torch.randn(8, device=device), *nms_inputs(device))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(detect, inputs)
    for actual, expected in zip(traced(*inputs), detect(*inputs)):
        assert torch.equal(actual, expected)

"""The PTX that wheels for other machines carry, run on the GPU that is here.

tools/wheel_ptx.py makes a folder of libraries out of wheels; JETOPS_WHEEL_PTX names it. Each library
has the launchers of jetops_kernels.h around the device code of one wheel, and is called as that
header says. Nothing here knows the kernels or their parameters.
"""

import ctypes
import json
import os
from pathlib import Path

import pytest
import torch
from test_bias_gelu_dropout import ROUNDING
from test_fused_attn_nms import random_case
from test_gelu import SLOPE_TOLERANCE

from jetops import reference, selftest

FOLDER = os.environ.get("JETOPS_WHEEL_PTX", "")
RECORDS = sorted(Path(FOLDER).glob("*/wheel.json")) if FOLDER else []
DTYPES = list(selftest.DTYPES)  # in the order of enum jetops_dtype
FORMS = list(selftest.FORMS)  # in the order of enum jetops_gelu_form
SEED = (123456789012345, -7)
INVALID_VALUE = 1  # cudaErrorInvalidValue
PTX_VERSION, BINARY_VERSION = 5, 6  # of enum CUfunction_attribute

if FOLDER and not RECORDS:
    raise pytest.UsageError(f"JETOPS_WHEEL_PTX: tools/wheel_ptx.py has made nothing in {FOLDER}")
if not FOLDER:
    WHY_NOT = "PTX of wheels is not run: JETOPS_WHEEL_PTX names no folder of tools/wheel_ptx.py"
else:
    WHY_NOT = "" if torch.cuda.is_available() else "PTX of wheels is not run: torch sees no GPU"
pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

Pointer, Int64, Int, Float, Double = (
    ctypes.c_void_p, ctypes.c_int64, ctypes.c_int, ctypes.c_float, ctypes.c_double
)  # fmt: skip
# jetops_kernels.h; all but one return a cudaError_t.
PARAMETERS = {
    "gelu_cuda": [Pointer, Pointer, Int64, Int, Int, Pointer],
    "gelu_backward_cuda": [Pointer, Pointer, Pointer, Int64, Int, Int, Pointer],
    "bias_gelu_dropout_cuda": [Pointer, Pointer, Pointer, Int64, Int64, Int, Int, Double]
    + [Pointer, Pointer],
    "bias_gelu_dropout_workspace_bytes": [Int64, Int64, Pointer],
    "bias_gelu_dropout_backward_cuda": [Pointer] * 5
    + [Int64, Int64, Int, Int, Double, Pointer, Pointer, Pointer],
    "fused_attn_nms_workspace_bytes": [Int64],
    "fused_attn_nms_cuda": [Pointer, Pointer, Pointer, Int64, Int, Float, Pointer, Pointer]
    + [Pointer, Pointer],
}


def cuda_runtime():
    """The CUDA runtime that torch uses, and in sight of libraries that name none from now on."""
    path = Path(torch.__file__).with_name("lib") / "libc10_cuda.so"
    return ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)  # with all that it needs


class WheelKernels:
    """The operators of one wheel, on tensors of the current device."""

    def __init__(self, record):
        self.record = json.loads(record.read_text())
        self.path = record.with_name("libjetops_kernels.so")
        self.runtime = cuda_runtime()
        self.runtime.cudaGetErrorString.restype = ctypes.c_char_p
        library = ctypes.CDLL(str(self.path))
        self.functions = {name: getattr(library, f"jetops_{name}") for name in PARAMETERS}
        for name, parameters in PARAMETERS.items():
            self.functions[name].argtypes = parameters
        self.functions["fused_attn_nms_workspace_bytes"].restype = Int64

    def call(self, name, *arguments):
        """Queue work on torch's current stream, and wait for it: errors show up in this test."""
        places = [one.data_ptr() if torch.is_tensor(one) else one for one in arguments]
        error = self.functions[name](*places, torch.cuda.current_stream().cuda_stream)
        assert error == 0, self.runtime.cudaGetErrorString(error).decode()
        torch.cuda.synchronize()

    def gelu(self, x, form):
        y = torch.full_like(x, float("nan"))
        self.call("gelu_cuda", x, y, x.numel(), DTYPES.index(x.dtype), FORMS.index(form))
        return y

    def gelu_backward(self, grad_y, x, form):
        grad_x = torch.full_like(x, float("nan"))
        codes = DTYPES.index(x.dtype), FORMS.index(form)
        self.call("gelu_backward_cuda", grad_y, x, grad_x, x.numel(), *codes)
        return grad_x

    def bias_gelu_dropout(self, x, bias, seed, p, form):
        y = torch.full_like(x, float("nan"))
        codes = DTYPES.index(x.dtype), FORMS.index(form)
        self.call("bias_gelu_dropout_cuda", x, bias, y, *x.shape, *codes, p, seed)
        return y

    def bias_gelu_dropout_backward(self, grad_y, x, bias, seed, p, form):
        grad_x, grad_bias = torch.full_like(x, float("nan")), torch.full_like(bias, float("nan"))
        size = Int64()
        error = self.functions["bias_gelu_dropout_workspace_bytes"](*x.shape, ctypes.byref(size))
        assert error == 0, self.runtime.cudaGetErrorString(error).decode()
        workspace = torch.empty(size.value, dtype=torch.uint8, device=x.device)
        codes = DTYPES.index(x.dtype), FORMS.index(form)
        tensors = grad_y, x, bias, grad_x, grad_bias
        name = "bias_gelu_dropout_backward_cuda"
        self.call(name, *tensors, *x.shape, *codes, p, seed, workspace)
        return grad_x, grad_bias

    def fused_attn_nms(self, boxes, scores, attn_map, threshold, weighted=None, garbage=0xA5):
        """The keep mask; the weighted scores go into `weighted`."""
        count = len(boxes)
        keep = torch.full((count,), 7, dtype=torch.uint8, device=boxes.device)
        size = self.functions["fused_attn_nms_workspace_bytes"](count)
        # What lies in it must not matter.
        workspace = torch.full((size,), garbage, dtype=torch.uint8, device=boxes.device)
        tensors = boxes, scores, attn_map
        code = DTYPES.index(scores.dtype)
        self.call(
            "fused_attn_nms_cuda", *tensors, count, code, threshold, keep, weighted, workspace
        )
        return keep


WHEELS = [pytest.param(path, id=path.parent.name.split("+")[-1]) for path in RECORDS]


@pytest.fixture(scope="module", params=WHEELS or [pytest.param(None, id="no wheel")])
def wheel(request):
    torch.zeros(1, device="cuda")  # torch loads its libraries, and makes its context current
    return WheelKernels(request.param)


def placed(*tensors):
    return [tensor.to("cuda") for tensor in tensors]


def shifted(tensor):
    """The same values in memory that is not aligned to 16 bytes."""
    memory = torch.empty(tensor.numel() + 1, dtype=tensor.dtype, device="cuda")
    return memory[1:].reshape(tensor.shape).copy_(tensor)


def check_driver(error):
    assert error == 0, f"CUresult {error}"


def attribute(driver, module, kernel, number):
    function, value = Pointer(), Int()
    check_driver(driver.cuModuleGetFunction(ctypes.byref(function), module, kernel.encode()))
    check_driver(driver.cuFuncGetAttribute(ctypes.byref(value), number, function))
    return value.value


def test_the_driver_compiles_the_wheels_ptx(wheel):
    """Each kernel's code is for this GPU, and is made of PTX for the wheel's arch."""
    driver = ctypes.CDLL("libcuda.so.1")
    major, minor = torch.cuda.get_device_capability()
    library = wheel.path.read_bytes()
    for unit in wheel.record["ptx"].values():
        code = library[unit["offset"] : unit["offset"] + unit["size"]]
        module = Pointer()
        check_driver(driver.cuModuleLoadData(ctypes.byref(module), code))
        assert unit["kernels"]
        for kernel in unit["kernels"]:
            made_of = attribute(driver, module, kernel, PTX_VERSION)
            assert f"sm_{made_of}" == unit["target"], kernel
            assert attribute(driver, module, kernel, BINARY_VERSION) == 10 * major + minor, kernel
        check_driver(driver.cuModuleUnload(module))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu(wheel, dtype, form):
    centre = torch.linspace(-9.0, 9.0, 4099, dtype=torch.float64).to(dtype)
    x = torch.cat([selftest.gelu_inputs(dtype), centre])
    expected = reference.gelu(x, form)
    for given in (x.cuda(), shifted(x)):
        error = selftest.gelu_error(wheel.gelu(given, form), expected, dtype)
        assert error <= 1.0, f"error is {error} times what is allowed"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_gelu_of_every_value_of_16_bits(wheel, dtype, form):
    x = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    error = selftest.gelu_error(wheel.gelu(x.cuda(), form), reference.gelu(x, form), dtype)
    assert error <= 1.0, f"error is {error} times what is allowed"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_backward(wheel, dtype, form):
    x = torch.linspace(-12.0, 12.0, 4001, dtype=torch.float64).to(dtype)
    grad_y = torch.linspace(0.5, 2.0, 4001, dtype=torch.float64).to(dtype)
    expected = grad_y.double() * reference.gelu_slope(x, form)
    for given in (placed(grad_y, x), (shifted(grad_y), shifted(x))):
        actual = wheel.gelu_backward(*given, form).cpu().double()
        torch.testing.assert_close(actual, expected, **SLOPE_TOLERANCE[dtype])


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_gelu_backward_at_the_limits(wheel, dtype, form):
    inf, nan, largest = float("inf"), float("nan"), torch.finfo(dtype).max
    x = torch.tensor([inf, -inf, largest, -largest, nan, 0.0], dtype=dtype, device="cuda")
    slope = wheel.gelu_backward(torch.ones_like(x), x, form).tolist()
    assert slope[:4] == [1.0, 0.0, 1.0, 0.0]
    assert slope[4] != slope[4]
    assert slope[5] == 0.5


def dropout_case(shape, dtype):
    generator = torch.Generator().manual_seed(shape[0])
    x, grad_y = (torch.randn(shape, generator=generator).to(dtype) for _ in range(2))
    return x, torch.randn(shape[1], generator=generator).to(dtype), grad_y


def assert_close(actual, expected, dtype):
    tolerance = ROUNDING[dtype]
    torch.testing.assert_close(actual.cpu().double(), expected, rtol=tolerance, atol=tolerance / 20)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_bias_gelu_dropout(wheel, dtype, form, p):
    """Forward and backward; zeros are in the very same places. The second shape takes no packs."""
    seed = torch.tensor(SEED, device="cuda")
    for shape in [(6, 40), (17, 33), (300, 2), (4, 1000)]:
        x, bias, grad_y = dropout_case(shape, dtype)
        kept, _ = reference.dropout_mask(shape, SEED, p, dtype)
        on_gpu = placed(x, bias, grad_y)
        y = wheel.bias_gelu_dropout(on_gpu[0], on_gpu[1], seed, p, form)
        assert not y.cpu()[~kept].any()
        assert_close(y, reference.bias_gelu_dropout(x, bias, SEED, p, form), dtype)
        made = wheel.bias_gelu_dropout_backward(on_gpu[2], on_gpu[0], on_gpu[1], seed, p, form)
        wanted = reference.bias_gelu_dropout_backward(grad_y, x, bias, SEED, p, form)
        assert not made[0].cpu()[~kept].any()
        for actual, expected in zip(made, wanted):
            assert_close(actual, expected, dtype)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_dropped(wheel, dtype):
    """Where every value of gelu differs from 0, the zeros are the mask."""
    seed = torch.tensor(SEED, device="cuda")
    for shape in [(50, 96), (33, 37)]:
        x, bias = torch.ones(shape, dtype=dtype), torch.ones(shape[1], dtype=dtype)
        kept, _ = reference.dropout_mask(shape, SEED, 0.3, dtype)
        y = wheel.bias_gelu_dropout(*placed(x, bias), seed, 0.3, "none")
        assert torch.equal(y.cpu() != 0, kept)


@pytest.mark.parametrize("dtype", DTYPES)
def test_bias_gradient_of_many_rows(wheel, dtype):
    """More blocks than one: their sums are joined by a second kernel."""
    x, bias, grad_y = placed(*dropout_case((20000, 64), dtype))
    grad_y = grad_y.abs()  # so that the sums are not of numbers that cancel
    seed = torch.tensor(SEED, device="cuda")
    _, grad_bias = wheel.bias_gelu_dropout_backward(grad_y, x, bias, seed, 0.0, "none")
    slope = reference.gelu_slope(x.float() + bias.float())
    expected = (grad_y.double().cpu() * slope).sum(0)
    rtol = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
    torch.testing.assert_close(grad_bias.cpu().double(), expected, rtol=rtol, atol=1e-2)


def check_nms(wheel, boxes, scores, attn_map, threshold, place=torch.Tensor.cuda):
    """Mask and weighted scores to the bit, and the mask once more where nobody wants the scores."""
    on_gpu = [place(tensor) for tensor in (boxes, scores, attn_map)]
    weighted = torch.empty(len(boxes), device="cuda")
    keep = wheel.fused_attn_nms(*on_gpu, threshold, weighted).cpu()
    expected = reference.weighted_scores(scores, attn_map)
    number = ~torch.isnan(expected)
    assert torch.equal(torch.isnan(weighted.cpu()), ~number)
    bits = [tensor[number].view(torch.int32) for tensor in (weighted.cpu(), expected)]
    assert torch.equal(*bits)
    assert torch.equal(keep, reference.greedy_nms(boxes, expected, threshold).to(torch.uint8))
    assert torch.equal(wheel.fused_attn_nms(*on_gpu, threshold).cpu(), keep)


@pytest.mark.parametrize("count", [1, 31, 33, 129, 1000, 1001, 2000])
@pytest.mark.parametrize("dtype", DTYPES)
def test_nms(wheel, dtype, count):
    boxes, scores, attn_map = random_case(count, seed=count)
    check_nms(wheel, boxes, scores.to(dtype), attn_map.to(dtype), 0.5)


@pytest.mark.parametrize("threshold", [0.0, 0.3, 1.0])
def test_nms_thresholds(wheel, threshold):
    check_nms(wheel, *random_case(300, seed=3), threshold)


def test_nms_cases_of_the_selftest(wheel):
    for _, case, threshold in selftest.nms_cases():
        if len(case[0]):
            check_nms(wheel, *case, threshold)


def test_nms_of_memory_that_is_not_aligned(wheel):
    boxes, scores, attn_map = random_case(256, seed=2)
    check_nms(wheel, boxes, scores, attn_map, 0.5, place=shifted)


def test_nms_of_ties_and_a_chain(wheel):
    left = torch.arange(1000, dtype=torch.float32) * 4.0
    zero = torch.zeros(1000)
    chain = torch.stack([left, zero, left + 10.0, zero + 10.0], 1)
    check_nms(wheel, chain, torch.linspace(1.0, 0.5, 1000), torch.eye(1000), 0.4)
    check_nms(wheel, chain, torch.ones(1000), torch.eye(1000), 0.4)


def test_nms_of_huge_coordinates(wheel):
    for scale in (1e-18, 1e19):
        boxes, scores, attn_map = random_case(300, seed=12)
        check_nms(wheel, boxes * scale, scores, attn_map, 0.5)


@pytest.mark.parametrize("count", [4097, 12345])
def test_nms_of_many_boxes(wheel, count):
    boxes, scores, _ = random_case(64, seed=5)
    boxes = boxes.repeat(count // 64 + 1, 1)[:count] + torch.arange(count)[:, None] // 640 * 30.0
    scores = (torch.rand(count, generator=torch.Generator().manual_seed(1)) * 500).round() / 500
    attn_map = torch.full((count, count), 1.0 / count, device="cuda")
    weighted = torch.empty(count, device="cuda")
    keep = wheel.fused_attn_nms(*placed(boxes, scores), attn_map, 0.5, weighted)
    expected = reference.greedy_nms(boxes, weighted, 0.5).to(torch.uint8)
    assert torch.equal(keep.cpu(), expected)


def test_twenty_runs_give_the_same_bits(wheel):
    boxes, scores, attn_map = placed(*random_case(1500, seed=11))
    weighted = [torch.empty(1500, device="cuda") for _ in range(2)]
    first = wheel.fused_attn_nms(boxes, scores, attn_map, 0.5, weighted[0])
    for _ in range(20):
        again = wheel.fused_attn_nms(boxes, scores, attn_map, 0.5, weighted[1])
        assert torch.equal(again, first)
        assert torch.equal(weighted[1], weighted[0])


@pytest.mark.parametrize("garbage", [0x00, 0x01, 0xFF])
def test_nms_counts_on_nothing_in_its_workspace(wheel, garbage):
    """Blocks that wait for each other by a number there would not, or for ever."""
    boxes, scores, attn_map = placed(*random_case(2000, seed=4))
    weighted = torch.empty(2000, device="cuda")
    keep = wheel.fused_attn_nms(boxes, scores, attn_map, 0.5, weighted, garbage)
    expected = reference.greedy_nms(boxes.cpu(), weighted.cpu(), 0.5).to(torch.uint8)
    assert torch.equal(keep.cpu(), expected)


def test_more_boxes_than_it_can_take_are_refused(wheel):
    arguments = [None, None, None, 16385, 0, 0.5, None, None, None, None]
    assert wheel.functions["fused_attn_nms_cuda"](*arguments) == INVALID_VALUE

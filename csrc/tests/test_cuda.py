"""What only a GPU can get wrong: streams, devices, graphs, large inputs, launches side by side."""

import pytest
import torch
from nms_cases import any_case, chain, identical, make, rising, softmax
from test_fused_attn_nms import plain, random_case
from test_nms_chains import ORDERS, scores_by_rank

import jetops
from jetops import reference

CUDA = torch.autograd.DeviceType.CUDA


def placed_on(device, tensors):
    return [tensor.to(device) for tensor in tensors]


def same_bits(a, b):
    """NaN may have any bits."""
    same = a.view(torch.int32) == b.view(torch.int32)
    return bool((same | (torch.isnan(a) & torch.isnan(b))).all())


@pytest.mark.parametrize("streams", [1, 4])
@pytest.mark.parametrize("part", range(8))
def test_thousands_of_cases_queued_at_once(cuda_device, part, streams):
    """500 cases of every kind a time, against the CPU's operator, which test_properties.py checks.

    All wait behind a sleep and then run back to back; on several streams, side by side too.
    """
    cases = [any_case(500 * part + index, 700) for index in range(500)]
    with torch.cuda.device(cuda_device):
        placed = [(placed_on(cuda_device, tensors), threshold) for tensors, threshold in cases]
        torch.cuda.synchronize()
        lanes = [torch.cuda.Stream() for _ in range(streams)]
        results = []
        for lane in lanes:
            with torch.cuda.stream(lane):
                torch.cuda._sleep(100_000_000)
        for index, (tensors, threshold) in enumerate(placed):
            with torch.cuda.stream(lanes[index % streams]):
                results.append(jetops.fused_attn_nms_scored(*tensors, threshold))
        torch.cuda.synchronize()
    for index, ((tensors, threshold), (keep, weighted)) in enumerate(zip(cases, results)):
        want_keep, want_weighted = jetops.fused_attn_nms_scored(*tensors, threshold)
        assert torch.equal(keep.cpu(), want_keep), f"case {500 * part + index}"
        assert same_bits(weighted.cpu(), want_weighted), f"case {500 * part + index}"


@pytest.mark.parametrize("count", [128, 1000, 4096])
def test_long_chains_side_by_side(cuda_device, count):
    """Launches that wait within themselves must not wait for blocks that another one keeps out."""
    cases = []
    for order in ORDERS:
        weighted = torch.empty(count)
        weighted[order(count)] = scores_by_rank(count)
        cases.append(plain(chain(count), weighted))
    cases.append(make(count, 1, identical, rising, softmax))
    expected = [jetops.fused_attn_nms(*case, 0.4) for case in cases]
    with torch.cuda.device(cuda_device):
        placed = [placed_on(cuda_device, case) for case in cases]
        x = torch.randn(2**26, device=cuda_device)
        torch.cuda.synchronize()
        lanes = [(torch.cuda.Stream(), case) for case in placed for _ in range(3)]
        busy = torch.cuda.Stream()
        results = []
        for _ in range(10):
            with torch.cuda.stream(busy):  # fills the GPU's multiprocessors in between
                jetops.gelu(x)
            for lane, case in lanes:
                with torch.cuda.stream(lane):
                    results.append(jetops.fused_attn_nms(*case, 0.4))
        torch.cuda.synchronize()
    for index, keep in enumerate(results):
        assert torch.equal(keep.cpu(), expected[index % len(lanes) // 3])


def all_operators(device, count=500):
    """A call of each operator, by its name."""
    ops = torch.ops.jetops
    case = placed_on(device, random_case(count, seed=1))
    x, grad_y = torch.randn(2, 300, 256, device=device).unbind(0)
    bias, seed = torch.randn(256, device=device), torch.tensor([1, 2], device=device)
    return {
        "gelu": lambda: ops.gelu(x),
        "gelu_backward": lambda: ops.gelu_backward(grad_y, x),
        "bias_gelu_dropout": lambda: ops.bias_gelu_dropout(x, bias, seed, 0.3),
        "bias_gelu_dropout_backward": lambda: ops.bias_gelu_dropout_backward(
            grad_y, x, bias, seed, 0.3
        ),
        "fused_attn_nms": lambda: ops.fused_attn_nms(*case, 0.5),
        "fused_attn_nms_scored": lambda: ops.fused_attn_nms_scored(*case, 0.5),
    }


def test_each_operator_is_one_kernel(cuda_device):
    """But for the bias gradient, whose blocks' sums a second kernel joins."""
    for name, call in all_operators(cuda_device).items():
        call()
        torch.cuda.synchronize(cuda_device)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            call()
            torch.cuda.synchronize(cuda_device)
        on_gpu = [event.name for event in profile.events() if event.device_type == CUDA]
        if not on_gpu:
            pytest.skip("the profiler sees no kernels on this machine")
        kernels = [kernel for kernel in on_gpu if "kernel" in kernel]
        assert len(kernels) == (2 if name == "bias_gelu_dropout_backward" else 1), on_gpu


def test_no_operator_waits_for_the_gpu(cuda_device):
    with torch.cuda.device(cuda_device):
        calls = all_operators(cuda_device)
        for call in calls.values():  # code is loaded at the first launch
            call()
        torch.cuda.synchronize()
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("error")
        try:
            torch.cuda._sleep(2_000_000_000)
            slept = torch.cuda.Event()
            slept.record()
            for call in calls.values():
                call()
            assert not slept.query()
        finally:
            torch.cuda.set_sync_debug_mode(before)
            torch.cuda.synchronize()


def test_memory_comes_from_the_allocator_and_goes_back_to_it(cuda_device):
    with torch.cuda.device(cuda_device):
        calls = all_operators(cuda_device, 2000)
        for call in calls.values():
            call()
        torch.cuda.synchronize()
        allocated, reserved = torch.cuda.memory_allocated(), torch.cuda.memory_reserved()
        free = torch.cuda.mem_get_info()[0]
        for _ in range(20):
            for call in calls.values():
                call()
        torch.cuda.synchronize()
        assert torch.cuda.memory_allocated() == allocated
        assert torch.cuda.memory_reserved() == reserved
        assert torch.cuda.mem_get_info()[0] == free


def test_side_streams_see_what_was_queued_before_them(cuda_device):
    """On a wrong stream the operator would read its inputs before they are there."""
    cases = [random_case(400 + 100 * k, seed=k) for k in range(4)]
    expected = [reference.fused_attn_nms(*case, 0.5) for case in cases]
    pinned = [[tensor.pin_memory() for tensor in case] for case in cases]
    streams = [torch.cuda.Stream(cuda_device) for _ in cases]
    with torch.cuda.device(cuda_device):
        for _ in range(5):
            results = []
            for stream, case in zip(streams, pinned):
                with torch.cuda.stream(stream):
                    torch.cuda._sleep(2_000_000)
                    placed = [tensor.to(cuda_device, non_blocking=True) for tensor in case]
                    results.append((jetops.fused_attn_nms(*placed, 0.5), jetops.gelu(placed[1])))
            torch.cuda.synchronize(cuda_device)
            for (keep, activated), want, case in zip(results, expected, cases):
                assert torch.equal(keep.cpu(), want)
                torch.testing.assert_close(activated.cpu(), jetops.gelu(case[1]))


def test_runs_on_the_device_of_its_inputs(cuda_device):
    """The current device is another one where there are several."""
    case = random_case(300, seed=1)
    last = torch.cuda.device_count() - 1
    other = last - torch.device(cuda_device).index
    with torch.cuda.device(other):
        keep = jetops.fused_attn_nms(*[tensor.to(cuda_device) for tensor in case], 0.5)
        assert torch.cuda.current_device() == other
    assert keep.device == torch.device(cuda_device)
    assert torch.equal(keep.cpu(), reference.fused_attn_nms(*case, 0.5))


def test_replays_in_a_graph(cuda_device):
    with torch.cuda.device(cuda_device):
        placed = [tensor.to(cuda_device) for tensor in random_case(900, seed=2)]
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            jetops.fused_attn_nms(*placed, 0.5)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            keep = jetops.fused_attn_nms(*placed, 0.5)
            activated = jetops.gelu(placed[1])
        for seed in (3, 4, 3):
            fresh = random_case(900, seed=seed)
            for target, source in zip(placed, fresh):
                target.copy_(source)
            graph.replay()
            assert torch.equal(keep.cpu(), reference.fused_attn_nms(*fresh, 0.5))
            torch.testing.assert_close(activated.cpu(), jetops.gelu(fresh[1]))


def test_cpu_and_cuda_agree_to_the_bit(cuda_device):
    for count in (37, 640, 2000):
        case = random_case(count, seed=count)
        on_cpu = jetops.fused_attn_nms_scored(*case, 0.5)
        on_gpu = jetops.fused_attn_nms_scored(*[tensor.to(cuda_device) for tensor in case], 0.5)
        assert torch.equal(on_gpu[0].cpu(), on_cpu[0])
        assert torch.equal(on_gpu[1].cpu(), on_cpu[1])


@pytest.mark.parametrize("count", [4097, 8192, 8193, 12345])
def test_many_boxes(cuda_device, count):
    """Several boxes a warp, several slices of keys, long rows of the overlap words."""
    boxes, scores, _ = random_case(count, seed=count, clusters=count // 30)
    attn_map = torch.full((count, count), 1.0 / count, device=cuda_device)
    scores = (scores * 500).round() / 500  # with ties
    placed = (boxes.to(cuda_device), scores.to(cuda_device), attn_map)
    keep, weighted = jetops.fused_attn_nms_scored(*placed, 0.5)
    assert torch.equal(keep.cpu(), reference.greedy_nms(boxes, weighted, 0.5))


def test_a_mix_of_devices_is_refused(cuda_device):
    boxes, scores, attn_map = random_case(10, seed=0)
    cuda = torch.device(cuda_device)
    with pytest.raises(RuntimeError, match="scores must be on the same device as boxes"):
        jetops.fused_attn_nms(boxes.to(cuda), scores, attn_map.to(cuda), 0.5)
    with pytest.raises(RuntimeError, match="scores must be on the same device as boxes"):
        jetops.fused_attn_nms(boxes, scores.to(cuda), attn_map, 0.5)


def test_the_largest_number_of_boxes(cuda_device):
    count = 16384
    boxes, scores, _ = random_case(64, seed=5)
    boxes = boxes.repeat(count // 64, 1).to(cuda_device)
    scores = torch.linspace(1.0, 0.5, count, device=cuda_device)
    attn_map = torch.full((count, count), 1.0 / count, device=cuda_device)
    keep, weighted = jetops.fused_attn_nms_scored(boxes, scores, attn_map, 0.5)
    assert torch.equal(keep.cpu(), reference.greedy_nms(boxes, weighted, 0.5))


def test_gelu_of_more_elements_than_32_bits_can_count(cuda_device):
    count = 2**32 + 5
    if torch.cuda.get_device_properties(cuda_device).total_memory < 24 * 2**30:
        pytest.skip("needs 24 GiB of GPU memory")
    x = torch.full((count,), -1.0, dtype=torch.float16, device=cuda_device)
    x[-3:] = 1.0
    y = jetops.gelu(x)
    assert y[-3:].cpu().tolist() == pytest.approx([0.8413] * 3, rel=1e-3)
    assert y[2**31].item() == pytest.approx(-0.1587, rel=1e-3)


def test_gelu_gradient_of_more_elements_than_32_bits_can_count(cuda_device):
    count = 2**32 + 5
    if torch.cuda.get_device_properties(cuda_device).total_memory < 48 * 2**30:
        pytest.skip("needs 48 GiB of GPU memory")
    x = torch.zeros(count, dtype=torch.float16, device=cuda_device)
    x[-3:] = 30.0
    slope = torch.ops.jetops.gelu_backward(torch.ones_like(x), x)
    assert slope[-4:].cpu().tolist() == [0.5, 1.0, 1.0, 1.0]
    assert slope[2**31].item() == 0.5


def test_hundred_runs_give_the_same_bits(cuda_device):
    case = [tensor.to(cuda_device) for tensor in random_case(2000, seed=8)]
    x = torch.randn(300, 1000, device=cuda_device).bfloat16()
    bias, grad_y = torch.randn(1000, device=cuda_device).bfloat16(), torch.randn_like(x)
    seed = torch.tensor([5, 6], device=cuda_device)

    def run_all():
        ops = torch.ops.jetops
        return [
            *ops.fused_attn_nms_scored(*case, 0.5),
            ops.gelu(x),
            ops.gelu_backward(grad_y, x),
            ops.bias_gelu_dropout(x, bias, seed, 0.5),
            *ops.bias_gelu_dropout_backward(grad_y, x, bias, seed, 0.5),
        ]

    first = run_all()
    for _ in range(100):
        for once, again in zip(first, run_all()):
            assert torch.equal(once, again)


def test_dropout_is_new_in_every_replay_of_a_graph(cuda_device):
    with torch.cuda.device(cuda_device):
        x = torch.ones(64, 512, device=cuda_device)
        bias = torch.zeros(512, device=cuda_device)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            jetops.bias_gelu_dropout(x, bias, 0.5)
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = jetops.bias_gelu_dropout(x, bias, 0.5)
        masks = []
        for _ in range(3):
            graph.replay()
            masks.append(y.cpu() == 0)
    assert not torch.equal(masks[0], masks[1])
    assert not torch.equal(masks[1], masks[2])
    assert all(0.45 < mask.float().mean() < 0.55 for mask in masks)


def test_a_captured_training_step_drops_the_same_in_both_directions(cuda_device):
    with torch.cuda.device(cuda_device):
        x = torch.zeros(200, 256, device=cuda_device, requires_grad=True)
        bias = torch.zeros(256, device=cuda_device, requires_grad=True)

        def step():
            x.grad = bias.grad = None
            y = jetops.bias_gelu_dropout(x + 1.0, bias, 0.5)
            y.sum().backward()
            return y

        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            step()
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            y = step()
        kept = []
        for _ in range(3):
            graph.replay()
            kept.append(y.detach().cpu() != 0)
            assert torch.equal(x.grad.cpu() != 0, kept[-1])
            slope = 2.0 * float(reference.gelu_slope(torch.tensor([1.0])))
            expected = kept[-1].double().sum(0) * slope
            torch.testing.assert_close(bias.grad.cpu().double(), expected, rtol=1e-5, atol=0)
    assert not torch.equal(kept[0], kept[1])
    assert not torch.equal(kept[1], kept[2])


def kept_at(element, seed, p, bits):
    """Whether dropout keeps one element, by the reference's random numbers."""
    in_chunk = 128 // bits
    words = reference.philox(seed[0], seed[1] << 64 | element // in_chunk)
    place = element % in_chunk
    share = words[place] if bits == 32 else words[place // 2] >> 16 * (place % 2) & 0xFFFF
    return share >= round(p * 2.0**bits)


def test_dropout_of_more_elements_than_32_bits_can_count(cuda_device):
    rows, columns = 2**20 + 1, 4096
    if torch.cuda.get_device_properties(cuda_device).total_memory < 48 * 2**30:
        pytest.skip("needs 48 GiB of GPU memory")
    x = torch.ones(rows, columns, dtype=torch.float16, device=cuda_device)
    bias = torch.zeros(columns, dtype=torch.float16, device=cuda_device)
    seed = torch.tensor([3, 4], device=cuda_device)
    for offset in (0, columns - 1):  # in packs and, one column less, element by element
        if offset:
            x = x.flatten()[: rows * offset].reshape(rows, offset)
            bias = bias[:offset].clone()
        y = torch.ops.jetops.bias_gelu_dropout(x, bias, seed, 0.5)
        grad_x, _ = torch.ops.jetops.bias_gelu_dropout_backward(x, x, bias, seed, 0.5)
        first = (rows - 2) * x.shape[1]
        wanted = [kept_at(first + index, (3, 4), 0.5, 16) for index in range(2 * x.shape[1])]
        wanted = torch.tensor(wanted).reshape(2, -1)
        assert torch.equal(y[-2:].cpu() != 0, wanted)
        assert torch.equal(grad_x[-2:].cpu() != 0, wanted)


def test_dropout_is_the_same_on_cpu_and_cuda(cuda_device):
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        for shape in [(50, 96), (33, 37), (4, 5000)]:
            x, bias = torch.ones(shape, dtype=dtype), torch.ones(shape[1], dtype=dtype)
            seed = torch.tensor([11, 22])
            on_cpu = jetops.bias_gelu_dropout(x, bias, 0.3, seed=seed)
            placed = [tensor.to(cuda_device) for tensor in (x, bias, seed)]
            on_gpu = jetops.bias_gelu_dropout(placed[0], placed[1], 0.3, seed=placed[2]).cpu()
            assert torch.equal(on_cpu == 0, on_gpu == 0)


def test_bias_gradient_of_many_rows(cuda_device):
    """More blocks than one: their sums are joined by a second kernel."""
    for rows, columns, dtype in [(20000, 64, torch.bfloat16), (3000, 2056, torch.float32),
                                 (40000, 3, torch.float16)]:  # fmt: skip
        x = torch.randn(rows, columns, device=cuda_device).to(dtype)
        bias = torch.randn(columns, device=cuda_device).to(dtype)
        grad_y = torch.rand(rows, columns, device=cuda_device).to(dtype)
        seed = torch.tensor([1, 2], device=cuda_device)
        _, grad_bias = torch.ops.jetops.bias_gelu_dropout_backward(grad_y, x, bias, seed, 0.0)
        slope = reference.gelu_slope(x.float() + bias.float())
        expected = (grad_y.double().cpu() * slope).sum(0)
        rtol = {torch.float32: 2e-5, torch.float16: 1e-3, torch.bfloat16: 8e-3}[dtype]
        torch.testing.assert_close(grad_bias.cpu().double(), expected, rtol=rtol, atol=1e-2)

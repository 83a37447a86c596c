"""What only a GPU can get wrong: streams, devices, graphs, large inputs."""

import pytest
import torch
from test_fused_attn_nms import random_case

import jetops
from jetops import reference


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

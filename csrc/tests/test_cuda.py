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

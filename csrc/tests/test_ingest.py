"""FrameIngest: every frame once and whole, in order; bounded; errors and shutdown."""

import threading
import time

import pytest
import torch

from jetops import FrameIngest, IngestError


def numbered(count, shape=(4, 6)):
    return (torch.full(shape, index, dtype=torch.float32) for index in range(count))


def test_frames_come_in_order_and_whole(device):
    with FrameIngest(numbered(20), device) as frames:
        seen = [(frame.index, frame.tensor.clone().cpu()) for frame in frames]
    assert [index for index, _ in seen] == list(range(20))
    for index, tensor in seen:
        assert torch.equal(tensor, torch.full((4, 6), index, dtype=torch.float32))


def test_frames_are_on_the_device(device):
    with FrameIngest(numbered(1), device) as frames:
        assert next(frames).tensor.device == torch.device(device)


def test_a_function_is_a_source(device):
    left = list(numbered(3))
    with FrameIngest(lambda: left.pop(0) if left else None, device) as frames:
        assert len(list(frames)) == 3


def test_arrays_of_numpy_are_frames(device):
    numpy = pytest.importorskip("numpy")
    arrays = [numpy.full((2, 3), value, dtype=numpy.uint8) for value in (7, 8)]
    with FrameIngest(arrays, device) as frames:
        assert [frame.tensor.cpu().unique().tolist() for frame in frames] == [[7], [8]]


def test_no_more_frames_are_read_than_there_are_buffers(device):
    asked = []

    def read():
        asked.append(len(asked))
        return torch.zeros(2)

    with FrameIngest(read, device, depth=3) as frames:
        frame = next(frames)
        time.sleep(0.3)
        # one is with the consumer and two are ready; none may be read into a buffer in use
        assert len(asked) == 3
        assert frame.index == 0
        next(frames)


def test_a_slow_consumer_sees_its_frame_unchanged(device):
    with FrameIngest(numbered(10, (256, 256)), device, depth=2) as frames:
        for frame in frames:
            before = frame.tensor.clone()
            time.sleep(0.02)
            assert torch.equal(frame.tensor, before)
            assert frame.tensor[0, 0].item() == frame.index


def test_an_error_of_the_source_is_raised_after_the_frames_before_it(device):
    def broken():
        yield torch.zeros(2)
        yield torch.ones(2)
        raise OSError("camera unplugged")

    seen = []
    with FrameIngest(broken(), device) as frames, pytest.raises(OSError, match="camera unplugged"):
        for frame in frames:
            seen.append(frame.index)
    assert seen == [0, 1]


def test_a_frame_of_another_shape_is_refused(device):
    frames_in = [torch.zeros(2, 3), torch.zeros(3, 2)]
    with FrameIngest(frames_in, device) as frames:
        next(frames)
        with pytest.raises(
            IngestError, match=r"frame 1 is .* \[3, 2\], but the first one was .* \[2, 3\]"
        ):
            next(frames)


def test_a_frame_of_another_dtype_is_refused(device):
    with FrameIngest([torch.zeros(2), torch.zeros(2).int()], device) as frames:
        next(frames)
        with pytest.raises(IngestError, match="torch.int32"):
            next(frames)


def test_an_empty_source(device):
    with FrameIngest([], device) as frames:
        assert list(frames) == []


def test_leaving_early_ends_the_worker(device):
    before = threading.active_count()
    with FrameIngest(iter(lambda: torch.zeros(2), None), device) as frames:
        next(frames)
    assert threading.active_count() == before
    with pytest.raises(IngestError, match="closed"):
        next(frames)
    frames.close()


def test_an_error_in_the_loop_closes_too(device):
    before = threading.active_count()
    with pytest.raises(ZeroDivisionError), FrameIngest(numbered(5), device) as frames:
        for _ in frames:
            raise ZeroDivisionError
    assert threading.active_count() == before


def test_depth_is_checked():
    with pytest.raises(ValueError, match="depth must be at least 2"):
        FrameIngest([], "cpu", depth=1)


def test_copies_wait_for_the_computation_on_the_gpu(cuda_device):
    """The consumer queues slow work and takes the next frames at once, without waiting for it."""
    with torch.cuda.device(cuda_device), FrameIngest(
        numbered(8, (512, 512)), cuda_device
    ) as frames:
        results = []
        for frame in frames:
            torch.cuda._sleep(20_000_000)
            results.append(frame.tensor.sum() / frame.tensor.numel())
        assert [result.item() for result in results] == [float(index) for index in range(8)]


def test_the_consumer_does_not_wait_for_the_gpu(cuda_device):
    with torch.cuda.device(cuda_device), FrameIngest(numbered(2), cuda_device) as frames:
        next(frames)
        torch.cuda._sleep(2_000_000_000)
        started = time.monotonic()
        next(frames)
        taken = time.monotonic() - started
        torch.cuda.synchronize()
        assert taken < 0.3 < time.monotonic() - started

"""FrameIngest: every frame once and whole, in order; bounded; errors and shutdown."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch

from jetops import FrameIngest, IngestError


def numbered(count, shape=(4, 6)):
    return (torch.full(shape, index, dtype=torch.float32) for index in range(count))


def endless():
    return iter(lambda: torch.zeros(2), None)


def workers():
    return [thread for thread in threading.enumerate() if thread.name == "jetops-ingest"]


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
    with FrameIngest(endless(), device) as frames:
        for _ in frames:
            break
    assert workers() == []
    with pytest.raises(IngestError, match="closed"):
        next(frames)
    frames.close()


def test_an_error_in_the_loop_closes_too(device):
    with pytest.raises(ZeroDivisionError), FrameIngest(numbered(5), device) as frames:
        for _ in frames:
            raise ZeroDivisionError
    assert workers() == []


def test_one_that_nobody_holds_any_more_ends_too(device):
    for _ in FrameIngest(endless(), device):
        break
    gc.collect()
    for worker in workers():
        worker.join(10)
    assert workers() == []


@pytest.mark.parametrize("taken", [0, 1, 3])
def test_a_generator_that_is_left_early_is_closed_by_the_thread_that_ran_it(device, taken):
    threads = []

    def camera():
        threads.append(threading.current_thread())
        try:
            while True:
                yield torch.zeros(2)
        finally:
            threads.append(threading.current_thread())

    with FrameIngest(camera(), device) as frames:
        for _ in range(taken):
            next(frames)
        while not threads:
            time.sleep(0.001)
    assert len(threads) == 2
    assert threads[0] is threads[1] is not threading.current_thread()


def test_a_generator_is_closed_after_a_frame_that_does_not_fit(device):
    ends = []

    def camera():
        try:
            yield torch.zeros(2)
            yield torch.zeros(3)
        finally:
            ends.append(True)

    with FrameIngest(camera(), device) as frames, pytest.raises(IngestError):
        list(frames)
    assert ends == [True]


def test_what_a_generator_raises_when_it_is_closed_comes_out_of_close(device):
    def camera():
        try:
            while True:
                yield torch.zeros(2)
        finally:
            raise OSError("the driver hangs")

    frames = FrameIngest(camera(), device)
    next(frames)
    with pytest.raises(OSError, match="the driver hangs"):
        frames.close()
    frames.close()


def test_an_error_behind_frames_that_nobody_took_is_dropped_with_them(device):
    def broken():
        yield torch.zeros(2)
        raise OSError("camera unplugged")

    with FrameIngest(broken(), device) as frames:
        frames._worker.thread.join(10)
    assert workers() == []


def test_after_the_end_and_after_an_error_there_is_nothing_more(device):
    def broken():
        yield torch.zeros(2)
        raise OSError

    with FrameIngest(broken(), device) as frames:
        next(frames)
        with pytest.raises(OSError):
            next(frames)
        assert list(frames) == []
    with FrameIngest(numbered(1), device) as frames:
        assert len(list(frames)) == 1
        assert list(frames) == []


def test_ctrl_c_ends_the_wait_for_a_frame_and_the_worker(device):
    def slow():
        yield torch.zeros(2)
        time.sleep(1.0)
        yield torch.zeros(2)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    press = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    try:
        with pytest.raises(KeyboardInterrupt), FrameIngest(slow(), device) as frames:
            next(frames)
            press.start()
            started = time.monotonic()
            next(frames)
    finally:
        press.join()
        signal.signal(signal.SIGINT, before)
    assert 0.2 < time.monotonic() - started < 5
    assert workers() == []


def test_an_interpreter_ends_with_one_that_was_never_closed(device):
    code = (
        "import torch\nfrom jetops import FrameIngest\n"
        f"frames = FrameIngest(iter(lambda: torch.zeros(9), None), {device!r})\nnext(frames)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        check=False,
        cwd=os.path.dirname(__file__),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    assert (done.returncode, done.stdout.decode()) == (0, "")


def test_wrong_arguments_are_refused(device):
    with pytest.raises(ValueError, match="depth must be at least 2, .*, got 1"):
        FrameIngest([], device, depth=1)
    with pytest.raises(ValueError, match="device must be a CPU or CUDA device, got meta"):
        FrameIngest([], "meta")
    message = "frame 0 is on meta; a source gives frames on the CPU"
    with FrameIngest([torch.zeros(2, device="meta")], device) as frames, pytest.raises(
        IngestError, match=message
    ):
        next(frames)
    assert workers() == []


@pytest.mark.parametrize("source", [7, None, "video.mp4", b"video", {"left": torch.zeros(2)}])
def test_what_is_no_source_is_refused(device, source):
    message = "an iterable of frames, or a function .*, got a " + type(source).__name__
    with pytest.raises(TypeError, match=message):
        FrameIngest(source, device)
    assert workers() == []


def test_a_generator_function_that_was_not_called_is_refused(device):
    def camera():
        yield torch.zeros(2)

    with pytest.raises(TypeError, match=r"generator function; call it: FrameIngest\(camera\(\), "):
        FrameIngest(camera, device)
    assert workers() == []


@pytest.mark.parametrize("frame", [(0.5, 0.5), [1, 2], 3.0, "frame", {}, range(3), object(), b"\0"])
def test_what_is_no_array_is_no_frame(device, frame):
    name = type(frame).__name__
    message = f"frame 1 is of type {name}, and a frame has to be a tensor or an array of NumPy"
    with FrameIngest([torch.zeros(2), frame], device) as frames:
        next(frames)
        with pytest.raises(IngestError, match=message):
            next(frames)


def test_a_read_like_opencvs_is_told_how_to_become_a_source(device):
    images = iter([(True, torch.ones(2)), (False, None)])

    def read():
        ok, image = next(images)
        return image if ok else None

    message = (
        r"frame 0 is of type tuple.* returns \(ok, image\), as OpenCV's does, give a function that"
    )
    with FrameIngest(lambda: (True, torch.ones(2)), device) as frames, pytest.raises(
        IngestError, match=message
    ):
        next(frames)
    with FrameIngest(read, device) as frames:
        assert [frame.tensor.tolist() for frame in frames] == [[1.0, 1.0]]


@pytest.mark.parametrize("after", [[], [torch.zeros(2)]])
def test_none_ends_the_frames_of_a_function_alone(device, after):
    with FrameIngest([torch.zeros(2), None] + after, device) as frames:
        next(frames)
        with pytest.raises(IngestError, match="frame 1 is None.* an iterable has to leave it out"):
            next(frames)


@pytest.mark.parametrize("change", [lambda a: a[::-1], lambda a: a.astype(str)])
def test_an_array_that_torch_does_not_take_is_told_with_its_number(device, change):
    numpy = pytest.importorskip("numpy")
    frame = change(numpy.zeros((2, 3)))
    message = r"frame 0 is of type ndarray, and torch makes no tensor of it: .* numpy.ascontiguous"
    with FrameIngest([frame], device) as frames, pytest.raises(IngestError, match=message):
        next(frames)


def test_arrays_of_any_library_are_frames(device):
    class Array:
        def __dlpack__(self, **options):
            return torch.ones(2).__dlpack__(**options)

        def __dlpack_device__(self):
            return torch.ones(2).__dlpack_device__()

    try:
        torch.as_tensor(Array())
    except (RuntimeError, TypeError):
        pytest.skip("this torch takes no such arrays")
    with FrameIngest([Array()], device) as frames:
        assert next(frames).tensor.tolist() == [1.0, 1.0]


def test_what_has_items_and_no_iterator_is_a_source(device):
    class Recording:
        def __getitem__(self, index):
            return [torch.zeros(2), torch.ones(2)][index]

    with FrameIngest(Recording(), device) as frames:
        assert len(list(frames)) == 2


@pytest.mark.parametrize("depth", [2.5, 2.0, float("nan"), float("inf"), True, "2", None])
def test_a_depth_that_is_no_integer_is_refused(device, depth):
    with pytest.raises(TypeError, match="depth must be an integer, got"):
        FrameIngest([], device, depth=depth)
    assert workers() == []


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what there is to do without CUDA")
def test_without_cuda_the_error_says_how_to_stay_on_the_cpu():
    with pytest.raises(RuntimeError, match="torch sees no CUDA device; device='cpu' keeps them"):
        FrameIngest(numbered(2))
    assert workers() == []


def quantized():
    return torch.quantize_per_tensor(torch.zeros(2), 0.1, 0, torch.quint8)


@pytest.mark.filterwarnings("ignore")  # torch's, of quantized tensors that go away
@pytest.mark.parametrize(
    ("make", "kind"),
    [(lambda: torch.eye(2).to_sparse(), "torch.sparse_coo"), (quantized, "quantized")],
)
def test_frames_that_are_not_dense_are_refused(device, make, kind):
    with FrameIngest([make()], device) as frames, pytest.raises(
        IngestError, match=f"frame 0 is {kind}; a source gives dense frames"
    ):
        next(frames)


def test_frames_that_require_grad_are_detached(device):
    with FrameIngest((frame.requires_grad_() for frame in numbered(5)), device) as frames:
        for frame in frames:
            assert not frame.tensor.requires_grad and frame.tensor.grad_fn is None
            assert frame.tensor[0, 0].item() == frame.index


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_process_is_told_that_nobody_reads(device):
    """By itself in a process: a test run with its threads is not to be forked."""
    code = f"""
import os, torch
from jetops import FrameIngest, IngestError
frames = FrameIngest(iter(lambda: torch.zeros(9), None), {device!r})
next(frames)
frames._worker.changed.acquire()  # as the worker may hold it at that moment
child = os.fork()
if child == 0:
    try:
        next(frames)
    except IngestError as error:
        print(error, flush=True)
    frames.close()
    raise SystemExit(7)
frames._worker.changed.release()
_, status = os.waitpid(child, 0)
assert status == 7 << 8, status
next(frames)
frames.close()
"""
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        check=False,
        cwd=os.path.dirname(__file__),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=120,
    )
    text = done.stdout.decode()
    assert done.returncode == 0, text
    assert "belongs to the process that this one was forked from" in text


SLOW = 20_000_000  # clock cycles, about 10 ms
COUNT = 3 * 2**20  # elements that get a memory block of their own


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_no_buffer_is_filled_before_its_reader_is_done(cuda_device, depth):
    """The consumer queues slow work and takes the next frames at once, without waiting for it.

    Copies into a device buffer queue up behind that work, so a pinned buffer that was filled again
    without waiting for its copy would bring a later frame, as would a copy that did not wait.
    """
    with torch.cuda.device(cuda_device), FrameIngest(
        numbered(16, (512, 512)), cuda_device, depth
    ) as frames:
        results = []
        for frame in frames:
            torch.cuda._sleep(SLOW)
            results.append(torch.stack([frame.tensor.min(), frame.tensor.max()]))
        for index, result in enumerate(results):
            assert result.tolist() == [index, index]


def test_host_buffers_are_pinned(cuda_device):
    with FrameIngest(numbered(3), cuda_device) as frames:
        next(frames)
        assert frames._held.host.is_pinned()


def test_the_copy_stream_waits_for_no_work_of_the_consumer(cuda_device):
    """The next frame is on the GPU while the computation of the one before still runs."""
    with torch.cuda.device(cuda_device), FrameIngest(numbered(3), cuda_device, 3) as frames:
        next(frames)
        busy = torch.cuda.Event()
        torch.cuda._sleep(100 * SLOW)
        busy.record()
        next(frames)
        frames._held.copied.synchronize()
        assert not busy.query()


def test_the_computation_waits_for_its_copy(cuda_device):
    stalled = threading.Event()

    def camera():
        stalled.wait(60)
        yield torch.full((COUNT,), 7.0)

    with torch.cuda.device(cuda_device), FrameIngest(camera(), cuda_device) as frames:
        with torch.cuda.stream(frames._worker._stream):
            torch.cuda._sleep(20 * SLOW)
        stalled.set()
        frame = next(frames).tensor
        assert [frame.min().item(), frame.max().item()] == [7.0, 7.0]


def test_work_on_a_side_stream(cuda_device):
    with torch.cuda.device(cuda_device), torch.cuda.stream(torch.cuda.Stream()):
        with FrameIngest(numbered(12, (512, 512)), cuda_device) as frames:
            results = []
            for frame in frames:
                torch.cuda._sleep(SLOW)
                results.append(frame.tensor.sum() / frame.tensor.numel())
        assert [result.item() for result in results] == [float(index) for index in range(12)]


def test_memory_that_is_still_read_is_not_taken_for_a_frame(cuda_device):
    """The allocator gives freed memory out again at once, in the order of its stream alone."""
    with torch.cuda.device(cuda_device):
        x = torch.ones(COUNT, device=cuda_device)
        torch.cuda._sleep(20 * SLOW)
        total = x.sum()
        del x
        with FrameIngest([torch.zeros(COUNT)] * 3, cuda_device) as frames:
            next(frames)
            frames._held.copied.synchronize()
            assert total.item() == COUNT


@pytest.mark.parametrize("side", [False, True])
def test_memory_of_a_frame_is_not_given_away_while_it_is_read(cuda_device, side):
    with torch.cuda.device(cuda_device):
        consumer = torch.cuda.Stream() if side else torch.cuda.current_stream()
        with torch.cuda.stream(consumer), FrameIngest([torch.ones(COUNT)], cuda_device) as frames:
            frame = next(frames)
            torch.cuda._sleep(20 * SLOW)
            total = frame.tensor.sum()
        copies = frames._worker._stream
        del frame, frames
        gc.collect()
        for stream in (copies, torch.cuda.Stream(), torch.cuda.default_stream()):
            if stream != consumer:  # what is queued on the same stream comes after the sum
                with torch.cuda.stream(stream):
                    taken = [torch.zeros(COUNT, device=cuda_device) for _ in range(4)]
                    del taken
        torch.cuda.synchronize()
        assert total.item() == COUNT


def test_the_consumer_does_not_wait_for_the_gpu(cuda_device):
    with torch.cuda.device(cuda_device), FrameIngest(numbered(2), cuda_device) as frames:
        next(frames)
        torch.cuda._sleep(100 * SLOW)
        started = time.monotonic()
        next(frames)
        frames.close()
        taken = time.monotonic() - started
        torch.cuda.synchronize()
        assert taken < 0.3 < time.monotonic() - started

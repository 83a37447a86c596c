"""Camera frames to the GPU, one ahead of the computation.

A worker thread reads frames, puts each into a pinned host buffer and queues its copy on a stream of its
own; the consumer computes on its stream meanwhile. Events join the two: the computation waits for its
copy on the GPU, and a buffer is not written again before its last reader is done. The consumer's
thread never waits for the GPU here.
"""

import atexit
import inspect
import operator
import os
import threading
import time
import weakref
from collections import deque
from typing import Any, Callable, Iterable, Union

import torch

Source = Union[Iterable[Any], Callable[[], Any]]
# What says that its class is one of arrays: of NumPy, on a GPU, of any other library.
ARRAY_INTERFACES = ("__array_interface__", "__cuda_array_interface__", "__dlpack__")
_END = object()  # in the place of a frame: there is none any more


class IngestError(RuntimeError):
    """A frame is none or does not fit the first one, or the ingest was used after it was closed."""


class Frame:
    """One frame on the device.

    Attributes:
        tensor: what the source gave, on the device. Its memory is used again once the next frame
            has been taken: clone what has to stay.
        index: the number of the frame, from 0.
        read_at: time.monotonic() when the source had delivered it, in seconds.
    """

    __slots__ = ("index", "read_at", "tensor")

    def __init__(self, tensor, index, read_at):
        # type: (Tensor, int, float) -> None
        self.tensor = tensor
        self.index = index
        self.read_at = read_at


class _Slot:
    """A host buffer, its copy on the device, and the events that say who is done with which."""

    def __init__(self, like, stream):
        # type: (Tensor, Optional[torch.cuda.Stream]) -> None
        self.stream = stream
        if stream is None:
            self.host = self.device = torch.empty(like.shape, dtype=like.dtype)
            return
        # Allocated on the stream that writes to it first: memory of another stream may have just
        # been given back there, with work on it still queued.
        with torch.cuda.stream(stream):
            self.host = torch.empty(like.shape, dtype=like.dtype, pin_memory=True)
            self.device = torch.empty(like.shape, dtype=like.dtype, device=stream.device)
        # The device buffer is filled, the host buffer free. The worker sleeps until then: a loop that
        # keeps the GPU busy would have it spin all the time otherwise.
        self.copied = torch.cuda.Event(blocking=True)
        self.computed = torch.cuda.Event()  # the device buffer is free
        self.used = False

    def fill(self, frame):
        # type: (Tensor) -> None
        """Take ``frame``. Called by the worker; waits for the host buffer, not for the computation."""
        if self.stream is None:
            self.host.copy_(frame)
            return
        if self.used:
            self.copied.synchronize()
        self.host.copy_(frame)
        with torch.cuda.stream(self.stream):
            if self.used:
                self.stream.wait_event(self.computed)
            self.device.copy_(self.host, non_blocking=True)
            self.copied.record(self.stream)
        self.used = True

    def hand_over(self):
        # type: () -> Tensor
        """The device buffer, for work that the caller's current stream is given from now on."""
        if self.stream is not None:
            consumer = torch.cuda.current_stream(self.stream.device)
            consumer.wait_event(self.copied)
            # Whoever drops the tensor last, its memory stays until that work is done.
            self.device.record_stream(consumer)
        return self.device

    def take_back(self):
        # type: () -> None
        if self.stream is not None:
            self.computed.record(torch.cuda.current_stream(self.stream.device))


class _Worker:
    """The thread that reads, and what it shares with the consumer.

    It does not know the FrameIngest, so that one which was dropped without close() is collected.
    """

    def __init__(self, source, stream, depth):
        # type: (Source, Optional[torch.cuda.Stream], int) -> None
        self._read, self._end_source = _opened(source)
        self._stream = stream
        self._depth = depth
        self._process = os.getpid()
        self.changed = threading.Condition()
        self.free = deque()  # type: deque
        self.ready = deque()  # type: deque
        self.ended = False  # the worker delivers no more
        self.stopping = False  # the consumer wants no more
        self.error = None  # type: Optional[BaseException]
        self.error_of_closing = None  # type: Optional[BaseException]
        self.thread = threading.Thread(target=self._work, name="jetops-ingest", daemon=True)
        self.thread.start()

        _workers.add(self)

    def is_elsewhere(self):
        # type: () -> bool
        """Whether this is the copy in a forked process: it has no thread, and its lock may be held."""
        return self._process != os.getpid()

    def stop(self):
        # type: () -> None
        if self.is_elsewhere():
            return
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def _work(self):
        # type: () -> None
        try:
            self._deliver_all()
        except BaseException as exc:  # noqa: BLE001  the consumer raises it
            self.error = exc
        try:
            self._end_source()
        except BaseException as exc:  # noqa: BLE001  close() raises it
            self.error_of_closing = exc
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def _deliver_all(self):
        # type: () -> None
        index = made = 0
        like = None  # type: Optional[Tensor]
        while True:
            with self.changed:
                while not self.free and made == self._depth and not self.stopping:
                    self.changed.wait()
                if self.stopping:
                    return
                slot = self.free.popleft() if self.free else None
            frame = self._read()
            read_at = time.monotonic()
            if frame is _END:
                return
            frame = _tensor_of(frame, index)
            _check(frame, index, like)
            if slot is None:
                slot = _Slot(frame, self._stream)
                made += 1
            like = slot.host
            slot.fill(frame)
            with self.changed:
                self.ready.append((slot, index, read_at))
                self.changed.notify_all()
            index += 1


_workers = weakref.WeakSet()  # type: weakref.WeakSet
SECONDS_TO_END = 5.0


@atexit.register
def _end_workers():
    # type: () -> None
    """A thread that is inside torch when the interpreter goes away takes the process with it."""
    here = [worker for worker in list(_workers) if not worker.is_elsewhere()]
    for worker in here:
        worker.stop()
    for worker in here:
        worker.thread.join(SECONDS_TO_END)


class FrameIngest:
    """An iterator over the frames of a source, on a device.

        with FrameIngest(camera.read, device="cuda") as frames:
            for frame in frames:
                detections = model(frame.tensor)

    All frames have the shape and dtype of the first one. At most ``depth`` frames are held, the one that
    the consumer has included; when all are taken, the worker waits, and a camera that goes on meanwhile
    drops frames as it would without this class.

    The work on a frame belongs on the stream that is current when it is taken and still is when the
    next one is taken; work on other streams has to be joined to that one.

    OpenCV's read returns two values, and of those this makes a source:

        def read():
            ok, image = capture.read()
            return image if ok else None

    Args:
        source: an iterable of frames, or a function that returns one at each call and None after
            the last. A frame is a tensor on the CPU or an array that torch.as_tensor takes without a
            copy, such as one of NumPy; dense, and a gradient does not reach it. The source is called
            by the worker thread alone, which also closes a generator that is left early, and nothing
            else.
        device: where the frames go, "cpu" or a CUDA device. On the CPU they are copied in the worker
            thread, without streams.
        depth: buffers, an integer of at least 2; memory for so many frames is taken on host and
            device each.

    Raises:
        TypeError: ``depth`` is no integer, or ``source`` is neither iterable nor callable, or it is a
            text, a dict or a generator function that was not called.
        ValueError: ``depth`` is below 2, or ``device`` is neither a CPU nor a CUDA device.
        RuntimeError: ``device`` is a CUDA device, and torch sees none.

    Raises, from the iterator, whatever the source raised, in the consumer's thread and after the
    frames that were read before it; IngestError for a frame that is no tensor or array, of another
    shape or dtype, not dense or not on the CPU, and in a forked process, where nobody reads.
    """

    def __init__(self, source, device="cuda", depth=2):
        # type: (Source, Union[str, torch.device], int) -> None
        depth = _checked_depth(depth)
        device = torch.device(device)
        if device.type not in ("cpu", "cuda"):
            raise ValueError(f"device must be a CPU or CUDA device, got {device}")
        if device.type == "cuda" and not torch.cuda.is_available():
            raise RuntimeError(
                f"FrameIngest was to bring frames to {device}, but torch sees no CUDA device; "
                "device='cpu' keeps them on the CPU"
            )
        stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        self._held = None  # type: Optional[_Slot]
        self._worker = _Worker(source, stream, depth)
        weakref.finalize(self, self._worker.stop).atexit = False  # see _end_workers

    def __enter__(self):
        # type: () -> FrameIngest
        return self

    def __exit__(self, *_):
        # type: (object) -> None
        self.close()

    def __iter__(self):
        # type: () -> Iterator[Frame]
        return self

    def __next__(self):
        # type: () -> Frame
        worker = self._worker
        if worker.is_elsewhere():
            raise IngestError(
                "this FrameIngest belongs to the process that this one was forked from, and nobody "
                "reads frames here; make a new one after the fork"
            )
        self._release()
        with worker.changed:
            if worker.stopping:
                raise IngestError("this FrameIngest is closed; make a new one for the source")
            while not worker.ready and not worker.ended:
                worker.changed.wait()
            if not worker.ready:
                if worker.error is not None:
                    error, worker.error = worker.error, None
                    raise error
                raise StopIteration
            slot, index, read_at = worker.ready.popleft()
        self._held = slot
        return Frame(slot.hand_over(), index, read_at)

    def close(self):
        # type: () -> None
        """Stop reading, and wait until the worker has ended. Safe to call again.

        The worker finishes the read that it is in; a source that never returns is never left. Frames
        that were read ahead are dropped, and with them an error that came after them.

        In a forked process it does nothing: the frames are the other one's.

        Raises what a generator raised when it was closed.
        """
        worker = self._worker
        if worker.is_elsewhere():
            return
        self._release()
        worker.stop()
        if threading.current_thread() is not worker.thread:
            worker.thread.join()
        worker.free.clear()
        worker.ready.clear()
        if worker.error_of_closing is not None:
            error, worker.error_of_closing = worker.error_of_closing, None
            raise error

    def _release(self):
        # type: () -> None
        slot, self._held = self._held, None
        if slot is None:
            return
        slot.take_back()
        with self._worker.changed:
            self._worker.free.append(slot)
            self._worker.changed.notify_all()


def _checked_depth(depth):
    # type: (object) -> int
    """Anything but an integer would never equal the number of buffers, which then has no bound."""
    if isinstance(depth, bool) or not hasattr(depth, "__index__"):
        raise TypeError(f"depth must be an integer, got {depth!r}")
    depth = operator.index(depth)
    if depth < 2:
        raise ValueError(f"depth must be at least 2, one to fill and one to use, got {depth}")
    return depth


def _opened(source):
    # type: (Source) -> tuple
    """How to read a frame of ``source``, and how to end it early.

    Raises:
        TypeError: it is no source.
    """
    if inspect.isgeneratorfunction(source):
        name = getattr(source, "__name__", "it")
        raise TypeError(f"source is a generator function; call it: FrameIngest({name}(), ...)")
    if callable(source):
        return (lambda: _frame_or_end(source())), _nothing
    try:
        iterator = None if isinstance(source, (str, bytes, dict)) else iter(source)
    except TypeError:
        iterator = None
    if iterator is None:
        raise TypeError(
            "source must be an iterable of frames, or a function that returns one at each call, got "
            f"a {type(source).__name__}"
        )
    end = iterator.close if inspect.isgenerator(iterator) else _nothing
    return (lambda: next(iterator, _END)), end


def _frame_or_end(frame):
    # type: (object) -> object
    return _END if frame is None else frame


def _nothing():
    # type: () -> None
    """What is left to do for a source that is no generator."""


def _tensor_of(frame, index):
    # type: (object, int) -> Tensor
    """Of an array only: torch would take a pair of numbers for a frame of two pixels."""
    kind = type(frame)
    if not isinstance(frame, torch.Tensor) and not any(hasattr(kind, i) for i in ARRAY_INTERFACES):
        raise IngestError(
            f"frame {index} is {'None' if frame is None else 'of type ' + kind.__name__}, and a frame "
            f"has to be a tensor or an array of NumPy{REMEDIES.get(kind, '')}"
        )
    try:
        return torch.as_tensor(frame).detach()
    except (RuntimeError, TypeError, ValueError) as exc:
        raise IngestError(
            f"frame {index} is of type {kind.__name__}, and torch makes no tensor of it: "
            f"{str(exc).rstrip('.')}; of an image or a view, numpy.ascontiguousarray(frame) makes an "
            "array that it takes"
        ) from exc


REMEDIES = {
    type(None): "; None ends the frames of a function, and an iterable has to leave it out",
    tuple: "; where read returns (ok, image), as OpenCV's does, give a function that returns the image, "
    "and None where ok is false",
}


def _check(frame, index, like):
    # type: (Tensor, int, Optional[Tensor]) -> None
    if frame.device.type != "cpu":
        raise IngestError(f"frame {index} is on {frame.device}; a source gives frames on the CPU")
    nested = getattr(frame, "is_nested", False)  # unknown to old versions of torch
    if frame.layout != torch.strided or frame.is_quantized or nested:
        kind = "nested" if nested else "quantized" if frame.is_quantized else str(frame.layout)
        raise IngestError(f"frame {index} is {kind}; a source gives dense frames")
    if like is not None and (frame.shape != like.shape or frame.dtype != like.dtype):
        raise IngestError(
            f"frame {index} is {_said(frame)}, but the first one was {_said(like)}; a source must "
            "keep to one shape and dtype"
        )


def _said(frame):
    # type: (Tensor) -> str
    return f"{frame.dtype} of sizes {list(frame.shape)}"

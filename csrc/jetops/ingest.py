"""Camera frames to the GPU, one ahead of the computation.

A worker thread reads frames, puts each into a pinned host buffer and queues its copy on a stream of its
own; the consumer computes on its stream meanwhile. Events join the two: the computation waits for its
copy on the GPU, and a buffer is not written again before its last reader is done. The consumer's
thread never waits for the GPU here.
"""

import threading
import time
from collections import deque
from typing import Any, Callable, Iterable, Union

import torch

Source = Union[Iterable[Any], Callable[[], Any]]


class IngestError(RuntimeError):
    """A frame does not fit the ones before it, or the ingest was used after it was closed."""


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

    def __init__(self, like, device):
        # type: (Tensor, torch.device) -> None
        self.on_gpu = device.type == "cuda"
        self.host = torch.empty(like.shape, dtype=like.dtype, pin_memory=self.on_gpu)
        if self.on_gpu:
            self.device = torch.empty(like.shape, dtype=like.dtype, device=device)
            self.copied = torch.cuda.Event()  # the device buffer is filled, the host buffer free
            self.computed = torch.cuda.Event()  # the device buffer is free
        else:
            self.device = self.host
        self.used = False

    def fill(self, frame, stream):
        # type: (Tensor, Optional[torch.cuda.Stream]) -> None
        """Take ``frame``. Called by the worker; waits for the host buffer, not for the computation."""
        if stream is None:
            self.host.copy_(frame)
            return
        if self.used:
            self.copied.synchronize()
        self.host.copy_(frame)
        with torch.cuda.stream(stream):
            if self.used:
                stream.wait_event(self.computed)
            self.device.copy_(self.host, non_blocking=True)
            self.copied.record(stream)
        self.used = True


class FrameIngest:
    """An iterator over the frames of a source, on a device.

        with FrameIngest(camera.read, device="cuda") as frames:
            for frame in frames:
                detections = model(frame.tensor)

    All frames have the shape and dtype of the first one. At most ``depth`` frames are held, the one that
    the consumer has included; when all are taken, the worker waits, and a camera that goes on meanwhile
    drops frames as it would without this class.

    Args:
        source: an iterable of frames, or a function that returns one at each call and None after
            the last. A frame is a tensor on the CPU, or what torch.as_tensor takes without a copy,
            such as an array of NumPy. The source is called by the worker thread alone.
        device: where the frames go. On the CPU they are copied in the worker thread, without
            streams.
        depth: buffers, at least 2; memory for so many frames is taken on host and device each.

    Raises, from the iterator, whatever the source raised, in the consumer's thread and after the
    frames that were read before it; IngestError for a frame of another shape or dtype.
    """

    def __init__(self, source, device="cuda", depth=2):
        # type: (Source, Union[str, torch.device], int) -> None
        if depth < 2:
            raise ValueError(f"depth must be at least 2, one to fill and one to use, got {depth}")
        self._read = source if callable(source) else _reader(source)
        self._device = torch.device(device)
        self._depth = depth
        self._stream = None  # type: Optional[torch.cuda.Stream]
        if self._device.type == "cuda":
            if self._device.index is None:
                self._device = torch.device("cuda", torch.cuda.current_device())
            self._stream = torch.cuda.Stream(self._device)
        self._changed = threading.Condition()
        self._free = deque()  # type: deque
        self._ready = deque()  # type: deque
        self._ended = False  # the worker delivers no more
        self._stopping = False  # the consumer wants no more
        self._error = None  # type: Optional[BaseException]
        self._held = None  # type: Optional[_Slot]
        self._worker = threading.Thread(target=self._work, name="jetops-ingest", daemon=True)
        self._worker.start()

    # -------------------------------------------------------------- the consumer's side

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
        self._release()
        with self._changed:
            if self._stopping:
                raise IngestError("this FrameIngest is closed; make a new one for the source")
            while not self._ready and not self._ended:
                self._changed.wait()
            if not self._ready:
                if self._error is not None:
                    error, self._error = self._error, None
                    raise error
                raise StopIteration
            slot, index, read_at = self._ready.popleft()
        self._held = slot
        if self._stream is not None:
            torch.cuda.current_stream(self._device).wait_event(slot.copied)
        return Frame(slot.device, index, read_at)

    def close(self):
        # type: () -> None
        """Stop reading, and wait until the worker has ended. Safe to call again.

        The worker finishes the read that it is in; a source that never returns is never left.
        """
        self._release()
        with self._changed:
            self._stopping = True
            self._changed.notify_all()
        if threading.current_thread() is not self._worker:
            self._worker.join()
        if self._stream is not None:
            self._stream.synchronize()  # no copy may be under way into memory that is given back
        self._free.clear()
        self._ready.clear()

    def _release(self):
        # type: () -> None
        slot, self._held = self._held, None
        if slot is None:
            return
        if self._stream is not None:
            slot.computed.record(torch.cuda.current_stream(self._device))
        with self._changed:
            self._free.append(slot)
            self._changed.notify_all()

    # -------------------------------------------------------------- the worker's side

    def _work(self):
        # type: () -> None
        try:
            self._deliver_all()
        except BaseException as exc:  # noqa: BLE001  the consumer raises it
            self._error = exc
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def _deliver_all(self):
        # type: () -> None
        index = made = 0
        like = None  # type: Optional[Tensor]
        while True:
            with self._changed:
                while not self._free and made == self._depth and not self._stopping:
                    self._changed.wait()
                if self._stopping:
                    return
                slot = self._free.popleft() if self._free else None
            frame = self._read()
            read_at = time.monotonic()
            if frame is None:
                return
            frame = torch.as_tensor(frame)
            if slot is None:
                slot = _Slot(frame, self._device)
                made += 1
            if like is None:
                like = slot.host
            if frame.shape != like.shape or frame.dtype != like.dtype:
                raise IngestError(
                    f"frame {index} is {_said(frame)}, but the first one was {_said(like)}; a source "
                    "must keep to one shape and dtype"
                )
            slot.fill(frame, self._stream)
            with self._changed:
                self._ready.append((slot, index, read_at))
                self._changed.notify_all()
            index += 1


def _said(frame):
    # type: (Tensor) -> str
    return f"{frame.dtype} of sizes {list(frame.shape)}"


def _reader(frames):
    # type: (Iterable[Any]) -> Callable[[], Any]
    iterator = iter(frames)
    return lambda: next(iterator, None)

"""Interruptions that are not lost.

Ctrl-C raises KeyboardInterrupt wherever the main thread happens to be. Where that is a destructor
or a weak reference's callback (HTTP connections have both), Python reports it and drops it, and the
program goes on as if nobody had asked.
"""

import concurrent.futures
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from types import FrameType
from typing import TypeVar

ResultT = TypeVar("ResultT")
POLL_SECONDS = 0.2
_NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
Handler = Callable[[int, FrameType | None], object]


@contextlib.contextmanager
def noticed() -> Iterator[threading.Event]:
    """Note in an event what interrupts the body, beside what is done about it anyway.

    Only the main thread gets signals; in any other one the event is never set.
    """
    event = threading.Event()
    if threading.current_thread() is not threading.main_thread():
        yield event
        return
    before: dict[signal.Signals, Handler] = {}
    for number in _NUMBERS:
        handler = signal.getsignal(number)
        if callable(handler):
            before[number] = handler
            signal.signal(number, _noting(event, handler))
    try:
        yield event
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def result(future: "Future[ResultT]", interrupted: threading.Event) -> ResultT:
    """Wait for a result.

    Raises:
        KeyboardInterrupt: there was an interruption, also one that was dropped.
    """
    while True:
        concurrent.futures.wait([future], timeout=POLL_SECONDS)
        if interrupted.is_set():
            raise KeyboardInterrupt
        if future.done():
            return future.result()


def _noting(event: threading.Event, handler: Handler) -> Handler:
    def note(number: int, frame: FrameType | None) -> None:
        event.set()
        handler(number, frame)

    return note

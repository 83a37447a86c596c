"""Work that is ended even where the process that does it is killed.

A child does it, and this process watches: a child that is gone without an answer is followed by
another one, which goes on from what is on the disk. Where this process is killed, the child ends
the work by itself. Both hold the lock of the folder.
"""

import contextlib
import json
import os
import signal
import sys
import traceback
from typing import Any, Callable, Dict, Iterator, Tuple

Tell = Callable[[str, Any], None]
Work = Callable[[Tell], Any]
TRIES = 5


def supervised(first: Work, again: Work, phase: Callable[[str], None]) -> Any:
    """Have a child do `first`, and if it is killed, others `again`; return the answer.

    Args:
        first: the work; what it returns has to be JSON.
        again: goes on with what `first` left on the disk.
        phase: is told the steps.

    Returns:
        The answer, or None where all of them were killed.
    """
    for work in (first, *[again] * (TRIES - 1)):
        answered, answer = _watch(work, phase)
        if answered:
            return answer
    return None


def _watch(work: Work, phase: Callable[[str], None]) -> Tuple[bool, Any]:
    read, write = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os.close(read)
        _in_child(work, write)
    os.close(write)
    with _passing_on(child):
        answered, answer = False, None
        for message in _messages(read):
            if message["kind"] == "phase":
                phase(message["value"])
            else:
                answered, answer = True, message["value"]
        os.waitpid(child, 0)
    _end_group(child)
    return answered, answer


def _in_child(work: Work, write: int) -> None:
    """Do the work in a session of its own, which no end of the link reaches."""
    status = 1
    try:
        os.setsid()

        def tell(kind: str, value: Any) -> None:
            line = json.dumps({"kind": kind, "value": value}).encode() + b"\n"
            # Where the watching process was killed, the work goes on.
            with contextlib.suppress(BrokenPipeError):
                os.write(write, line)

        tell("answer", work(tell))
        status = 0
    except BaseException:  # noqa: BLE001 - a defect is no reason to leave the device half changed
        _print_traceback()
    finally:
        os._exit(status)


def _print_traceback() -> None:
    # Perhaps nobody listens any more.
    with contextlib.suppress(OSError):
        traceback.print_exc()


def _messages(read: int) -> Iterator[Dict[str, Any]]:
    with os.fdopen(read, "rb") as stream:
        for line in stream:
            if line.endswith(b"\n"):
                yield json.loads(line.decode())


def _end_group(child: int) -> None:
    """End the docker command that a killed child has left, so that it cannot act later."""
    with contextlib.suppress(OSError):
        os.killpg(child, signal.SIGKILL)


@contextlib.contextmanager
def _passing_on(child: int) -> Iterator[None]:
    """Let a child decide what SIGTERM means while it works."""

    def pass_on(number: int, _: Any) -> None:
        with contextlib.suppress(OSError):
            os.kill(child, number)

    before = signal.signal(signal.SIGTERM, pass_on)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

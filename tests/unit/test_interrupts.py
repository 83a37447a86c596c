import os
import signal
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
from jetship.interrupts import noticed, result


class Dropping:
    """Something in whose destructor an interruption comes."""

    def __del__(self) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(0.01)  # the handler runs between two instructions


@pytest.fixture(autouse=True)
def _interruptible():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_an_interruption_that_python_drops_ends_the_waiting():
    with noticed() as interrupted:
        one = Dropping()
        del one
        with pytest.raises(KeyboardInterrupt):
            result(Future(), interrupted)


def test_the_result_comes_where_nobody_interrupts():
    with noticed() as interrupted, ThreadPoolExecutor(1) as thread:
        assert result(thread.submit(lambda: 7), interrupted) == 7
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_the_work_raises_is_raised():
    with noticed() as interrupted, ThreadPoolExecutor(1) as thread:
        failing = thread.submit(lambda: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            result(failing, interrupted)


def test_another_thread_has_no_signals():
    seen = []

    def body() -> None:
        with noticed() as interrupted:
            seen.append(interrupted.is_set())

    one = threading.Thread(target=body)
    one.start()
    one.join()
    assert seen == [False]

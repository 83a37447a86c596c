"""The sessions of a rollout: opened with patience, and all ended when somebody interrupts it."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeAlias

from jetship import proc
from jetship.fleet.model import Link, LinkError, LockedError, Outcome
from jetship.fleet.plan import PlannedDevice

Opener: TypeAlias = Callable[[PlannedDevice], Link]
FIRST_WAIT_SECONDS = 1.0
LONGEST_WAIT_SECONDS = 15.0
# A device is locked as long as `status` asks it, which are seconds.
LOCK_SECONDS = 10.0


class InterruptedRolloutError(Exception):
    """Somebody ended the rollout. What a device has begun it ends by itself."""


class SilentError(LinkError):
    """A device was not heard of again within the time that it may take."""


class Sessions:
    """Opens sessions; any thread may.

    Args:
        opener: opens one, or raises a LinkError.
        own: what the lock of a device says where this very rollout holds it: its release.
        wait: sleeps (for tests).
    """

    def __init__(
        self,
        opener: Opener,
        own: Callable[[PlannedDevice], str],
        wait: Callable[[threading.Event, float], object] = threading.Event.wait,
    ) -> None:
        self._opener = opener
        self._own = own
        self._wait = wait
        self._stopper = proc.Stopper()
        self._interrupted = threading.Event()

    def interrupt(self) -> None:
        """End all sessions, and let none begin."""
        self._interrupted.set()
        self._stopper.stop()

    def require_going_on(self) -> None:
        """Stop here where somebody has interrupted the rollout.

        Raises:
            InterruptedRolloutError: somebody has.
        """
        if self._interrupted.is_set():
            raise InterruptedRolloutError

    def pause(self, seconds: float) -> None:
        """Wait.

        Raises:
            InterruptedRolloutError: the rollout was interrupted.
        """
        self._wait(self._interrupted, seconds)
        self.require_going_on()

    @contextlib.contextmanager
    def session(self, device: PlannedDevice) -> Iterator[Link]:
        """Yield a session; a device that somebody asks for its state is waited for.

        Raises:
            LinkError: there is none, or it was cut.
            InterruptedRolloutError: the rollout was interrupted.
        """
        with self._as_interruption(), proc.with_stopper(self._stopper):
            link = self._patiently(device)
            with contextlib.closing(link):
                self.require_going_on()
                yield link

    def _patiently(self, device: PlannedDevice) -> Link:
        end = time.monotonic() + LOCK_SECONDS
        while True:
            self.require_going_on()
            try:
                return self._opener(device)
            except LockedError as error:
                passing = error.release in ("", self._own(device))
                if not passing or time.monotonic() > end:
                    raise
            self.pause(FIRST_WAIT_SECONDS)

    @contextlib.contextmanager
    def _as_interruption(self) -> Iterator[None]:
        """Tell a link that `interrupt` has cut from one that the network has."""
        try:
            yield
        except proc.StoppedError as error:
            raise InterruptedRolloutError from error
        except LinkError as error:
            if self._interrupted.is_set():
                raise InterruptedRolloutError from error
            raise

    def outcome(self, device: PlannedDevice, token: str, seconds: float) -> Outcome | None:
        """Ask a device what came of an order, until it tells.

        Args:
            device: that was given the order.
            token: of the order.
            seconds: how long it may take, with all that the device does meanwhile.

        Returns:
            the outcome; None where the device never got the order.

        Raises:
            SilentError: it was not told in that time.
            InterruptedRolloutError: the rollout was interrupted.
        """
        end = time.monotonic() + seconds
        wait, why = FIRST_WAIT_SECONDS, "its engine does not answer"
        while True:
            try:
                with self.session(device) as link:
                    state = link.facts.state
                    if state.last is not None and state.last.token == token:
                        return Outcome(state.last.outcome, state.last.reason)
                    if not state.unfinished:
                        return None
            except LinkError as error:
                why = error.what
            if time.monotonic() + wait > end:
                raise SilentError(
                    f"{device.address} did not tell how the change ended, for {seconds:.0f} s",
                    why=why,
                    fix="it ends the change by itself; `invoke status` shows it when it is back",
                )
            self.pause(wait)
            wait = min(2 * wait, LONGEST_WAIT_SECONDS)

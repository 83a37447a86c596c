"""A rollout: all devices are asked first, then they change, wave after wave, until too many fail.

What a device has begun it does by itself and to its end; here is only decided which one begins. So
the worst that the death of this process can do is that no further one begins.
"""

import concurrent.futures
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

from jetship.errors import RolloutError
from jetship.fleet.journal import GOOD, Journal, Result, Standing, State
from jetship.fleet.onedevice import Ended, OneDevice
from jetship.fleet.plan import Plan, PlannedDevice, shortened
from jetship.fleet.sessions import InterruptedRolloutError, Sessions

ASKED_AT_ONCE = 32


class WaitsError(RolloutError):
    """A rollout waits for somebody to let its next wave begin."""


@dataclass(frozen=True)
class Rollout:
    """A rollout that is under way; what has happened stands in its journal.

    Args:
        plan: what is rolled out.
        journal: where it is written down.
        sessions: with the devices.
        work: what is done with one device.
        confirm: asks whether the next wave may begin, with a sentence on what is done; says why
            not, or "".
    """

    plan: Plan
    journal: Journal
    sessions: Sessions
    work: OneDevice
    confirm: Callable[[str], str]

    def run(self) -> State:
        """Roll out, or go on with what was interrupted, and return how it ended.

        Raises:
            KeyboardInterrupt: somebody interrupted it; the journal says so.
            WaitsError: nobody confirmed the next wave.
            JetshipError: the journal cannot be written.
        """
        try:
            if self.plan.action == "rollback":
                self._return_all()
            else:
                self._deploy()
        except (KeyboardInterrupt, InterruptedRolloutError) as error:
            self.sessions.interrupt()
            self.journal.write("interrupted")
            raise KeyboardInterrupt from error
        good = self.plan.good
        whole = all(standing.result in good for standing in self._state.devices.values())
        self.journal.write("finished", outcome="complete" if whole else "partial")
        return self._state

    def _deploy(self) -> None:
        self._ask_all()
        if not self._stops():
            self._waves()
        if self._state.stopped and self.plan.strategy.rollback == "all":
            self._each(self._with("committed"), self.plan.strategy.parallel, self._take_back)

    def _return_all(self) -> None:
        self._each(self._with(None), self.plan.strategy.parallel, self._return)

    def _with(self, result: Result | None) -> list[PlannedDevice]:
        return [one for one in self.plan.devices if self._standing(one.name).result == result]

    @property
    def _state(self) -> State:
        return self.journal.state

    def _standing(self, name: str) -> Standing:
        return self._state.devices[name]

    def _in_bounds(self, state: State) -> bool:
        return state.failures <= self.plan.strategy.max_failures

    def _stops(self) -> bool:
        """Return whether no further device may begin, and note why when that is new."""
        if not self._state.stopped and not self._in_bounds(self._state):
            failed = [name for name, one in self._state.devices.items() if one.failed]
            count, most = len(failed), self.plan.strategy.max_failures
            self.journal.write(
                "stopped",
                reason=f"{count} {'device has' if count == 1 else 'devices have'} failed, and "
                f"max_failures is {most}: {shortened(failed)}",
            )
        return bool(self._state.stopped)

    def _ask_all(self) -> None:
        """Ask all devices that have no result, before anything is changed on any of them."""
        waiting = [*self._with(None), *self._with("unknown")]
        if self._state.stopped:
            # Nobody begins any more; only what was under way has still to be found out.
            waiting = [one for one in waiting if self._standing(one.name).ordered]
        self._each(waiting, ASKED_AT_ONCE, self._ask)

    def _ask(self, device: PlannedDevice) -> None:
        ended = self.work.ask(device, self._standing(device.name))
        if ended is not None:
            self._end(device, ended)

    def _waves(self) -> None:
        begun = False
        for index, wave in enumerate(self.plan.waves):
            number = self.plan.wave_number(index)
            devices = [
                self.plan.by_name[name]
                for name in wave.devices
                if self._standing(name).result is None
            ]
            if not devices:
                continue
            if begun:
                self._pause_before(number)
            begun = True
            self.journal.write("wave", number=number, kind=wave.kind, devices=len(devices))
            self._each(devices, wave.parallel, self._change)
            if self._stops():
                return

    def _pause_before(self, number: int) -> None:
        """Let people look at what the waves before have done.

        Raises:
            WaitsError: nobody said yes.
            InterruptedRolloutError: the rollout was interrupted.
        """
        pause = self.plan.strategy.pause
        if pause != "confirm":
            self.sessions.pause(pause)
            return
        done = sum(one.result in GOOD for one in self._state.devices.values())
        told = f"{done} of {len(self.plan.devices)} devices have the image"
        why = self.confirm(f"{told}; go on with wave {number}?")
        if why:
            self.journal.write("interrupted")
            raise WaitsError(
                f"{told}; wave {number} waits",
                why=why,
                fix="`invoke status` shows what they run; `invoke deploy --resume` is the yes, and "
                "goes on with it",
            )

    def _change(self, device: PlannedDevice) -> None:
        # Asked and written in one step: no device begins after the one that was too many.
        if self.journal.write_if(self._in_bounds, "started", device=device.name):
            self._end(device, self.work.change(device))

    def _take_back(self, device: PlannedDevice) -> None:
        """Bring a device back that has the image of a rollout which stopped."""
        ended = self.work.back(device, self._standing(device.name))
        if ended.result not in ("reverted", "broken"):
            # Its own container was well, and runs on.
            ended = replace(ended, result="committed", reason=f"did not go back: {ended.reason}")
        self._end(device, ended)

    def _return(self, device: PlannedDevice) -> None:
        self._end(device, self.work.back(device, self._standing(device.name)))

    def _end(self, device: PlannedDevice, ended: Ended) -> None:
        self.journal.write("ended", device=device.name, **ended.to_json())

    def _each(
        self,
        devices: Sequence[PlannedDevice],
        at_once: int,
        work: Callable[[PlannedDevice], None],
    ) -> None:
        """Do some work for each device, as long as none of it raises."""
        waiting = deque(devices)
        running: set[Future[None]] = set()
        with ThreadPoolExecutor(max_workers=max(1, min(at_once, len(devices)))) as pool:
            try:
                while waiting or running:
                    while waiting and len(running) < at_once:
                        running.add(pool.submit(work, waiting.popleft()))
                    done, running = concurrent.futures.wait(
                        running, return_when=concurrent.futures.FIRST_COMPLETED
                    )
                    for future in done:
                        future.result()
            except BaseException:
                # The threads end with their sessions; the pool waits for them.
                self.sessions.interrupt()
                raise

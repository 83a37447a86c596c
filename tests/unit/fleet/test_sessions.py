"""Sessions that wait, are cut, and tell later what came of an order."""

import dataclasses
import itertools
import threading

import pytest
from fakefleet import FACTS, FakeDevice, planned
from jetship import proc
from jetship.fleet import sessions as module
from jetship.fleet.model import DeviceState, Last, LockedError, LostError, UnreachableError
from jetship.fleet.sessions import InterruptedRolloutError, Sessions, SilentError

DEVICE = planned("d0")
LAST = Last("mine", "swap", "r", "rolled-back", "no camera", "now")


def locked(release: str) -> LockedError:
    return LockedError("held", holder="eve@laptop", release=release, since="then")


def opening(*answers: object, waited: list[float] | None = None) -> Sessions:
    """Return sessions that are opened as told: an error, or a device; the last one for ever."""
    rows = itertools.chain(answers, itertools.repeat(answers[-1]))

    def opener(_: object):
        answer = next(rows)
        if isinstance(answer, Exception):
            raise answer
        return answer.open()

    def wait(_: threading.Event, seconds: float) -> None:
        if waited is not None:
            waited.append(seconds)

    return Sessions(opener, lambda _: "own", wait)


def changed(**state: object) -> FakeDevice:
    return FakeDevice("d0", facts=dataclasses.replace(FACTS, state=DeviceState(**state)))


@pytest.mark.parametrize("release", ["", "own"])
def test_a_lock_that_passes_is_waited_for(release):
    waited: list[float] = []
    sessions = opening(locked(release), locked(release), changed(), waited=waited)
    with sessions.session(DEVICE) as link:
        assert link.facts.machine == "aarch64"
    assert waited == [1.0, 1.0]


def test_the_lock_of_another_rollout_is_not_waited_for():
    waited: list[float] = []
    with pytest.raises(LockedError), opening(locked("other"), waited=waited).session(DEVICE):
        pytest.fail("two deployers")
    assert waited == []


def test_a_lock_that_does_not_pass_is_told(monkeypatch):
    times = itertools.count(0, 6)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(times))
    with pytest.raises(LockedError), opening(locked("")).session(DEVICE):
        pytest.fail("two at once")


def test_the_outcome_is_that_of_the_very_order():
    outcome = opening(changed(last=LAST)).outcome(DEVICE, "mine", 10)
    assert outcome is not None
    assert (outcome.status, outcome.reason) == ("rolled-back", "no camera")
    assert opening(changed(last=LAST)).outcome(DEVICE, "another", 10) is None
    assert opening(changed()).outcome(DEVICE, "mine", 10) is None


def test_a_device_is_asked_until_it_has_ended_what_it_does():
    waited: list[float] = []
    sessions = opening(
        UnreachableError("gone"),
        LostError("cut"),
        locked("own"),
        changed(unfinished="starting"),
        changed(last=LAST),
        waited=waited,
    )
    outcome = sessions.outcome(DEVICE, "mine", 1000)
    assert outcome is not None
    assert waited == [1.0, 2.0, 1.0, 4.0]


def test_a_device_that_stays_silent_is_told_with_the_last_reason(monkeypatch):
    times = itertools.count(0, 4)
    monkeypatch.setattr(module.time, "monotonic", lambda: next(times))
    with pytest.raises(SilentError, match="for 30 s") as caught:
        opening(UnreachableError("no route")).outcome(DEVICE, "mine", 30)
    assert caught.value.why == "no route"


def test_nothing_begins_after_an_interruption():
    sessions = opening(changed())
    sessions.interrupt()
    with pytest.raises(InterruptedRolloutError), sessions.session(DEVICE):
        pytest.fail("it begins")
    with pytest.raises(InterruptedRolloutError):
        sessions.pause(100)


def test_a_link_that_was_cut_by_the_interruption_is_one():
    def cut(sessions: Sessions, *, interrupted: bool) -> None:
        with sessions.session(DEVICE):
            if interrupted:
                sessions.interrupt()
            raise LostError("cut")

    with pytest.raises(InterruptedRolloutError):
        cut(opening(changed()), interrupted=True)
    with pytest.raises(LostError):
        cut(opening(changed()), interrupted=False)


def test_an_interruption_ends_the_programs_of_all_threads():
    begun = threading.Event()

    def opener(_: object):
        begun.set()
        proc.run(["sleep", "60"])
        raise AssertionError("it was not ended")

    sessions = Sessions(opener, lambda _: "own")
    ended: list[BaseException] = []

    def work() -> None:
        try:
            with sessions.session(DEVICE):
                pass
        except InterruptedRolloutError as error:
            ended.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    assert begun.wait(10)
    sessions.interrupt()
    thread.join(20)
    assert len(ended) == 1

"""What `status` says of a device."""

import dataclasses
import threading

import pytest
from fakefleet import FACTS, FakeDevice, planned
from jetship.errors import ToolMissingError
from jetship.fleet.model import DeviceState, Facts, Last
from jetship.fleet.status import HEAD, Answer, ask_all, failure

CURRENT = FACTS.state.current


def answer(state: DeviceState = FACTS.state, **changes: object) -> Answer:
    facts: Facts = dataclasses.replace(FACTS, state=state, **changes)
    return Answer(planned("d0"), facts)


def last(outcome: str, reason: str = "") -> DeviceState:
    told = Last("t", "swap", "r2", outcome, reason, "now")
    return DeviceState(CURRENT, last=told)


@pytest.mark.parametrize(
    ("one", "said", "well"),
    [
        (answer(), "", True),
        (answer(last("committed")), "", True),
        (answer(last("rolled-back", "no camera")), "r2 rolled-back: no camera", False),
        (answer(last("broken")), "r2 broken", False),
        (answer(DeviceState(CURRENT, unfinished="stopping")), "not ended yet: stopping", False),
        (answer(docker="", docker_error="no socket"), "no Docker engine answers", False),
        (answer(container="exited"), "", False),
        (Answer(planned("d0"), silence="no route"), "no route", False),
    ],
)
def test_what_is_not_well_is_told(one, said, well):
    assert said in one.last
    assert one.well is well
    assert len(one.row()) == len(HEAD)
    assert one.row()[-1] == one.last


def test_a_device_on_which_nothing_was_rolled_out():
    one = answer(DeviceState(), container="", l4t="")
    assert one.row()[3:7] == ["-", "-", "", "-"]
    assert one.to_json()["current"] is None
    assert one.to_json()["l4t"] is None


def test_one_device_that_says_nothing_keeps_no_other_from_it():
    devices = {"d0": FakeDevice("d0", unreachable=True), "d1": FakeDevice("d1")}

    def opener(device):
        if device.name == "d2":
            raise ToolMissingError("no ssh")
        return devices[device.name].open()

    first, second, third = ask_all([planned(name) for name in ("d0", "d1", "d2")], opener)
    assert (first.silence, third.silence) == ("d0 cannot be reached", "no ssh")
    assert second.facts == FACTS
    assert not devices["d1"].locked


@pytest.mark.parametrize(
    ("one", "fault"),
    [
        (answer(), ""),
        (answer(last("rolled-back", "no camera")), ""),
        (answer(DeviceState(), container=""), ""),
        (Answer(planned("d0"), silence="eve works on it", held=True), ""),
        (Answer(planned("d0"), silence="no route"), "no route"),
        (answer(container="missing"), "its container is missing"),
        (answer(DeviceState(note="its state file was lost"), container=""), "file was lost"),
        (answer(last("broken", "no camera"), container="exited"), "r2 broken: no camera"),
        (answer(DeviceState(CURRENT, unfinished="stopping")), "not ended yet: stopping"),
        (answer(docker="", docker_error="no socket"), "no socket"),
    ],
)
def test_devices_that_do_not_run_what_they_should_are_an_error(one, fault):
    assert fault in one.fault
    assert bool(one.fault) == bool(fault)
    error = failure([answer(), one])
    if not fault:
        assert error is None
    else:
        assert error.exit_code == 9
        assert error.what.startswith("1 of 2 devices does not run")
        assert f"d0: {one.fault}" in error.why


def test_what_a_lost_state_file_means_is_told():
    one = answer(DeviceState(CURRENT, note="its state file was lost"))
    assert one.last == "its state file was lost"
    assert one.to_json()["note"] == one.last
    assert (one.well, one.fault) == (False, "")


def test_answers_are_told_as_they_come():
    devices = [planned(name) for name in ("d0", "d1")]
    told: list[str] = []
    slow = threading.Event()

    def opener(device):
        if device.name == "d0":
            assert slow.wait(20)
        return FakeDevice(device.name).open()

    def tell(one: Answer) -> None:
        told.append(one.device.name)
        slow.set()

    assert [one.device.name for one in ask_all(devices, opener, tell)] == ["d0", "d1"]
    assert told == ["d1", "d0"]

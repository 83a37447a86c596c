"""Each call of the docker command, and each write of the state file, is once the last one.

The program is killed there, or its watcher, or both; or the engine fails, hangs, starts again, or
the power goes. After the next session one release runs, the old or the new one, whole, and the
state file says which.
"""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from devicesession import Device, Session, back, order
from fakeengine import Fault

FAULTS = ("fail", "away", "restart", "worker", "watcher", "both", "power", "in flight", "full")
MODES = ("replace", "beside")
EVERY = 13  # of the calls, in an ordinary run
# Where the engine is to hang, the calls have to be given up soon.
IMPATIENT = {
    "INSPECT_SECONDS = 30.0": "INSPECT_SECONDS = 0.5",
    "START_SECONDS = 180.0": "START_SECONDS = 0.5",
    "REMOVE_SECONDS = 90.0": "REMOVE_SECONDS = 0.5",
    "BEYOND_STOP_SECONDS = 30.0": "BEYOND_STOP_SECONDS = -0.5",
}


@pytest.fixture(scope="module")
def devices(tmp_path_factory) -> Iterator[dict[str, Device]]:
    """Devices that have nothing yet, one release, and two."""
    folder = tmp_path_factory.mktemp("devices")
    with contextlib.ExitStack() as stack:
        empty = stack.enter_context(Device.new(folder / "empty"))
        one = stack.enter_context(empty.copied(folder / "one"))
        assert one.asked(order(1))[-1]["answer"]["status"] == "committed"
        two = stack.enter_context(one.copied(folder / "two"))
        assert two.asked(order(2))[-1]["answer"]["status"] == "committed"
        yield {"empty": empty, "one": one, "two": two}


def require_whole(device: Device, before: dict, request: dict, release: str) -> str:
    """See that one release runs, and all of the device agrees with that; return its name."""
    state, containers = device.state, device.engine.containers
    assert state["swap"] is None
    current, previous = state["current"], state["previous"]
    assert device.engine.running == ([current["container"]] if current else [])
    # An order to create one that was under way may have been carried out later; nothing starts it.
    kept = [name for name, one in containers.items() if one.restart != "no"]
    assert kept == ([current["container"]] if current else [])
    for entry in filter(None, (current, previous)):
        made = containers[entry["container"]]
        assert made.image == entry["image"]
        assert f"jetship.release={entry['release']}" in made.labels
    last = state["last"]
    if current != before["current"]:
        assert (current["release"], previous) == (release, before["current"])
        assert (last["token"], last["outcome"]) == (request["token"], "committed")
    else:
        assert previous == before["previous"]
        taken_back = last and (last["token"], last["outcome"]) == (request["token"], "rolled-back")
        assert last == before["last"] or taken_back
    return current["release"] if current else ""


def strike(device: Device, request: dict, fault: Fault, quick: dict[str, str]) -> bool:
    """Let a change meet a fault; return whether there was a call with its number."""
    before, release = device.state, request.get("release", "r1")
    device.engine.fault = fault
    with Session(device, quick) as session:
        hello = session.hello()
        answer = session.ask(request) if hello is not None and "answer" in hello else None
    struck = len(device.engine.calls) >= fault.call
    device.engine.fault, device.engine.full = None, False
    if fault.what == "power" and before["current"]:
        # Nobody has come to recover yet, and the robot works.
        assert device.engine.running, "nothing runs after the power was gone"
    device.wait_until_free()
    now = require_whole(device, before, request, release)
    if answer is not None and "answer" in answer:
        outcome = answer["answer"]
        assert outcome["status"] == ("committed" if now == release else "rolled-back")
        assert outcome["release"] == now
    assert device.said == ""
    return struck


def strike_everywhere(
    device: Device,
    folder: Path,
    request: dict,
    what: str,
    *,
    quick: dict[str, str] | None = None,
    every: int = 1,
) -> int:
    """Let a fault come at each call, before and after its work; return how many calls there are."""
    # Each fault begins elsewhere, so that an ordinary run sees all calls.
    call = 1 if every == 1 else 1 + FAULTS.index(what) % every
    while True:
        for after in (False, True):
            with device.copied(folder / f"{what}-{call}-{after}") as one:
                if not strike(one, request, Fault(call, what, after), quick or {}):
                    return call - 1
        call += every


@pytest.mark.parametrize("what", FAULTS)
def test_a_swap_ends_whole_where_it_is_struck(devices, tmp_path, what):
    assert strike_everywhere(devices["one"], tmp_path, order(2), what, every=EVERY) > 25


@pytest.mark.long
@pytest.mark.parametrize("what", FAULTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_swap_ends_whole_wherever_it_is_struck(devices, tmp_path, mode, what):
    assert strike_everywhere(devices["one"], tmp_path, order(2, mode=mode), what) > 30


@pytest.mark.long
@pytest.mark.parametrize("what", FAULTS)
def test_a_third_release_ends_whole_wherever_it_is_struck(devices, tmp_path, what):
    assert strike_everywhere(devices["two"], tmp_path, order(3), what) > 30


@pytest.mark.long
@pytest.mark.parametrize("what", FAULTS)
def test_a_first_installation_ends_whole_wherever_it_is_struck(devices, tmp_path, what):
    assert strike_everywhere(devices["empty"], tmp_path, order(1), what) > 25


@pytest.mark.long
@pytest.mark.parametrize("what", FAULTS)
def test_a_way_back_ends_whole_wherever_it_is_struck(devices, tmp_path, what):
    assert strike_everywhere(devices["two"], tmp_path, back(), what) > 25


@pytest.mark.long
@pytest.mark.parametrize(
    ("behaviour", "what"),
    [("never healthy", what) for what in FAULTS]
    + [("ends at once", "both"), ("does not start", "both")],
)
def test_what_is_taken_back_ends_whole_wherever_it_is_struck(devices, tmp_path, behaviour, what):
    with devices["one"].copied(tmp_path / "sick") as device:
        device.engine.behaviours[order(2)["image"]] = behaviour
        request = order(2)
        request["health"] = request["health"] | {"timeout": 0.1}
        assert strike_everywhere(device, tmp_path / "runs", request, what) > 20


@pytest.mark.long
@pytest.mark.parametrize("mode", MODES)
def test_an_engine_that_hangs_at_any_call(devices, tmp_path, mode):
    request = order(2, mode=mode)
    assert strike_everywhere(devices["one"], tmp_path, request, "hang", quick=IMPATIENT) > 30

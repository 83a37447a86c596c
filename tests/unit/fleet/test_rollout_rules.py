"""The rules of a rollout, over devices that fail as they are told."""

import dataclasses
import threading
from collections.abc import Sequence

import pytest
from fakefleet import FACTS, IMAGE, NEW, FakeDevice, FakeFleet, results
from hypothesis import given, settings
from hypothesis import strategies as st
from jetship.errors import RolloutError
from jetship.fleet.journal import Journal, events, read
from jetship.fleet.model import DeviceState, Installed
from jetship.fleet.rollout import WaitsError


def kinds(journal: Journal, *wanted: str) -> list[tuple[str, str]]:
    return [
        (row["event"], row.get("device", ""))
        for row in events(journal.path)
        if row["event"] in wanted
    ]


def failing(name: str, how: str = "rolled-back", **changes: object) -> dict[str, FakeDevice]:
    return {name: FakeDevice(name, fails=how, **changes)}


def test_all_devices_get_the_image_wave_after_wave(tmp_path):
    fleet = FakeFleet.of(tmp_path, 4)
    journal = fleet.deploy(canary=1, wave=2)
    assert set(results(journal).values()) == {"committed"}
    assert set(fleet.images().values()) == {"new"}
    assert read(journal.path).ended == "complete"
    order = [name for _, name in kinds(journal, "started")]
    assert order[0] == "d0"
    assert set(order[1:3]) == {"d1", "d2"}
    assert order[3] == "d3"


def test_a_device_that_has_the_image_is_not_touched(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2)
    fleet.deploy()
    swaps = [device.swaps for device in fleet.members.values()]
    again = fleet.deploy()
    assert set(results(again).values()) == {"already"}
    assert [device.swaps for device in fleet.members.values()] == swaps
    assert read(again.path).ended == "complete"
    assert not kinds(again, "started", "swapping")


def test_the_same_image_is_put_there_anew_where_it_stands_still_or_is_run_otherwise(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2)
    fleet.deploy()
    stands = fleet.members["d0"]
    stands.facts = dataclasses.replace(stands.facts, container="exited")
    otherwise = fleet.members["d1"]
    current = otherwise.facts.state.current
    otherwise.change(
        DeviceState(current=dataclasses.replace(current, release="20250101T000000Z.ffffffff"))
    )
    assert set(results(fleet.deploy()).values()) == {"committed"}


def test_nothing_is_touched_where_too_many_cannot_be_rolled_out_to(tmp_path):
    wrong = FakeDevice("d2", facts=dataclasses.replace(FACTS, l4t="r35.4.1"))
    fleet = FakeFleet.of(tmp_path, 4, d1=FakeDevice("d1", unreachable=True), d2=wrong)
    journal = fleet.deploy(max_failures=1)
    assert results(journal) == {"d0": None, "d1": "unreachable", "d2": "refused", "d3": None}
    state = read(journal.path)
    assert state.ended == "partial"
    assert state.stopped == "2 devices have failed, and max_failures is 1: d1, d2"
    assert not kinds(journal, "started", "swapping")
    assert set(fleet.images().values()) == {"old"}


def test_within_bounds_the_others_get_it(tmp_path):
    fleet = FakeFleet.of(tmp_path, 3, d1=FakeDevice("d1", unreachable=True))
    journal = fleet.deploy(max_failures=1)
    assert results(journal) == {"d0": "committed", "d1": "unreachable", "d2": "committed"}
    assert (read(journal.path).ended, read(journal.path).stopped) == ("partial", "")


def test_a_canary_that_fails_stops_it(tmp_path):
    fleet = FakeFleet.of(tmp_path, 4, **failing("d0"))
    journal = fleet.deploy(canary=2, wave=2)
    assert results(journal) == {"d0": "rolled-back", "d1": None, "d2": None, "d3": None}
    assert set(fleet.images().values()) == {"old"}
    assert read(journal.path).devices["d0"].logs == "log"


def test_one_fails_and_the_rest_stays_as_it_is(tmp_path):
    fleet = FakeFleet.of(tmp_path, 6, **failing("d3", seconds=0.05))
    journal = fleet.deploy(canary=1, wave=3, parallel=3)
    assert results(journal)["d3"] == "rolled-back"
    assert fleet.images() == {
        "d0": "new", "d1": "new", "d2": "new", "d3": "old", "d4": "old", "d5": "old",
    }  # fmt: skip


def test_all_go_back_where_the_policy_says_so(tmp_path):
    fleet = FakeFleet.of(tmp_path, 6, **failing("d3"))
    journal = fleet.deploy(canary=1, wave=3, parallel=1, rollback="all")
    assert set(fleet.images().values()) == {"old"}
    assert results(journal) == {
        "d0": "reverted", "d1": "reverted", "d2": "reverted",
        "d3": "rolled-back", "d4": None, "d5": None,
    }  # fmt: skip
    assert read(journal.path).ended == "partial"


def test_what_cannot_go_back_keeps_the_new_image_and_says_why(tmp_path):
    first = FakeDevice("d0", facts=dataclasses.replace(FACTS, state=DeviceState(), container=""))
    fleet = FakeFleet.of(tmp_path, 3, d0=first, **failing("d2"))
    silent = fleet.members["d1"]

    def vanish(_: FakeDevice, step: str) -> None:
        silent.unreachable = step == "swapping"

    fleet.members["d2"].ran = vanish
    journal = fleet.deploy(rollback="all")
    assert results(journal) == {"d0": "committed", "d1": "committed", "d2": "rolled-back"}
    standings = read(journal.path).devices
    assert standings["d0"].reason == "did not go back: it had nothing before"
    assert "did not go back: d1 cannot be reached" in standings["d1"].reason


def test_what_somebody_else_has_changed_since_is_not_taken_back(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2, **failing("d1"))

    def meddle(_: FakeDevice, step: str) -> None:
        fleet.members["d0"].change(DeviceState(current=Installed(NEW, "x", "20990101T000000Z.1")))

    fleet.members["d1"].ran = meddle
    journal = fleet.deploy(rollback="all")
    assert results(journal)["d0"] == "committed"
    assert "runs 20990101T000000Z.1 by now" in read(journal.path).devices["d0"].reason


def test_a_device_that_another_deployer_holds_is_told_with_who_and_since_when(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2, d1=FakeDevice("d1", holder="eve@laptop"))
    journal = fleet.deploy()
    assert results(journal) == {"d0": None, "d1": "unreachable"}
    assert "eve@laptop" in read(journal.path).devices["d1"].reason


def test_an_image_that_cannot_be_given_to_the_device_leaves_it_as_it_was(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2, **failing("d0", "load"))
    journal = fleet.deploy()
    assert results(journal)["d0"] == "failed"
    assert fleet.members["d0"].swaps == 0


def test_a_link_that_is_cut_while_it_sends_is_opened_again(tmp_path):
    fleet = FakeFleet.of(tmp_path, 1, d0=FakeDevice("d0", cuts=["sending", "sending"]))
    assert results(fleet.deploy()) == {"d0": "committed"}
    assert fleet.waited[:2] == [2.0, 4.0]


def test_a_link_that_is_cut_is_waited_for_while_the_device_is_not_back(tmp_path):
    fleet = FakeFleet.of(tmp_path, 1, d0=FakeDevice("d0", cuts=["sending"]))
    device = fleet.members["d0"]
    opened = iter([True, True, False, False, True])  # asked, begun, twice away, back

    def open_again() -> object:
        device.unreachable = not next(opened)
        return FakeDevice.open(device)

    device.open = open_again
    assert results(fleet.deploy()) == {"d0": "committed"}
    assert fleet.waited == [2.0, 4.0, 8.0]


def test_a_link_that_is_cut_for_good_is_a_failure_before_the_swap(tmp_path):
    fleet = FakeFleet.of(tmp_path, 1, d0=FakeDevice("d0", cuts=["sending"] * 9))
    journal = fleet.deploy()
    assert results(journal) == {"d0": "failed"}
    assert read(journal.path).devices["d0"].reason.startswith("tried 5 times: the link to d0")
    assert fleet.waited == [2.0, 4.0, 8.0, 16.0]


@pytest.mark.parametrize("how", ["", "rolled-back", "broken"])
def test_a_link_that_is_cut_in_the_swap_is_opened_for_the_outcome(tmp_path, how):
    fleet = FakeFleet.of(tmp_path, 1, d0=FakeDevice("d0", fails=how, cuts=["swapping"]))
    assert results(fleet.deploy()) == {"d0": how or "committed"}
    assert fleet.members["d0"].swaps == 1


def test_an_order_that_did_not_arrive_is_given_again(tmp_path):
    fleet = FakeFleet.of(tmp_path, 1, d0=FakeDevice("d0", cuts=["ordering"]))
    assert results(fleet.deploy()) == {"d0": "committed"}
    assert fleet.members["d0"].swaps == 1


@pytest.mark.parametrize(("cut", "then"), [("swapping", "committed"), ("ordering", "failed")])
def test_a_device_that_is_not_heard_of_again_is_unknown_and_asked_when_resumed(
    tmp_path, monkeypatch, cut, then
):
    times = iter(range(0, 100_000, 50))
    monkeypatch.setattr("jetship.fleet.sessions.time.monotonic", lambda: next(times))
    fleet = FakeFleet.of(tmp_path, 3, d0=FakeDevice("d0", cuts=[cut]))

    def vanish(device: FakeDevice, step: str) -> None:
        device.unreachable = step == "swapping"

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    device = fleet.members["d0"]
    device.ran = vanish
    fleet.members["d1"].ran = interrupt
    journal = fleet.begin(fleet.plan(max_failures=1, parallel=1))
    with pytest.raises(KeyboardInterrupt):
        fleet.rollout(journal).run()
    assert results(journal) == {"d0": "unknown", "d1": None, "d2": None}
    assert "did not tell how the change ended" in read(journal.path).devices["d0"].reason
    for member in fleet.members.values():
        member.ran, member.unreachable = (lambda *_: None), False
    again = Journal.reopen(journal.path, by="me")
    fleet.rollout(again).run()
    assert results(again) == {"d0": then, "d1": "committed", "d2": "committed"}


def test_waves_wait_as_the_strategy_says(tmp_path):
    fleet = FakeFleet.of(tmp_path, 3)
    fleet.deploy(canary=1, wave=1, pause=7)
    assert fleet.waited == [7.0, 7.0]


def test_a_wave_that_nobody_confirms_waits_for_a_resume(tmp_path):
    fleet = FakeFleet.of(tmp_path, 3)
    fleet.says = False
    journal = fleet.begin(fleet.plan(canary=1, wave=2, pause="confirm"))
    with pytest.raises(WaitsError, match="1 of 3 devices have the image; wave 1 waits") as caught:
        fleet.rollout(journal).run()
    assert isinstance(caught.value, RolloutError)
    assert fleet.asked == ["1 of 3 devices have the image; go on with wave 1?"]
    assert read(journal.path).unfinished
    again = Journal.reopen(journal.path, by="me")
    fleet.rollout(again).run()
    assert set(results(again).values()) == {"committed"}
    assert len(fleet.asked) == 1


class Killed(BaseException):
    """As kill -9: nothing is written any more."""


STEPS = ["sending", "swapping"]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("how", ["", "rolled-back"])
def test_a_rollout_whose_deployer_was_killed_goes_on(tmp_path, step, how):
    fleet = FakeFleet.of(tmp_path, 3, d1=FakeDevice("d1", fails=how))
    device = fleet.members["d1"]

    def kill(_: FakeDevice, at: str) -> None:
        if at == step:
            raise Killed

    device.ran = kill
    journal = fleet.begin(fleet.plan(parallel=1, max_failures=1))
    with pytest.raises(Killed):
        fleet.rollout(journal).run()
    assert read(journal.path).unfinished
    assert results(journal)["d0"] == "committed"
    device.ran = lambda *_: None
    again = Journal.reopen(journal.path, by="me")
    fleet.rollout(again).run()
    assert results(again) == {"d0": "committed", "d1": how or "committed", "d2": "committed"}
    assert device.swaps == 1
    assert fleet.members["d0"].swaps == 1


def test_what_came_of_an_order_is_asked_after_its_deployer_was_killed(tmp_path):
    """The order was given, and the device has done it; nobody was there to hear of it."""
    fleet = FakeFleet.of(tmp_path, 2)
    journal = fleet.begin(fleet.plan())
    plan = fleet.plan()
    device = fleet.members["d0"]
    order = plan.order(plan.devices[0], journal.state.release)
    journal.write("started", device="d0")
    journal.write("swapping", device="d0", token=order.token)
    device.fails = "rolled-back"
    link = device.open()
    link.send_image(dataclasses.make_dataclass("I", ["id"])(NEW))
    link.swap(order)
    link.close()
    again = Journal.reopen(journal.path, by="me")
    fleet.rollout(again).run()
    assert results(again) == {"d0": "rolled-back", "d1": None}
    assert device.swaps == 1


def test_a_resumed_rollout_gives_the_pinned_image_and_counts_the_failures_from_before(tmp_path):
    fleet = FakeFleet.of(tmp_path, 4, **failing("d0"), d2=FakeDevice("d2", fails="broken"))
    device = fleet.members["d1"]

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    device.ran = interrupt
    journal = fleet.begin(fleet.plan(parallel=1, max_failures=1, canary=0, wave=4))
    with pytest.raises(KeyboardInterrupt):
        fleet.rollout(journal).run()
    assert read(journal.path).interrupted
    device.ran = lambda *_: None
    again = Journal.reopen(journal.path, by="me")
    assert again.state.plan["images"][0]["id"] == IMAGE.id
    fleet.rollout(again).run()
    assert results(again) == {"d0": "rolled-back", "d1": "committed", "d2": "broken", "d3": None}
    assert read(again.path).stopped.startswith("2 devices have failed, and max_failures is 1")


def test_going_back_that_was_interrupted_goes_on(tmp_path):
    fleet = FakeFleet.of(tmp_path, 4, **failing("d3"))

    def kill(device: FakeDevice, step: str) -> None:
        if step == "returning":
            raise Killed

    fleet.members["d1"].ran = kill
    journal = fleet.begin(fleet.plan(parallel=1, canary=0, wave=4, rollback="all"))
    with pytest.raises(Killed):
        fleet.rollout(journal).run()
    fleet.members["d1"].ran = lambda *_: None
    again = Journal.reopen(journal.path, by="me")
    fleet.rollout(again).run()
    assert set(fleet.images().values()) == {"old"}
    assert results(again) == {
        "d0": "reverted", "d1": "reverted", "d2": "reverted", "d3": "rolled-back",
    }  # fmt: skip


def test_a_device_that_went_back_unheard_is_not_sent_forward_again(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2, **failing("d1"))
    fleet.members["d0"].cuts.append("returning")
    journal = fleet.deploy(rollback="all")
    assert results(journal)["d0"] == "reverted"
    assert fleet.images()["d0"] == "old"


def test_an_interrupted_rollout_begins_no_swap_and_says_so(tmp_path):
    fleet = FakeFleet.of(tmp_path, 3)
    journal = fleet.begin(fleet.plan(canary=0, wave=3, parallel=3))
    rollout = fleet.rollout(journal)
    barrier = threading.Barrier(2, timeout=10)

    def wait(device: FakeDevice, step: str) -> None:
        if step == "sending":
            barrier.wait()
            rollout.sessions._interrupted.wait(10)

    def interrupt(device: FakeDevice, step: str) -> None:
        barrier.wait()
        raise KeyboardInterrupt

    fleet.members["d0"].ran = wait
    fleet.members["d1"].ran = interrupt
    with pytest.raises(KeyboardInterrupt):
        rollout.run()
    assert fleet.members["d0"].swaps == 0
    assert read(journal.path).interrupted
    assert read(journal.path).devices["d0"].phase == "started"


def test_all_go_back_to_what_they_had(tmp_path):
    fleet = FakeFleet.of(tmp_path, 3, d2=FakeDevice("d2", unreachable=True))
    fleet.members["d2"].unreachable = False
    fleet.deploy()
    fleet.members["d2"].unreachable = True
    journal = fleet.begin(fleet.plan_back())
    fleet.rollout(journal).run()
    assert results(journal) == {"d0": "reverted", "d1": "reverted", "d2": "unreachable"}
    assert read(journal.path).ended == "partial"
    fleet.members["d2"].unreachable = False
    again = fleet.begin(fleet.plan_back())
    fleet.rollout(again).run()
    assert results(again) == {"d0": "already", "d1": "already", "d2": "reverted"}
    assert set(fleet.images().values()) == {"old"}
    assert read(again.path).ended == "complete"


def test_a_device_that_went_back_does_not_go_forward_after_another_failure(tmp_path):
    fleet = FakeFleet.of(tmp_path, 1)
    fleet.deploy()
    fleet.rollout(fleet.begin(fleet.plan_back())).run()
    fleet.members["d0"].fails = "rolled-back"
    fleet.deploy()
    assert fleet.members["d0"].facts.state.last.action == "swap"
    journal = fleet.begin(fleet.plan_back())
    fleet.rollout(journal).run()
    assert results(journal) == {"d0": "already"}
    assert fleet.images() == {"d0": "old"}


def test_a_device_that_went_back_and_stands_still_is_broken(tmp_path):
    fleet = FakeFleet.of(tmp_path, 3)
    fleet.deploy()
    fleet.rollout(fleet.begin(fleet.plan_back())).run()
    gone, away = fleet.members["d0"], fleet.members["d1"]
    gone.facts = dataclasses.replace(gone.facts, container="missing")
    away.facts = dataclasses.replace(away.facts, container="", docker="", docker_error="no socket")
    for to in ("", "20250101T000000Z"):
        journal = fleet.begin(fleet.plan_back(to=to))
        fleet.rollout(journal).run()
        assert results(journal) == {"d0": "broken", "d1": "broken", "d2": "already"}
        assert "the container is missing" in read(journal.path).devices["d0"].reason
        assert "no socket" in read(journal.path).devices["d1"].reason
        assert read(journal.path).ended == "partial"


def test_where_an_image_that_a_device_has_lost_comes_from_is_told(tmp_path):
    fleet = FakeFleet.of(tmp_path, 1)
    fleet.deploy()
    fleet.members["d0"].image_lost = True
    journal = fleet.begin(fleet.plan_back())
    fleet.rollout(journal).run()
    assert results(journal) == {"d0": "refused"}
    reason = read(journal.path).devices["d0"].reason
    assert "`invoke rollback --to 20250101T000000Z --device d0` sends it again" in reason


def test_an_engine_that_starts_again_while_an_image_comes_is_waited_for(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2, d0=FakeDevice("d0", engine_away=2))
    assert set(results(fleet.deploy()).values()) == {"committed"}
    assert fleet.waited[:2] == [2.0, 4.0]
    stays = FakeFleet.of(tmp_path, 1, d0=FakeDevice("d0", engine_away=100))
    journal = stays.deploy()
    assert results(journal) == {"d0": "failed"}
    assert "tried 5 times: Cannot connect" in read(journal.path).devices["d0"].reason


def test_all_go_back_to_a_release_that_is_named(tmp_path):
    fleet = FakeFleet.of(tmp_path, 2)
    fleet.deploy()
    wrong = fleet.begin(fleet.plan_back(to="20240101T000000Z"))
    fleet.rollout(wrong).run()
    assert set(results(wrong).values()) == {"refused"}
    right = fleet.begin(fleet.plan_back(to="20250101T000000Z"))
    fleet.rollout(right).run()
    assert set(results(right).values()) == {"reverted"}
    again = fleet.begin(fleet.plan_back(to="20250101T000000Z"))
    fleet.rollout(again).run()
    assert set(results(again).values()) == {"already"}


@settings(max_examples=60)
@given(
    fates=st.lists(
        st.sampled_from(["", "", "", "rolled-back", "broken", "load", "gone"]),
        min_size=1,
        max_size=14,
    ),
    sizes=st.tuples(st.integers(0, 3), st.integers(1, 8)),
    rules=st.tuples(st.integers(1, 5), st.integers(0, 4), st.sampled_from(["device", "all"])),
    kill=st.one_of(st.none(), st.integers(0, 13)),
)
def test_the_stop_rule(tmp_path_factory, fates, sizes, rules, kill):
    """No more fail than allowed, but for those that ran; and nothing begins after the stop.

    Also where the deployer is killed by the way, and another one goes on.
    """
    (canary, wave), (parallel, most, policy) = sizes, rules
    fleet = FakeFleet.of(tmp_path_factory.mktemp("fleet"), len(fates))
    for device, fate in zip(fleet.members.values(), fates, strict=True):
        device.fails, device.unreachable = ("", True) if fate == "gone" else (fate, False)

    def die(device: FakeDevice, step: str) -> None:
        device.ran = lambda *_: None
        raise Killed

    if kill is not None and kill < len(fates):
        fleet.members[f"d{kill}"].ran = die
    strategy = {
        "canary": min(canary, len(fates)), "wave": wave, "parallel": parallel,
        "max_failures": most, "rollback": policy,
    }  # fmt: skip
    journal = fleet.begin(fleet.plan(**strategy))
    try:
        fleet.rollout(journal).run()
    except Killed:
        journal = Journal.reopen(journal.path, by="another")
        fleet.rollout(journal).run()
    _require_rules(journal, fates, most, parallel)
    state = read(journal.path)
    images = fleet.images()
    for name, standing in state.devices.items():
        expected = "new" if standing.result in ("committed", "already") else "old"
        assert images[name] == expected, (name, standing)
    if state.stopped and policy == "all":
        assert set(images.values()) == {"old"}
    good = all(fate == "" for fate in fates)
    assert state.ended == ("complete" if good else "partial")


def _require_rules(journal: Journal, fates: Sequence[str], most: int, parallel: int) -> None:
    failed: set[str] = set()
    stopped = False
    for row in events(journal.path):
        if row["event"] == "started":
            assert len(failed) <= most
            assert not stopped
        elif row.get("result", "committed") not in ("committed", "already", "reverted"):
            failed.add(row["device"])
        stopped = stopped or row["event"] == "stopped"
    gone = fates.count("gone")
    assert stopped == (len(failed) > most)
    if gone > most:
        assert not any(row["event"] == "swapping" for row in events(journal.path))
        assert len(failed) == gone
    else:
        # Those that were running when the deployer was killed are found out before the others.
        assert len(failed) <= most + parallel

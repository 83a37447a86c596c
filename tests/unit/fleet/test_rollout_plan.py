"""Plans: who gets what and when, and that a plan is whole when it is read again."""

import dataclasses
import json

import pytest
from fakefleet import CATALOG, IMAGE, SETUP, FakeFleet, devices
from hypothesis import given
from hypothesis import strategies as st
from jetship.errors import ConfigError
from jetship.fleet.model import Health
from jetship.fleet.plan import Plan, Setup, rollout_of, same_config, shortened, waves_of
from jetship.targets.device import Address, Device
from jetship.targets.resolve import resolve_id
from jetship.targets.strategy import Strategy


def test_a_plan_that_was_written_down_is_the_same(tmp_path):
    fleet = FakeFleet.of(tmp_path, 5)
    plan = fleet.plan(canary="20%", wave=[1, "50%"], pause="confirm", rollback="all")
    plan = dataclasses.replace(plan, health=Health(("a",), ("b", "c"), 0.5, 9, 1))
    assert Plan.from_json(json.loads(json.dumps(plan.to_json()))) == plan


def test_a_plan_of_another_jetship_is_refused(tmp_path):
    document = FakeFleet.of(tmp_path, 1).plan().to_json()
    del document["images"]
    with pytest.raises(ConfigError, match="cannot be read by this jetship"):
        Plan.from_json(document)


def names(count: int, **strategy: object) -> list[tuple[str, ...]]:
    members = devices([str(number) for number in range(count)])
    return [wave.devices for wave in waves_of(members, Strategy.model_validate(strategy))]


def test_canaries_then_waves_of_numbers_or_shares():
    assert names(5, canary=1, wave=2) == [("0",), ("1", "2"), ("3", "4")]
    assert names(5, canary=0, wave=3) == [("0", "1", "2"), ("3", "4")]
    assert names(10, canary="20%", wave=["10%", 3]) == [
        ("0", "1"), ("2",), ("3", "4", "5"), ("6", "7", "8"), ("9",),
    ]  # fmt: skip
    assert names(2, canary=5) == [("0", "1")]


@given(
    count=st.integers(1, 60),
    canary=st.one_of(st.integers(0, 70), st.integers(0, 100).map(lambda n: f"{n}%")),
    wave=st.lists(
        st.one_of(st.integers(1, 70), st.integers(1, 100).map(lambda n: f"{n}%")), min_size=1
    ),
)
def test_every_device_is_in_one_wave(count, canary, wave):
    members = devices([str(number) for number in range(count)])
    strategy = Strategy.model_validate({"canary": canary, "wave": wave})
    waves = list(waves_of(members, strategy))
    placed = [name for one in waves for name in one.devices]
    assert sorted(placed) == sorted(device.name for device in members)
    assert all(one.devices for one in waves)
    assert all(one.parallel == 1 for one in waves if one.kind == "canary")


def test_canaries_are_of_as_many_targets_as_there_can_be():
    other = resolve_id(CATALOG, "sm72-jetpack-5.1")
    xavier = Device("x", Address("ops", "x"), CATALOG.board("xavier"), other, {}, ())
    members = [*devices(["a", "b", "c"]), xavier]
    waves = list(waves_of(members, Strategy.model_validate({"canary": 2, "wave": 9})))
    assert [wave.devices for wave in waves] == [("a", "x"), ("b", "c")]


def test_an_order_says_all_that_the_device_needs(tmp_path):
    plan = FakeFleet.of(tmp_path, 1).plan(swap="beside", patience=7)
    order = plan.order(plan.devices[0], "20261130T081500Z")
    assert (order.image, order.create, order.mode) == (IMAGE.id, SETUP.create, "beside")
    assert order.patience == 7
    assert order.release == f"20261130T081500Z.{SETUP.digest}"
    assert rollout_of(order.release) == "20261130T081500Z"
    assert plan.order(plan.devices[0], "x").token != order.token


def test_other_words_are_another_release():
    other = dataclasses.replace(SETUP, create=(*SETUP.create, "--env", "A=1"))
    assert not same_config(f"a.{SETUP.digest}", f"b.{other.digest}")
    assert same_config(f"a.{SETUP.digest}", f"b.{SETUP.digest}")
    assert not same_config("", f"b.{SETUP.digest}")


@pytest.mark.parametrize(
    ("words", "runtime"),
    [
        (("--runtime", "nvidia", "--env", "A=1"), "nvidia"),
        (("--env", "A=1", "--runtime=nvidia"), "nvidia"),
        (("--gpus", "all"), ""),
        ((), ""),
    ],
)
def test_the_runtime_is_the_one_that_the_words_name(words, runtime):
    assert Setup("t", "b", words).runtime == runtime


def test_many_names_are_shortened():
    assert shortened(["a", "b"]) == "a, b"
    assert shortened(list("abcdefg")) == "a, b, c, d, e and 2 more"

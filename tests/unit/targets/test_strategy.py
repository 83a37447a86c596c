import pytest
from jetship.targets.strategy import Health, Share, Strategy
from pydantic import ValidationError


@pytest.mark.parametrize(
    ("canary", "wave", "devices", "expected"),
    [
        (1, 2, 6, (1, (2, 2, 1))),
        (0, 1, 3, (0, (1, 1, 1))),
        ("10%", "25%", 20, (2, (5, 5, 5, 3))),
        ("10%", "50%", 3, (1, (2,))),
        (1, [1, "10%", "50%"], 100, (1, (1, 10, 50, 38))),
        (1, [3, 1], 7, (1, (3, 1, 1, 1))),
        (5, 2, 3, (3, ())),
        (1, "100%", 1, (1, ())),
        ("1%", "100%", 5000, (50, (4950,))),
        (1, 1, 0, (0, ())),
    ],
)
def test_a_fleet_is_split_into_canaries_and_waves(canary, wave, devices, expected):
    canaries, waves = found = Strategy(canary=canary, wave=wave).split(devices)
    assert found == expected
    assert canaries + sum(waves) == devices


def test_a_percentage_of_any_fleet_is_a_device_at_least():
    assert [Share(1, percent=True).of(n) for n in (0, 1, 99, 100, 101)] == [0, 1, 1, 1, 2]


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("canary", "ten", "neither a number of devices nor a percentage"),
        ("canary", True, "neither a number"),
        ("canary", -1, "neither a number"),
        ("canary", "101%", "not between 0 and 100%"),
        ("wave", 0, "not between 1 and 100%"),
        ("wave", [1, "0%"], "not between 1 and 100%"),
        ("wave", [], "at least one size"),
        ("wave", "1.5", "neither a number"),
        ("pause", "ask", "neither a number of seconds nor `confirm`"),
        ("pause", -1, "neither a number of seconds"),
        ("pause", "nan", "neither a number of seconds"),
        ("max_failures", -1, "greater than or equal to 0"),
        ("parallel", 0, "greater than or equal to 1"),
        ("swap", "blue-green", "'replace' or 'beside'"),
        ("patience", 0, "greater than 0"),
        ("patience", "nan", "finite number"),
        ("max_clock_skew", "inf", "finite number|less than"),
    ],
)
def test_what_no_rollout_can_do_is_refused(key, value, said):
    with pytest.raises(ValidationError, match=said):
        Strategy.model_validate({key: value})


def test_each_wrong_wave_is_told_at_its_own_place():
    with pytest.raises(ValidationError) as caught:
        Strategy.model_validate({"wave": [1, "150%", 0]})
    places = [detail["loc"] for detail in caught.value.errors()]
    assert places == [("wave", 1), ("wave", 2)]


def test_pauses_are_seconds_or_a_question():
    assert Strategy.model_validate({"pause": "2.5"}).pause == 2.5
    assert Strategy.model_validate({"pause": "confirm"}).pause == "confirm"


def test_a_strategy_as_json_reads_back_as_itself():
    given = Strategy.model_validate({"canary": "10%", "wave": [1, "50%"], "pause": "confirm"})
    shown = given.model_dump(mode="json")
    assert (shown["canary"], shown["wave"]) == ("10%", ["1", "50%"])
    assert Strategy.model_validate(shown) == given


def test_a_container_settles_unless_it_is_said_otherwise():
    assert Health().settle > 0
    assert Health.model_validate({"settle": 0, "timeout": "0.5"}).settle == 0

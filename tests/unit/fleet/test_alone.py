"""One deployer on a machine, and who it is."""

import json
import os

import pytest
from jetship.errors import RolloutError
from jetship.fleet.alone import alone
from jetship.fleet.link import this_user


def test_a_second_deployer_is_told_who_the_first_one_is(tmp_path):
    folder = tmp_path / "rollouts"
    with (
        alone(folder),
        pytest.raises(RolloutError, match="is under way on this machine") as caught,
        alone(folder),
    ):
        pytest.fail("two at once")
    assert caught.value.why.startswith(f"{this_user()} since 20")
    assert f"(process {os.getpid()})" in caught.value.why
    with alone(folder):
        assert json.loads((folder / "holder.json").read_text())["who"] == this_user()
    assert not (folder / "holder.json").exists()


def test_what_a_killed_deployer_left_is_no_hindrance(tmp_path):
    (tmp_path / "lock").touch()
    (tmp_path / "holder.json").write_text("{}")
    with alone(tmp_path):
        pass


def test_a_holder_that_cannot_be_read_is_no_guess(tmp_path):
    with alone(tmp_path):
        (tmp_path / "holder.json").write_text("torn")
        with pytest.raises(RolloutError) as caught, alone(tmp_path):
            pytest.fail("two at once")
    assert caught.value.why == ""

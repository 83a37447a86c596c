"""The task `cache`, from the command line to what is left."""

import functools
import json
import os
import time

import pytest
from jetship import usage
from jetship.store import Store, default_root

DAY = 24 * 3600


@pytest.fixture
def call(call):
    """Run the task `cache` with these options."""
    return functools.partial(call, "cache")


@pytest.fixture
def old(call):
    """The name of a tree that was used 20 days ago."""
    store = Store(default_root())
    path = store.tree("gcc-11", "0" * 64, lambda root: (root / "f").write_text("x" * 9000))
    os.close(usage._held.pop(store.mark(path.name)))
    then = time.time() - 20 * DAY
    os.utime(store.mark(path.name), (then, then))
    return path


def test_the_cache_is_shown_and_nothing_is_deleted(call, old):
    code, out, err = call()
    assert code == 0
    assert out.startswith(f"{default_root()}: ")
    assert "trees, 1 of them (--all lists them)" in out
    assert old.name not in out
    assert f"MB  {old.name}, used 20" in call("--all")[1]
    assert "--prune" not in err
    _, out, err = call("--older-than", "2w")
    assert f"MB  {old.name}, used 20" in out
    said = "`invoke cache --prune --older-than 2w` deletes 1 tree (0.0 MB) not used for 2w"
    assert said in err
    assert "work that was broken off" not in err
    assert old.is_dir()


def test_what_is_old_is_deleted_when_asked(call, old):
    assert call("--prune")[1] == ""
    assert old.is_dir()
    code, out, err = call("--prune", "--older-than", "2w")
    assert (code, out.startswith(f"deleted {old.name} (")) == (0, True)
    assert "1 tree (0.0 MB) deleted" in err
    assert not old.exists()


def test_work_that_was_broken_off_is_told_and_deleted(call, old):
    folder = default_root() / "tmp/killed"
    folder.mkdir(parents=True)
    (folder / "f").write_text("x" * 300_000)
    assert "broken off" not in call()[2]
    then = time.time() - 2 * DAY
    os.utime(folder, (then, then))
    assert "deletes 0.3 MB of work that was broken off" in call()[2]
    assert "0.3 MB of work that was broken off deleted" in call("--prune")[2]
    assert not folder.exists()


def test_the_cache_as_json(call, old):
    row = json.loads(call("--older-than", "12h", "--json")[1])
    assert row["unused"] == [old.name]
    assert [tree["name"] for tree in row["trees"]] == [old.name]
    assert row["bytes"]["trees"] >= 9000
    row = json.loads(call("--prune", "--older-than", "12h", "--json")[1])
    assert [tree["name"] for tree in row["removed"]] == [old.name]
    assert (row["trees"], row["unused"]) == ([], [])


@pytest.mark.parametrize("text", ["30", "d", "-1d", "1.5d", "30 d", "ever"])
def test_a_length_of_time_that_is_none(call, text):
    code, out, err = call("--prune", "--older-than", text)
    assert (code, out) == (2, "")
    assert "is not a length of time" in err
    assert "such as 30d" in err

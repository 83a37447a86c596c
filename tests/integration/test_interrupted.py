"""Builds that are stopped in the middle: what they leave, and that the next one works."""

import signal

import pytest
from product import PROJECTS, Ended, Running, invoke, names_in, running, wait_until, wheels_in


@pytest.fixture
def words(dist):
    """A build whose compiler waits for a header that never comes, if STALLED_HEADER_IS "pipe"."""
    return ("build", "--arch", "6.2", "--project", PROJECTS / "stalled", "--dist", dist)


@pytest.fixture
def stuck(words, cache):
    """That build, while its compiler waits."""
    with running(*words, JETSHIP_CACHE=str(cache), STALLED_HEADER_IS="pipe") as task:
        wait_until(lambda: "cc1plus" in task.programs(), "the compiler's start")
        yield task


def stop(task: Running, number: signal.Signals) -> Ended:
    task.send(number)
    return task.end()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_build_that_is_stopped_leaves_no_wheel_and_no_compiler(stuck, cache, dist, number):
    assert "nvcc" in stuck.programs()
    done = stop(stuck, number)
    assert done.status == 130
    assert done.stderr.splitlines()[-1].startswith("error: interrupted")
    assert "Traceback" not in done.stderr
    assert stuck.programs() == []
    assert names_in(dist) == ["logs"]
    assert names_in(cache / "tmp") == []
    assert names_in(stuck.temporary) == []


def test_several_builds_that_are_stopped_leave_nothing_either(cache, dist):
    words = ("--project", PROJECTS / "stalled", "--dist", dist)
    variables = {"JETSHIP_CACHE": str(cache), "STALLED_HEADER_IS": "pipe"}
    with running("build", "--arch", "6.2,7.2", *words, **variables) as task:
        wait_until(lambda: "cc1plus" in task.programs(), "the compiler's start")
        done = stop(task, signal.SIGINT)
        assert done.status == 130
        assert "Traceback" not in done.stderr
        assert "building stalled for sm72" not in done.stderr
        assert task.programs() == []
    assert names_in(dist) == ["logs"]
    assert names_in(cache / "tmp") == []


def test_the_build_after_a_stopped_one_works(stuck, words, cache, dist):
    stop(stuck, signal.SIGINT)
    invoke(*words, JETSHIP_CACHE=str(cache)).good()
    assert len(wheels_in(dist)) == 1


def test_a_build_that_is_killed_leaves_no_compiler(stuck):
    wait_until(lambda: {"nvcc", "cc1plus"} <= set(stuck.programs()), "both compilers")
    assert stop(stuck, signal.SIGKILL).status == -signal.SIGKILL
    wait_until(lambda: stuck.programs() == [], "the end of the compilers")


def test_the_build_after_a_killed_one_works(stuck, words, cache, dist):
    assert stop(stuck, signal.SIGKILL).status == -signal.SIGKILL
    assert wheels_in(dist) == []
    left = [*(cache / "tmp").iterdir(), *dist.glob(".staging-*")]
    assert len(left) == 2
    # As long as they end, they write into what they worked in.
    wait_until(lambda: stuck.programs() == [], "the end of the compilers")
    done = invoke(*words, "--rebuild", JETSHIP_CACHE=str(cache)).good()
    assert [folder for folder in left if folder.exists()] == []
    assert [done.stdout.strip()] == [str(path) for path in wheels_in(dist)]


def test_a_build_for_the_same_place_waits_and_says_so(stuck, words, cache, dist):
    with running(*words, JETSHIP_CACHE=str(cache)) as second:
        wait_until(lambda: "another jetship builds" in second.said(), "the second build's waiting")
        assert wheels_in(dist) == []
        stop(stuck, signal.SIGINT)
        second.end().good()
    assert len(wheels_in(dist)) == 1


def test_a_build_for_another_target_does_not_wait(stuck, cache, dist):
    words = ("--project", PROJECTS / "stalled", "--dist", dist)
    done = invoke("build", "--arch", "7.2", *words, JETSHIP_CACHE=str(cache)).good()
    assert "another jetship" not in done.stderr
    assert "cc1plus" in stuck.programs()

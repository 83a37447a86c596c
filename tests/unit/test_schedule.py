"""Several targets at once. Those that run programs run real ones, and stop them."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import pytest
from jetship import proc
from jetship.schedule import run_all
from jetship.targets.resolve import resolve

ORIN = ("8.7", "jetpack-6.2")
# Says that it is there, and then would run for a minute.
CHILD = "import sys, time; open(sys.argv[1], 'w').write('x'); time.sleep(60)"
# As CHILD, and starts one of those itself.
FAMILY = """\
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[2], sys.argv[1] + ".child"])
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(60)
"""


@pytest.fixture
def targets(catalog):
    """Make targets out of archs and platforms."""

    def targets(*rows):
        return [resolve(catalog, arch=arch, platform=name)[0] for arch, name in rows]

    return targets


class Watch:
    """Remembers what ran when, and with how many jobs."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.running: dict[str, int] = {}
        self.started: list[str] = []
        self.most = 0
        self.before: dict[str, set[str]] = {}
        self.ended: set[str] = set()

    def work(self, target, jobs):
        with self.lock:
            self.running[target.id] = jobs
            self.started.append(target.id)
            self.before[target.id] = set(self.ended)
            self.most = max(self.most, sum(self.running.values()))
        time.sleep(0.02 * (1 + len(self.started) % 3))
        with self.lock:
            del self.running[target.id]
            self.ended.add(target.id)
        return target.id.upper()


def test_results_come_in_the_order_of_the_targets(targets):
    asked = targets(("6.2", "debian-12"), ("7.2", "debian-12"), ORIN, ("8.7", "debian-12"))
    assert run_all(asked, Watch().work, jobs=4) == [target.id.upper() for target in asked]
    assert run_all([], Watch().work, jobs=4) == []


def test_the_first_target_of_a_platform_ends_before_the_others_of_it_start(targets):
    asked = targets(("6.2", "debian-12"), ("7.2", "debian-12"), ORIN, ("8.7", "debian-12"))
    watch = Watch()
    run_all(asked, watch.work, jobs=4)
    assert set(watch.started[:2]) == {"sm62-debian-12", "sm87-jetpack-6.2"}
    for follower in ("sm72-debian-12", "sm87-debian-12"):
        assert "sm62-debian-12" in watch.before[follower]


def test_one_target_alone_gets_all_jobs(targets):
    seen = []
    run_all(targets(("6.2", "debian-12")), lambda _, jobs: seen.append(jobs), jobs=6)
    assert seen == [6]


@pytest.mark.parametrize("jobs", [1, 2, 3, 4, 5, 8, 16])
def test_all_together_never_get_more_jobs_than_there_are(targets, jobs):
    asked = targets(
        *((arch, "debian-12") for arch in ("6.2", "7.2", "8.7", "6.1", "7.5", "8.6")),
        ORIN,
        ("8.7", "jetpack-5.1"),
        ("7.2", "jetpack-5.1"),
    )
    watch = Watch()
    run_all(asked, watch.work, jobs=jobs)
    assert len(watch.ended) == len(asked)
    assert watch.most <= jobs


def test_a_platform_that_is_slow_leaves_the_others_followers_only_what_is_free(targets):
    asked = targets(ORIN, *((arch, "debian-12") for arch in ("6.2", "7.2", "8.7", "6.1")))
    followers = threading.Event()
    given = {}

    def work(target, jobs):
        given[target.id] = jobs
        if len(given) == len(asked):
            followers.set()
        if target.id == "sm87-jetpack-6.2":
            assert followers.wait(30)

    run_all(asked, work, jobs=8)
    late = [jobs for name, jobs in given.items() if name in
            ("sm72-debian-12", "sm87-debian-12", "sm61-debian-12")]  # fmt: skip
    assert given["sm87-jetpack-6.2"] + sum(late) <= 8


def there(path: Path) -> None:
    for _ in range(600):
        if path.exists() and path.read_text():
            return
        time.sleep(0.05)
    raise AssertionError(f"{path} did not come")


def test_an_error_stops_the_programs_of_all_others(targets, tmp_path):
    asked = targets(ORIN, ("6.2", "debian-12"), ("8.7", "jetpack-5.1"))
    ends = {}

    def work(target, _):
        if target.platform.name == "jetpack-5.1":
            for name in ("one", "one.child", "two"):
                there(tmp_path / name)
            raise ZeroDivisionError
        words = [CHILD, str(tmp_path / "two")]
        if target.platform.name == "jetpack-6.2":
            words = [FAMILY, str(tmp_path / "one"), CHILD]
        try:
            proc.run([sys.executable, "-c", *words])
        except proc.StoppedError:
            ends[target.id] = "stopped"
            with pytest.raises(proc.StoppedError):
                proc.run([sys.executable, "-c", CHILD, str(tmp_path / "late")])
            raise

    with pytest.raises(ZeroDivisionError):
        run_all(asked, work, jobs=3)
    assert ends == {"sm87-jetpack-6.2": "stopped", "sm62-debian-12": "stopped"}
    group = int((tmp_path / "one").read_text())
    with pytest.raises(ProcessLookupError):
        os.killpg(group, 0)


def test_targets_that_wait_are_not_started_after_an_error(targets):
    started = []

    def work(target, _):
        started.append(target.id)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        run_all(targets(("6.2", "debian-12"), ("7.2", "debian-12")), work, jobs=1)
    assert started == ["sm62-debian-12"]


def test_an_interruption_stops_all_programs(targets, tmp_path):
    asked = targets(ORIN, ("6.2", "debian-12"))

    def work(target, _):
        proc.run([sys.executable, "-c", CHILD, str(tmp_path / target.id)])

    def interrupt() -> None:
        for target in asked:
            there(tmp_path / target.id)
        os.kill(os.getpid(), signal.SIGINT)

    other = threading.Thread(target=interrupt)
    other.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            run_all(asked, work, jobs=2)
    finally:
        other.join()

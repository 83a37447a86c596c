"""The fleet that the tests of rollouts use: what they rely on is so."""

import os
import signal
import subprocess  # noqa: TID251 - a test run that is to be killed has to run in the background
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from arm64images import HEALTHY, SELFTEST, Image, make_image
from devices import FOLDER, REGISTRY_OPTION, running_fleet, running_registry, sweep_all
from product import wait_until


@pytest.fixture(scope="module")
def image(tmp_path_factory) -> Image:
    return make_image(tmp_path_factory.mktemp("image"), "1.0")


def test_devices_are_apart_from_each_other_and_from_this_machine(fleet):
    one, other = fleet.devices
    for device in fleet.devices:
        assert fleet.ssh(device, "hostname").stdout.strip() == device.name
        assert fleet.ssh(device, "uname", "-m").stdout.strip() == "aarch64"
        assert (
            "R36 (release), REVISION: 4.3"
            in fleet.ssh(device, "cat", "/etc/nv_tegra_release").stdout
        )
    done = fleet.ssh(one, "docker info -f {{.Name}}; id -nG; touch ~/here", user="robot")
    assert done.stdout.split() == ["device1", "robot", "docker"]
    assert fleet.ssh(one, "test", "-e", "/home/robot/here").ok
    assert not fleet.ssh(other, "test", "-e", "/home/robot/here").ok
    assert not Path("/home/robot").exists()
    other.set_release("")
    assert not fleet.ssh(other, "test", "-e", "/etc/nv_tegra_release").ok
    assert fleet.ssh(one, "test", "-e", "/etc/nv_tegra_release").ok


def test_containers_run_and_their_engine_restarts(fleet, image):
    for device in fleet.devices:
        device.load(image)
        assert device.images() == [image.id]
        device.docker("run", "-d", "--name", "app", "--restart", "always", image.tag)
    one, other = fleet.devices
    wait_until(lambda: one.inside("docker", "exec", "app", *HEALTHY).ok, "health")
    assert one.docker("exec", "app", *SELFTEST) == '{"ok": true, "version": "1.0"}'
    assert one.docker("exec", "app", "uname", "-m") == "aarch64"
    (before,), (untouched,) = one.containers(), other.containers()
    one.restart_engine()
    wait_until(one.containers, "the container's start")
    wait_until(lambda: one.inside("docker", "exec", "app", *HEALTHY).ok, "health")
    (after,) = one.containers()
    assert before["Id"] == after["Id"]
    assert before["State"]["StartedAt"] != after["State"]["StartedAt"]
    assert other.containers() == [untouched]
    one.power_off()
    assert not fleet.ssh(one, "true").ok
    one.power_on()
    wait_until(one.containers, "the container's start")
    for device in fleet.devices:
        device.docker("rm", "-f", "app")


def test_links_are_cut_slowed_and_reset(fleet):
    one, other = fleet.devices
    command = "wc -c"
    one.cut()
    done = fleet.ssh(one, "true")
    assert "timed out" in done.stderr or "No route to host" in done.stderr, done
    assert fleet.ssh(other, "true").ok
    one.mend()
    assert fleet.ssh(one, "true").ok
    one.slow(1000)
    start, before = time.monotonic(), one.received_bytes
    assert fleet.send(one, bytes(2_000_000), command).stdout.strip() == b"2000000"
    assert 1.5 < time.monotonic() - start < 6
    assert 2_000_000 < one.received_bytes - before < 2_300_000
    one.slow(100)
    before = one.received_bytes
    with ThreadPoolExecutor(1) as thread:
        sending = thread.submit(fleet.send, one, bytes(2_000_000), command)
        wait_until(lambda: one.received_bytes - before > 100_000, "some of the transfer")
        one.reset_links()
        assert sending.result().returncode == 255
    one.fast()
    assert fleet.ssh(one, "true").ok


def test_sshd_is_killed_with_its_sessions_or_without(fleet):
    device = fleet.devices[0]
    for sessions, status in ((True, 255), (False, 0)):
        with ThreadPoolExecutor(1) as thread:
            sleeping = thread.submit(fleet.ssh, device, "sleep", "2")
            wait_until(lambda: device.processes("sleep"), "the session")
            device.kill_sshd(sessions=sessions)
            assert sleeping.result().status == status
        assert "Connection refused" in fleet.ssh(device, "true").stderr
        device.start_sshd()
        wait_until(lambda: not device.processes("sleep"), "the end of the command")


def test_a_clock_that_is_wrong(fleet):
    device = fleet.devices[0]
    for skew in (-86400, 86400, 0):
        device.set_clock(skew)
        told = fleet.ssh(device, "python3", "-c", "'import time; print(time.time())'").stdout
        assert abs(float(told) - time.time() - skew) < 10


def test_a_changed_host_key_is_seen(fleet):
    device = fleet.devices[1]
    device.change_host_key()
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in fleet.ssh(device, "true").stderr


def test_a_small_disk_is_filled(image):
    with running_fleet(1, disk_mb=24) as fleet:
        (device,) = fleet.devices
        device.load(image)
        device.fill_disk(leave_mb=1)
        done = device.inside("docker", "run", image.tag, "sh", "-c", "cat /dev/zero > /full")
        assert "No space left on device" in done.stderr, done
        assert not fleet.ssh(device, "head -c 3000000 /dev/zero > ~/file", user="robot").ok
        device.free_disk()
        assert fleet.ssh(device, "head -c 3000000 /dev/zero > ~/file", user="robot").ok


@pytest.mark.parametrize("behaviour", ["crashes", "dies", "never-healthy", "fails-selftest"])
def test_images_behave_as_they_are_called(fleet, behaviour, tmp_path):
    device = fleet.devices[0]
    made = make_image(tmp_path, "2.0", behaviour=behaviour, seconds=2)
    device.load(made)
    device.docker("run", "-d", "--name", "app", made.tag)

    def healthy() -> bool:
        return device.inside("docker", "exec", "app", *HEALTHY).ok

    def runs() -> bool:
        return device.docker("inspect", "-f", "{{.State.Running}}", "app") == "true"

    try:
        if behaviour == "crashes":
            wait_until(lambda: not runs(), "the crash")
            assert device.docker("inspect", "-f", "{{.State.ExitCode}}", "app") == "3"
        elif behaviour == "dies":
            wait_until(healthy, "health")
            wait_until(lambda: not runs(), "the end")
        else:
            assert runs()
            assert device.inside("docker", "exec", "app", *SELFTEST).ok == (
                behaviour != "fails-selftest"
            )
            assert not (behaviour == "never-healthy" and healthy())
    finally:
        device.docker("rm", "-f", "app")


def test_versions_share_the_lower_layer(image, tmp_path):
    again = make_image(tmp_path, "1.0")
    other = make_image(tmp_path, "1.1")
    assert again.id == image.id, "the same bytes, wherever it is made"
    assert other.diff_ids[0] == image.diff_ids[0]
    assert other.diff_ids[1] != image.diff_ids[1]


_KILLED = """\
import os, sys
from devices import (FOLDER, REGISTRY_OPTION, Fleet, running_fleet, running_registry, sweep_all)
with running_fleet(1) as fleet:
    (device,) = fleet.devices
    print(fleet.number, *device.processes(), flush=True)
    sys.stdin.read()
"""


def test_a_killed_test_run_leaves_nothing_that_runs():
    path = os.pathsep.join(sys.path)
    with subprocess.Popen(
        [sys.executable, "-c", _KILLED],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    ) as child:
        number, *processes = map(int, child.stdout.readline().split())
        assert len(processes) >= 4
        child.send_signal(signal.SIGKILL)
    wait_until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in processes), "their end")
    # Of what is left, the next fleet takes the place.
    left = FOLDER / str(number)
    assert left.exists()
    with running_fleet(1) as fleet:
        assert fleet.number <= number or not left.exists()
    sweep_all()
    assert not left.exists()


def test_devices_pull_from_a_registry(image):
    with (
        running_fleet(2, engine_options=[REGISTRY_OPTION]) as fleet,
        running_registry(fleet) as registry,
    ):
        pushing, pulling = fleet.devices
        pushing.load(image)
        name = f"{registry}/fleet:1.0"
        pushing.docker("tag", image.tag, name)
        pushing.docker("push", name)
        pulling.docker("pull", name)
        assert pulling.images() == [image.id]

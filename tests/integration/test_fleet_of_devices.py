"""The fleet that the tests of rollouts use: what they rely on is so."""

import os
import signal
import subprocess  # noqa: TID251 - a test run that is to be killed has to run in the background
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from arm64images import HEALTHY, SELFTEST, Image, make_image
from devices import FOLDER, Fleet, running_fleet
from product import wait_until


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with running_fleet(2) as running:
        yield running


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
    command = "head -c 3000000 /dev/zero | wc -c"
    one.cut()
    done = fleet.ssh(one, "true")
    assert "timed out" in done.stderr or "No route to host" in done.stderr, done
    assert fleet.ssh(other, command).stdout.strip() == "3000000"
    one.mend()
    assert fleet.ssh(one, command).stdout.strip() == "3000000"


def test_a_changed_host_key_is_seen(fleet):
    device = fleet.devices[1]
    device.change_host_key()
    assert "REMOTE HOST IDENTIFICATION HAS CHANGED" in fleet.ssh(device, "true").stderr

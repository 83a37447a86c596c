"""Rollouts to a fleet of real parts, as people do them: canaries, a failing wave, going back."""

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from arm64images import Image, make_image
from devices import Fleet, running_fleet
from jetship.fleet.alone import alone
from jetship.fleet.link import open_link
from jetship.ssh import Login
from jetship.targets.device import Address
from rollouts import APP, Deployer, follow

CAMERA = "/home/robot/camera"


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with running_fleet(3) as running:
        yield running


@pytest.fixture
def deployer(fleet, old, tmp_path) -> Deployer:
    """Whose three devices run the old image; rollouts go one by one."""
    for device in fleet.devices:
        device.inside("rm", "-rf", CAMERA)
        device.inside("install", "-d", "-o", "robot", CAMERA)
    made = Deployer(
        fleet, tmp_path / "deployer", settings={"image": {"mounts": [f"{CAMERA}:/dev-x"]}}
    )
    made.deploy(old).good()
    made.require_whole(old)
    return made


def versions(deployer: Deployer, *allowed: Image) -> list[str]:
    found = deployer.require_whole(*allowed)
    return [found[device.name].version for device in deployer.devices]


def runs(deployer: Deployer, *allowed: Image) -> list[str]:
    """As `versions`, after going back, where "already" does not mean the new image."""
    return [deployer._one_whole(device, allowed).version for device in deployer.devices]


def newest(deployer: Deployer) -> Callable[[], list[dict[str, Any]]]:
    """Return what reads the journal of the rollout that begins next."""
    before = deployer.journal()[0]["release"]

    def read() -> list[dict[str, Any]]:
        lines = deployer.journal()
        return lines if lines and lines[0]["release"] != before else []

    return read


def events(deployer: Deployer, kind: str) -> list[str]:
    return [line["device"] for line in deployer.journal() if line["event"] == kind]


def test_a_canary_then_a_wave_and_back_again(deployer, old, new):
    ended = deployer.deploy(new, strategy={"canary": 1, "wave": 2, "max_failures": 0}).good()
    assert "==> canary: 1 device" in ended.stderr
    assert "==> wave 1: 2 devices" in ended.stderr
    assert "3 of 3 devices have the image" in ended.stderr
    lines = [(line["event"], line.get("device")) for line in deployer.journal()]
    first = lines.index(("ended", "device1"))
    assert not [row for row in lines[:first] if row[0] == "started" and row[1] != "device1"]
    assert versions(deployer, old, new) == ["1.1"] * 3
    release = deployer.journal()[0]["release"]

    again = deployer.deploy(new, "--json").good().json
    assert {row["result"] for row in again["devices"]} == {"already"}
    assert not events(deployer, "started")

    status = deployer.task("status", "--json").good().json["devices"]
    assert [row["current"]["image"] for row in status] == [new.id] * 3
    assert [row["previous"]["image"] for row in status] == [old.id] * 3
    assert all(row["current"]["release"].startswith(f"{release}.") for row in status)
    assert [row["container"] for row in status] == ["running"] * 3
    assert [row["l4t"] for row in status] == ["r36.4.3"] * 3

    deployer.task("rollback").good()
    assert runs(deployer, old) == ["1.0"] * 3
    deployer.task("rollback").good()
    assert set(deployer.results().values()) == {"already"}
    assert runs(deployer, old) == ["1.0"] * 3

    there = deployer.task("rollback", "--to", release, "--device", "device2", "--json").good().json
    assert [(row["name"], row["result"]) for row in there["devices"]] == [("device2", "committed")]
    assert there["devices"][0]["sent_bytes"] == 0
    assert runs(deployer, old, new) == ["1.0", "1.1", "1.0"]


def test_a_wave_that_fails_takes_all_back(deployer, old, new):
    """Only the third device's camera is missing, so the canary has no chance to see it."""
    for device in deployer.devices[:2]:
        device.inside("touch", f"{CAMERA}/works")
    ended = deployer.deploy(
        new,
        health={"command": ["test", "-e", "/dev-x/works"], "timeout": 2},
        strategy={"canary": 1, "wave": 2, "max_failures": 0, "rollback": "all"},
    )
    error = ended.one_error(9)
    assert "0 of 3 devices have the image" in error
    assert "device3 rolled-back" in error
    assert deployer.results() == {
        "device1": "reverted", "device2": "reverted", "device3": "rolled-back",
    }  # fmt: skip
    assert versions(deployer, old, new) == ["1.0"] * 3
    last = deployer.task("status").good().stdout
    assert "rolled-back" in last


def test_only_the_device_that_fails_goes_back(deployer, old, new):
    for device in deployer.devices[1:]:
        device.inside("touch", f"{CAMERA}/works")
    health = {"command": ["test", "-e", "/dev-x/works"], "timeout": 2}
    ended = deployer.deploy(new, health=health, strategy={"max_failures": 1})
    assert "2 of 3 devices have the image" in ended.one_error(9)
    assert versions(deployer, old, new) == ["1.0", "1.1", "1.1"]
    deployer.devices[0].inside("touch", f"{CAMERA}/works")
    deployer.deploy(new, health=health).good()
    assert events(deployer, "started") == ["device1"]
    assert versions(deployer, new) == ["1.1"] * 3


def test_what_cannot_run_there_is_never_sent(deployer, old, new):
    first, second, third = deployer.devices
    before = second.received_bytes
    second.set_release("# R35 (release), REVISION: 4.1, GCID: 1, BOARD: generic")
    third.kill_sshd()
    try:
        error = deployer.deploy(new, strategy={"max_failures": 1}).one_error(9)
    finally:
        second.set_release(first.release)
        third.start_sshd()
    assert "device2 refused: its L4T r35.4.1 does not run images of jetpack-6.2" in error
    assert "device3 unreachable" in error
    assert "not begun: device1" in error
    assert second.received_bytes - before < 200_000
    assert versions(deployer, old, new) == ["1.0"] * 3


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_deployer_that_ends_in_the_swap_is_resumed(deployer, old, new, how):
    read = newest(deployer)
    with deployer.deploying(new, strategy={"canary": 1, "wave": 2}) as one:
        follow(read, "swapping")
        one.send(how)
        ended = one.end()
    assert ended.status in (-signal.SIGKILL, 130), ended.stderr
    deployer.wait_until_idle(deployer.devices[0])
    versions(deployer, old, new)
    deployer.resume().good()
    assert versions(deployer, new) == ["1.1"] * 3
    # The first one's order may have been written down and not been given any more.
    swaps = events(deployer, "swapping")
    assert sorted(set(swaps)) == ["device1", "device2", "device3"]
    assert swaps.count("device2") == swaps.count("device3") == 1
    assert "has ended (complete)" in deployer.resume().one_error(3)


def test_a_second_deployer_is_told_who_the_first_one_is(deployer, fleet, old, new):
    with alone(deployer.folder / ".jetship/rollouts"):
        for ended in (deployer.deploy(new), deployer.resume(), deployer.task("rollback")):
            error = ended.one_error(9)
            assert "is under way on this machine" in error
            assert f"(process {os.getpid()})" in error
    # From another machine only the devices can know.
    device = deployer.devices[1]
    login = Login(Address("robot", device.address), fleet.identity, fleet.known_hosts)
    with contextlib.closing(open_link(login, app=APP, release="other", who="eve@laptop")):
        error = deployer.deploy(new, strategy={"max_failures": 0}).one_error(9)
        assert "device2 unreachable: another session holds" in error
        assert "eve@laptop, for other, since 20" in error
        status = deployer.task("status").good().stdout
        assert "eve@laptop works on it for other since 20" in status
    assert versions(deployer, old, new) == ["1.0"] * 3
    assert not events(deployer, "started")


def test_what_people_do_by_hand_is_mended(deployer, old, new, images):
    """Containers removed and stopped, an image deleted, the state file gone: one device after all.

    The rollouts are the ordinary ones, of all three devices.
    """
    bad = make_image(images, "2.0", behaviour="crashes")
    device = deployer.devices[0]
    only = ("--device", device.name)
    health = {"timeout": 4}
    deployer.deploy(new).good()

    # The state file goes: containers and journal tell all of it.
    state = deployer.state(device)
    file = deployer._state_folder(device) / "state.json"
    file.unlink()
    told = deployer.task("status", *only, "--json").good().json["devices"][0]
    assert not file.exists(), "a look changes nothing"
    assert told["note"] == "its state file was lost; its containers tell what it has"
    for which in ("current", "previous"):
        assert told[which]["release"] == state[which]["release"]
    deployer.visit(device)
    assert deployer.state(device)["previous"] == state["previous"]

    # The container goes, and a release that crashes comes: the old one is made again.
    device.docker("rm", "-f", state["current"]["container"])
    error = deployer.task("status", *only).one_error(9)
    assert "device1: its container is missing" in error
    error = deployer.deploy(bad, *only, health=health).one_error(9)
    assert "device1 rolled-back" in error
    assert runs(deployer, new) == ["1.1"] * 3

    # The same release once more, after its container was stopped: 1.0 stays the previous one.
    device.docker("stop", "-t", "1", deployer.state(device)["current"]["container"])
    deployer.deploy(new, *only).good()
    assert deployer.results() == {"device1": "committed"}
    state = deployer.state(device)
    assert state["previous"]["image"] == old.id

    # What it had before goes, with its image: the engine is not sent out to look for it.
    device.docker("rm", "-f", state["previous"]["container"])
    for name in device.docker("images", "--no-trunc", "--format", "{{.ID}} {{.Repository}}:{{.Tag}}"
                              ).splitlines():  # fmt: skip
        if name.startswith(old.id):
            device.docker("rmi", name.split()[1])
    assert old.id not in device.images()
    error = deployer.task("rollback", *only).one_error(9)
    assert "the image of its previous release is no longer on the device" in error
    assert f"--to {state['previous']['release'].split('.')[0]} --device device1" in error
    assert "jetship.device" not in (device.folder / "dockerd.log").read_text(errors="replace")
    assert runs(deployer, new) == ["1.1"] * 3

    # Nothing is left to go back to: broken at once, and whole again with the next good release.
    device.docker("rm", "-f", state["current"]["container"])
    state["current"]["settings"] = None
    file.write_text(json.dumps(state))
    error = deployer.deploy(bad, *only, health=health).one_error(9)
    assert "device1 broken" in error
    assert deployer.state(device)["swap"] is None
    assert "is missing" in deployer.task("status", *only).one_error(9)
    deployer.deploy(new, *only).good()
    assert runs(deployer, new) == ["1.1"] * 3

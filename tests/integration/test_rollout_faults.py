"""Faults in a rollout: whatever happens, each device runs the old image or the new one, whole.

The fleet is one of tests/integration/devices.py: real sshd, real dockerd, real containers. A
fault comes to each device of a rollout at another step of its own, so one rollout tries it at all
of them.
"""

import calendar
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
from arm64images import Image, make_image
from devices import Device, Fleet, running_fleet
from faults import FAULTS, SLOW_KB_A_SECOND, STEPS, SWAP_STEPS, faults_at, wait_for_step
from rollouts import Deployer, follow

DISK_MB = 320  # the gate wants a quarter of a GiB beside what an image needs
DEPLOYER_STEPS = ("planned", "wave", "started", "sending", "sent", "swapping", *SWAP_STEPS, "ended")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with running_fleet(len(STEPS)) as running:
        yield running


@pytest.fixture
def deployer(fleet, old, tmp_path) -> Deployer:
    """Whose devices all run the old image."""
    made = Deployer(fleet, tmp_path / "deployer")
    made.deploy(old).good()
    made.require_whole(old)
    return made


@pytest.fixture
def few(fleet, old, tmp_path) -> Deployer:
    """The same, of two devices."""
    made = Deployer(fleet, tmp_path / "deployer", devices=fleet.devices[:2])
    made.deploy(old).good()
    made.require_whole(old)
    return made


def forget(deployer: Deployer, image: Image) -> None:
    """Let no device have an image, so that it is sent again. None runs it."""
    for device in deployer.devices:
        for one in device.containers(everything=True):
            if one["Image"] == image.id:
                device.docker("rm", one["Id"])
        if image.id in device.images():
            device.docker("rmi", "-f", image.id)


def tell(deployer: Deployer, name: str, steps: Sequence[str], found: dict[str, Image]) -> None:
    """Say what came of a fault at each step: pytest shows it with -s or -rP."""
    results = deployer.results()
    for device, step in zip(deployer.devices, steps, strict=True):
        print(f"{name:22} {step:12} {results[device.name]:12} {found[device.name].version}")


def test_power_that_goes_at_two_steps(few, old, new):
    """Of the faults at each step, which take minutes, the one that leaves nothing running."""
    steps = ("sending", "settling")
    forget(few, new)
    with faults_at(few, FAULTS["power lost"], steps):
        few.deploy(new)
    for device in few.devices:
        few.wait_until_idle(device)
    tell(few, "power lost", steps, few.require_whole(old, new))
    few.deploy(new).good()
    assert few.versions(new) == {"1.1"}


@pytest.mark.long
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_at_each_step(deployer, old, new, name):
    forget(deployer, new)
    with faults_at(deployer, FAULTS[name], STEPS):
        ended = deployer.deploy(new)
    assert ended.status in (0, 9), ended.stderr
    for device in deployer.devices:
        deployer.wait_until_idle(device)
    tell(deployer, name, STEPS, deployer.require_whole(old, new))
    # None is left in a state that a rollout without faults cannot mend.
    deployer.deploy(new).good()
    assert deployer.versions(new) == {"1.1"}


@pytest.mark.long
@pytest.mark.parametrize("name", ["sshd killed", "dockerd killed", "power lost", "worker killed"])
def test_a_fault_at_each_step_of_going_back(deployer, old, new, tmp_path, name):
    steps = [step for step in SWAP_STEPS if step != "creating"]
    deployer.deploy(new).good()
    with faults_at(deployer, FAULTS[name], steps):
        ended = deployer.task("rollback")
    assert ended.status in (0, 9), ended.stderr
    for device in deployer.devices:
        deployer.wait_until_idle(device)
    results = deployer.results()
    # Here what is rolled back is the way back: such a device keeps the new image.
    blind = Deployer(deployer.fleet, tmp_path / "blind")
    for device, image in blind.require_whole(old, new).items():
        assert results[device] in ("reverted", "rolled-back")
        assert image is (old if results[device] == "reverted" else new), device
    for device, step in zip(deployer.devices, steps, strict=False):
        print(f"back, {name:16} {step:12} {results[device.name]}")
    deployer.deploy(new).good()
    assert deployer.versions(new) == {"1.1"}


@pytest.mark.long
def test_a_disk_that_gets_full_at_each_step(old, new, tmp_path):
    """The device's one disk, of docker's data and of the state, takes no byte more."""
    with running_fleet(len(STEPS), disk_mb=DISK_MB) as fleet:
        deployer = Deployer(fleet, tmp_path / "deployer")
        deployer.deploy(old).good()
        with faults_at(deployer, lambda device: device.fill_disk(leave_mb=0), STEPS):
            ended = deployer.deploy(new)
        assert ended.status in (0, 9), ended.stderr
        running = {}
        for device in fleet.devices:
            deployer.wait_until_idle(device)
            running[device.name] = len(device.containers())
            device.free_disk()
            # A device whose state file could not be written is mended by the next session.
            deployer.visit(device)
        tell(deployer, "disk full", STEPS, deployer.require_whole(old, new))
        assert set(running.values()) == {1}, "each ran one also while its disk was full"
        deployer.deploy(new).good()
        assert deployer.versions(new) == {"1.1"}


@pytest.mark.long
@pytest.mark.parametrize("step", DEPLOYER_STEPS)
def test_a_deployer_killed_at_each_step_is_resumed(few, old, new, step):
    one, other = few.devices
    forget(few, new)
    known, written = len(few.notes(one)), few.journals()
    one.slow(SLOW_KB_A_SECOND)
    with few.deploying(new, strategy={"canary": 1, "wave": 1}) as deploying:
        if step in STEPS:
            wait_for_step(few, one, step, known)
        else:
            follow(lambda: few.journal() if few.journals() > written else [], step)
        deploying.send(signal.SIGKILL)
        assert deploying.end().status == -signal.SIGKILL
    one.fast()
    for device in few.devices:
        few.wait_until_idle(device)
    # What had been ordered was done to its end with nobody looking; nothing else was begun.
    found = few.require_whole(old, new)
    assert found[other.name] is old
    if step in SWAP_STEPS or step == "ended":
        assert found[one.name] is new
    elif step != "swapping":
        assert found[one.name] is old
    print(f"deployer killed at {step:12} {found[one.name].version}, then resumed")
    few.resume().good()
    assert few.versions(new) == {"1.1"}
    assert few.results() == {one.name: "committed", other.name: "committed"}
    events = [line["event"] for line in few.notes(one)[known:]]
    assert events.count("begun") == 1, "it changed once"


@pytest.mark.long
def test_two_deployers_at_once(few, images, new, tmp_path):
    """Each device is one's alone at a time, and runs the image of who had it last."""
    newer = make_image(images, "1.2")
    other = Deployer(few.fleet, tmp_path / "other", devices=few.devices)
    known = {device.name: len(few.notes(device)) for device in few.devices}
    with ThreadPoolExecutor(2) as pool:
        ended = [pool.submit(one.deploy, image) for one, image in ((few, new), (other, newer))]
    assert {one.result().status for one in ended} <= {0, 9}
    blind = Deployer(few.fleet, tmp_path / "blind", devices=few.devices)
    found = blind.require_whole(new, newer)
    for device in few.devices:
        both = (few.results()[device.name], other.results()[device.name])
        assert set(both) <= {"committed", "unreachable"}
        if both != ("committed", "committed"):
            assert found[device.name] is (new if both[0] == "committed" else newer)
        notes = [line["event"] for line in few.notes(device)[known[device.name] :]]
        changes = [event for event in notes if event in ("begun", "ended")]
        assert changes == ["begun", "ended"] * both.count("committed"), "never two at a time"


@pytest.mark.long
@pytest.mark.parametrize("swap", ["replace", "beside"])
def test_images_that_are_not_well(fleet, old, images, tmp_path, swap):
    """Five rollouts at once, each of another image, to a device of its own."""
    behaviours = ("crashes", "dies", "never-healthy", "health-hangs", "fails-selftest")
    sick = {
        kind: make_image(images, f"2.{number}", behaviour=kind, seconds=2)
        for number, kind in enumerate(behaviours)
    }
    for image in (old, *sick.values()):
        fleet.builder.load(image)

    def roll_out(device: Device, kind: str) -> str:
        mine = Deployer(fleet, tmp_path / kind, devices=[device])
        mine.deploy(old).good()
        health = {"settle": 4, "timeout": 4}
        error = mine.deploy(sick[kind], health=health, strategy={"swap": swap}).one_error(9)
        mine.require_whole(old, sick[kind])
        assert mine.results() == {device.name: "rolled-back"}
        return error

    with ThreadPoolExecutor(len(behaviours)) as pool:
        errors = dict(zip(behaviours, pool.map(roll_out, fleet.devices, behaviours), strict=False))
    assert "the container stopped with exit status 3" in errors["crashes"]
    assert "the container stopped with exit status 4" in errors["dies"]
    assert "the health command did not succeed within 4 s" in errors["never-healthy"]
    assert "it was stopped at its limit" in errors["health-hangs"]
    assert "the self test fails" in errors["fails-selftest"]


@pytest.mark.long
def test_devices_whose_clock_is_wrong(few, old, new):
    """Times are the deployer's; only certificates would care, and nothing is pulled here."""
    ahead, behind = few.devices
    try:
        ahead.set_clock(86400 * 400)
        behind.set_clock(-86400 * 400)
        ended = few.deploy(new).good()
    finally:
        for device in few.devices:
            device.set_clock(0)
    assert f"{ahead.name}: its clock is 400 days ahead" in ended.stderr
    assert f"{behind.name}: its clock is 400 days behind" in ended.stderr
    assert few.versions(old, new) == {"1.1"}
    for device in few.devices:
        at = time.strptime(few.notes(device)[-1]["at"], "%Y-%m-%dT%H:%M:%SZ")
        assert abs(calendar.timegm(at) - time.time()) < 120


@pytest.mark.long
def test_a_device_with_another_host_key_gets_nothing(few, old, new):
    changed, other = few.devices
    known = few.notes(changed)
    changed.change_host_key()
    error = few.deploy(new).one_error(9)
    assert f"{changed.name} unreachable" in error
    assert "has another host key than the one that is known" in error
    assert few.notes(changed) == known
    assert few.require_whole(old, new)[other.name] is new
    few.fleet.known_hosts.write_text("".join(one.host_key for one in few.fleet.devices))
    few.deploy(new).good()
    assert few.versions(new) == {"1.1"}

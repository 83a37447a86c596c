"""Faults in a rollout: whatever happens, each device runs the old image or the new one, whole.

The fleet is one of tests/integration/devices.py: real sshd, real dockerd, real containers. A
fault comes to each device of a rollout at another step of its own, so one rollout tries it at all
of them.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from arm64images import Image, make_image
from devices import Fleet, running_fleet
from faults import FAULTS, STEPS, faults_at
from rollouts import Deployer

CORE = ("sshd killed", "dockerd killed", "power lost")


@pytest.fixture(scope="module")
def fleet() -> Iterator[Fleet]:
    with running_fleet(len(STEPS)) as running:
        yield running


@pytest.fixture(scope="module")
def images(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def old(images) -> Image:
    return make_image(images, "1.0")


@pytest.fixture(scope="module")
def new(images) -> Image:
    return make_image(images, "1.1")


@pytest.fixture(scope="module")
def newer(images) -> Image:
    return make_image(images, "1.2")


@pytest.fixture
def deployer(fleet, old, tmp_path) -> Deployer:
    """Whose devices all run the old image."""
    made = Deployer(fleet, tmp_path / "deployer")
    made.deploy(old).good()
    made.require_whole(old)
    return made


def forget(deployer: Deployer, image: Image) -> None:
    """Let no device have an image, so that it is sent again."""
    for device in deployer.devices:
        state = deployer.state(device)
        for key in ("current", "previous"):
            assert not state[key] or state[key]["image"] != image.id or key == "previous"
        if image.id in device.images():
            for one in device.containers(everything=True):
                if one["Image"] == image.id:
                    device.docker("rm", "-f", one["Id"])
            device.docker("rmi", "-f", image.id)


def marked(name: str) -> object:
    return pytest.param(name, marks=() if name in CORE else pytest.mark.long)


@pytest.mark.parametrize("name", [marked(name) for name in FAULTS])
def test_a_fault_at_each_step(deployer, old, new, name):
    forget(deployer, new)
    with faults_at(deployer, FAULTS[name], STEPS):
        ended = deployer.deploy(new)
    assert ended.status in (0, 9), ended.stderr
    for device in deployer.devices:
        deployer.wait_until_idle(device)
    shown = "\n".join(
        f"{device.name} at {step}: {deployer.results().get(device.name)}"
        for device, step in zip(deployer.devices, STEPS, strict=True)
    )
    print(shown, ended.stderr)
    found = deployer.require_whole(old, new)
    results = deployer.results()
    print(name)
    for device, step in zip(deployer.devices, STEPS, strict=True):
        print(f"  {step:10} {results[device.name]:12} {found[device.name].version}")
    # None is left in a state that a rollout without faults cannot mend.
    deployer.deploy(new).good()
    assert {image.version for image in deployer.require_whole(new).values()} == {"1.1"}

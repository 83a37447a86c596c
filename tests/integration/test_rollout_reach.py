"""What a rollout costs: the bytes of a second release, many devices beside one, a large plan."""

import gzip
import io
import os
import tarfile
import time
from pathlib import Path

import pytest
import yaml
from arm64images import Image, make_image
from devices import running_fleet
from rollouts import Deployer

DEVICES = 12
PLANNED = 5000


def compressed_bytes(image: Image) -> int:
    """Return the size of an image's upper layer as gzip has it."""
    with tarfile.open(image.archive) as archive:
        name = image.diff_ids[-1].removeprefix("sha256:") + "/layer.tar"
        member = archive.extractfile(name)
        assert member is not None
        packed = io.BytesIO()
        with gzip.GzipFile(fileobj=packed, mode="wb") as out:
            out.write(member.read())
    return len(packed.getvalue())


@pytest.mark.parametrize("user", ["robot", "root"])
def test_a_second_release_brings_only_its_layer(tmp_path, user):
    """Over the link with all headers, SSH's and the program's own bytes, to devices without any
    other connection than this one."""
    old = make_image(tmp_path, "1.0", wheel_kb=4000)
    new = make_image(tmp_path, "1.1", wheel_kb=4000)
    with running_fleet(1) as fleet:
        deployer = Deployer(fleet, tmp_path / "deployer", user=user)
        deployer.deploy(old).good()
        (device,) = fleet.devices
        before, layer = device.received_bytes, compressed_bytes(new)
        deployer.deploy(new).good()
        ratio = (device.received_bytes - before) / layer
        print(f"bytes of a second release: {ratio:.2f} times the wheel's layer ({layer} bytes)")
        assert deployer.versions(old, new) == {"1.1"}
        assert 1 < ratio <= 1.2


@pytest.mark.long
def test_twelve_devices_beside_one(tmp_path):
    """The images are there already, and health is asked for as deploy.yaml has it by default."""
    images = [make_image(tmp_path, f"1.{number}") for number in range(3)]
    defaults = {"health": {"timeout": 120, "interval": 2, "settle": 10},
                "strategy": {"parallel": DEVICES}}  # fmt: skip
    with running_fleet(DEVICES) as fleet:
        alone = Deployer(fleet, tmp_path / "one", devices=fleet.devices[:1], settings=defaults)
        together = Deployer(fleet, tmp_path / "all", settings=defaults)
        for device in fleet.devices:
            for image in images:
                device.load(image)
        # Once, so that what is made once is made: the check of each image.
        for image in images:
            fleet.builder.load(image)
            alone.deploy(image).good()
        together.deploy(images[0]).good()
        one = seconds(alone, images[1])
        every = seconds(together, images[2])
        print(f"one device: {one:.1f} s; {DEVICES} at once: {every:.1f} s, {every / one:.2f} times")
        assert together.versions(images[2]) == {"1.2"}
        assert every <= 2.5 * one


def seconds(deployer: Deployer, image: Image) -> float:
    start = time.monotonic()
    deployer.deploy(image).good()
    return time.monotonic() - start


@pytest.mark.long
def test_a_plan_for_thousands(tmp_path):
    image = make_image(tmp_path, "1.0")
    with running_fleet(0) as fleet:
        deployer = Deployer(fleet, tmp_path / "deployer")
        deployer.deploy(image, "--dry")
        document = yaml.safe_load(deployer.file.read_text())
        document["fleet"]["devices"] = [
            {"name": f"robot{number}", "host": f"robot{number}.example.net"}
            for number in range(PLANNED)
        ]
        document["strategy"] |= {"canary": 5, "wave": "10%"}
        deployer.file.write_text(yaml.safe_dump(document))
        start, before = time.monotonic(), os.times()
        ended = deployer.task("deploy", "--dry", "--json").good()
        after, wall = os.times(), time.monotonic() - start
        # What else runs on this machine is not the plan's.
        used = after.children_user - before.children_user
        used += after.children_system - before.children_system
        print(f"a plan for {PLANNED} devices: {wall:.1f} s, {used:.1f} s of a core")
        plan = ended.json["plan"]
        assert len(plan["devices"]) == PLANNED
        assert sum(len(wave["devices"]) for wave in plan["waves"]) == PLANNED
        assert used <= 3


def test_nothing_of_the_fleet_is_left(tmp_path):
    """After a rollout too: no process, no network, no mount, no group of the kernel's."""
    with running_fleet(1) as fleet:
        Deployer(fleet, tmp_path / "deployer").deploy(make_image(tmp_path, "1.0")).good()
        (device,) = fleet.devices
        processes = device.processes()
        assert len(processes) > 5
    assert not any(Path(f"/proc/{pid}").exists() for pid in processes)
    assert not Path(f"/sys/class/net/{device.wire}").exists()
    assert not device.folder.exists()
    assert str(device.folder) not in Path("/proc/mounts").read_text()
    assert not list(Path("/sys/fs/cgroup").glob(f"**/{device.cgroup.lstrip('/')}"))

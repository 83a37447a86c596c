"""Rollouts to the test fleet: a deployer with a deploy.yaml of its own, and what devices then run.

    deployer = Deployer(fleet, tmp_path)
    deployer.deploy(old).good()
    ended = deployer.deploy(new)
    deployer.require_whole(old, new)

The engine of the deployer is the fleet's build machine, and the images are real ones, checked as
any others.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from arm64images import HEALTHY, REPOSITORY, SELFTEST, Image
from devices import Device, Fleet
from jetship.fleet.link import open_link
from jetship.ssh import Login
from jetship.targets.device import Address
from product import Ended, Running, invoke, running, wait_until

APP = REPOSITORY.replace("/", "-")
TARGET = {"arch": "8.7", "platform": "jetpack-6.2"}
STATE = f".local/share/jetship/{APP}"
NEW_RESULTS = {"committed", "already"}
OLD_RESULTS = {"rolled-back", "refused", "unreachable", "failed", "reverted"}


@dataclass
class Deployer:
    """Somebody who rolls out to the fleet from a folder of his own.

    Args:
        fleet: where to.
        folder: has deploy.yaml, and with it the journals.
        user: who logs in on the devices.
        devices: of the fleet (default: all).
        settings: what deploy.yaml says beside the fleet, by its top keys; a rollout's own words
            are merged into these.
    """

    fleet: Fleet
    folder: Path
    user: str = "robot"
    devices: Sequence[Device] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.devices = self.devices or self.fleet.devices
        self.folder.mkdir(exist_ok=True)

    # --- what it does ---

    def deploy(self, image: Image, *words: str | Path, **changes: Any) -> Ended:
        """Roll an image out; `changes` are merged into deploy.yaml."""
        return invoke(*self._words(image, changes), *words, **self._variables)

    @contextlib.contextmanager
    def deploying(self, image: Image, *words: str, **changes: Any) -> Iterator[Running]:
        """Roll an image out in the background."""
        with running(*self._words(image, changes), *words, **self._variables) as one:
            yield one

    def resume(self, *words: str) -> Ended:
        """Go on with the newest rollout."""
        return invoke("deploy", "--resume", "--deploy", self.file, *words, **self._variables)

    def task(self, name: str, *words: str) -> Ended:
        """Run another task with this deploy.yaml."""
        return invoke(name, "--deploy", self.file, *words, **self._variables)

    def _words(self, image: Image, changes: Mapping[str, Any]) -> list[str | Path]:
        if image.id not in self.fleet.builder.images():
            self.fleet.builder.load(image)
        self.write(**changes)
        return ["deploy", "--deploy", self.file, "--image", image.version]

    @property
    def _variables(self) -> dict[str, str]:
        return {"DOCKER_HOST": f"unix://{self.fleet.builder.socket}"}

    @property
    def file(self) -> Path:
        return self.folder / "deploy.yaml"

    def write(self, **changes: Any) -> None:
        """Write deploy.yaml."""
        document: dict[str, Any] = {
            "targets": [TARGET],
            "image": {"repository": REPOSITORY, "smoke": [*SELFTEST]},
            "health": {"command": [*HEALTHY], "timeout": 8, "interval": 0.2, "settle": 1},
            "fleet": {
                "defaults": {
                    "user": self.user,
                    "board": "orin",
                    "identity": str(self.fleet.identity),
                    "known_hosts": str(self.fleet.known_hosts),
                },
                "devices": [{"name": one.name, "host": one.address} for one in self.devices],
            },
            "strategy": {"canary": 0, "wave": "100%", "parallel": 16, "max_failures": 100,
                         "patience": 30},
        }  # fmt: skip
        for given in (self.settings, changes):
            for key, value in given.items():
                document[key] = document.get(key, {}) | value
        self.file.write_text(yaml.safe_dump(document))

    # --- what it has written down ---

    def journal(self) -> list[dict[str, Any]]:
        """Return the whole lines of the newest journal."""
        found = sorted((self.folder / ".jetship/rollouts").glob("*.jsonl"))
        return lines_of(found[-1]) if found else []

    def journals(self) -> int:
        """Return how many rollouts there were."""
        return len(list((self.folder / ".jetship/rollouts").glob("*.jsonl")))

    def results(self) -> dict[str, str]:
        """Return how it ended for each device, as the newest journal says last."""
        return {one["device"]: one["result"] for one in self.journal() if one["event"] == "ended"}

    # --- what the devices are, whatever was written down ---

    def state(self, device: Device) -> dict[str, Any]:
        """Return a device's state file."""
        found: dict[str, Any] = json.loads((self._state_folder(device) / "state.json").read_text())
        return found

    def notes(self, device: Device) -> list[dict[str, Any]]:
        """Return the whole lines of a device's own journal."""
        return lines_of(self._state_folder(device) / "journal.jsonl")

    def _state_folder(self, device: Device) -> Path:
        home = "root" if self.user == "root" else f"home/{self.user}"
        return device.root / home / STATE

    def arrived_bytes(self, device: Device) -> int:
        """Return how much of an image has arrived on a device that has not loaded it yet."""
        with contextlib.suppress(OSError):
            layers = self._state_folder(device) / "layers"
            return sum(entry.stat().st_size for entry in os.scandir(layers))
        return 0

    def wait_until_idle(self, device: Device) -> None:
        """Wait until no program of a deployer's is at work on a device."""
        home = "/root" if self.user == "root" else f"/home/{self.user}"
        free = ("flock", "-n", f"{home}/{STATE}/lock", "true")
        wait_until(lambda: device.inside(*free).ok, f"the end of what is done on {device.name}")

    def visit(self, device: Device) -> None:
        """Open a session as the next rollout will, which first ends what was left over."""
        login = Login(
            Address(self.user, device.address), self.fleet.identity, self.fleet.known_hosts
        )
        open_link(login, app=APP).close()

    def require_whole(self, *allowed: Image) -> dict[str, Image]:
        """Make sure of all that holds whatever has happened, and return what each device runs.

        Every device runs one container, of one of these images, which is well, and starts again
        with its engine; nothing else of ours runs; the state file says the same; what was loaded is
        not kept twice; and the newest journal agrees, for devices of which it says something.
        """
        found = {device.name: self._one_whole(device, allowed) for device in self.devices}
        new = allowed[-1]
        for name, result in self.results().items():
            if result in NEW_RESULTS:
                assert found[name] is new, (name, result, found[name].version)
            elif result in OLD_RESULTS:
                assert found[name] is not new, (name, result, found[name].version)
            else:
                raise AssertionError(f"{name} is {result}")
        return found

    def versions(self, *allowed: Image) -> set[str]:
        """Return the versions that whole devices run."""
        return {image.version for image in self.require_whole(*allowed).values()}

    def _one_whole(self, device: Device, allowed: Sequence[Image]) -> Image:
        try:
            return self._whole(device, allowed)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self._account_of(device)}") from error

    def _account_of(self, device: Device) -> str:
        """Return what there is to know of a device that is not as it should be."""
        rows = [f"{device.name} after {self.results().get(device.name)}"]
        for one in device.containers(everything=True):
            rows.append(f"{one['Name']} {one['Image'][:19]} {_policy(one)} {one['State']}")
            if not one["State"]["Running"] and _policy(one) == "always":
                rows.append(f"started by hand: {device.inside('docker', 'start', one['Id'])}")
        rows.append(str(self.state(device)))
        shown = ("at", "event", "phase", "reason")
        notes = self.notes(device)[-25:]
        rows += [" ".join(str(line.get(key, "")) for key in shown) for line in notes]
        log = (device.folder / "dockerd.log").read_text(errors="replace").splitlines()
        return "\n".join([*rows, *(line for line in log[-300:] if "level=info" not in line)])

    def _whole(self, device: Device, allowed: Sequence[Image]) -> Image:
        ours = [one for one in device.containers(everything=True) if _is_ours(one)]
        up = [one for one in ours if one["State"]["Running"]]
        shown = [(one["Name"], one["State"]["Status"], _policy(one)) for one in ours]
        assert len(up) == 1, (device.name, shown)
        assert len(ours) <= 2, (device.name, shown)
        (one,) = up
        assert _policy(one) == "always", shown
        assert all(_policy(other) == "no" for other in ours if other is not one), shown
        by_id = {image.id: image for image in allowed}
        assert one["Image"] in by_id, f"{device.name} runs {one['Config']['Image']}"
        image = by_id[one["Image"]]
        # A container that has just been started again takes a moment.
        wait_until(lambda: device.inside("docker", "exec", one["Id"], *HEALTHY).ok, "health")
        told = json.loads(device.docker("exec", one["Id"], *SELFTEST))
        assert told == {"ok": True, "version": image.version}
        state = self.state(device)
        assert state["current"]["image"] == image.id, state
        assert f"/{state['current']['container']}" == one["Name"], state
        assert state["swap"] is None, state
        if self.results().get(device.name) == "committed":
            assert self.arrived_bytes(device) == 0, "what was loaded takes no second room"
        return image


def _is_ours(container: Mapping[str, Any]) -> bool:
    labels = container["Config"]["Labels"] or {}
    return bool(labels.get("jetship.app") == APP)


def _policy(container: Mapping[str, Any]) -> str:
    return str(container["HostConfig"]["RestartPolicy"]["Name"])


def lines_of(path: Path) -> list[dict[str, Any]]:
    """Return the whole lines of a journal; a missing one has none."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    return [json.loads(line) for line in data.split(b"\n")[:-1] if line]


def follow(read: Callable[[], list[dict[str, Any]]], event: str, known: int = 0) -> None:
    """Return as soon as a journal has an event, beyond its first `known` lines."""
    wait_until(
        lambda: any(line["event"] == event for line in read()[known:]),
        f"the event {event!r}",
        pause=0.002,
    )

"""Faults of devices, and the steps of a rollout at which they come."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from arm64images import WHEEL_KB
from devices import Device
from product import wait_until
from rollouts import Deployer, follow

# What a device's own journal calls its steps, in their order; before these, an image comes.
SWAP_STEPS = ("begun", "creating", "stopping", "starting", "checking", "settling", "committing",
              "committed")  # fmt: skip
STEPS = ("sending", "loading", *SWAP_STEPS)
SLOW_KB_A_SECOND = 250


def wait_for_step(deployer: Deployer, device: Device, step: str, known: int) -> None:
    """Return as soon as a step has begun on a device, whose journal had `known` lines before."""
    if step == "sending":
        wait_until(lambda: deployer.arrived_bytes(device) > 100_000, "a transfer", pause=0.005)
    elif step == "loading":
        wait_until(lambda: _has_arrived(deployer, device, known), "a whole image", pause=0.002)
    else:
        follow(lambda: deployer.notes(device), step, known)


def _has_arrived(deployer: Deployer, device: Device, known: int) -> bool:
    """Return whether all of a wheel's layer is there, none of which can be compressed."""
    if deployer.arrived_bytes(device) > WHEEL_KB << 10:
        return True
    # On a busy machine, that is over before it was seen.
    return len(deployer.notes(device)) > known


def short_cut(device: Device) -> None:
    """Pull the cable for some seconds, which TCP survives."""
    device.cut()
    time.sleep(3)
    device.mend()


def long_cut(device: Device) -> None:
    """Pull the cable until both ends have given up."""
    device.cut()
    time.sleep(45)
    device.mend()


def sshd_killed(device: Device) -> None:
    """Kill sshd with its sessions; somebody starts it again."""
    device.kill_sshd()
    time.sleep(1)
    device.start_sshd()


def engine_killed(device: Device) -> None:
    """Kill dockerd with -9; systemd starts it again."""
    device.kill_engine()
    time.sleep(0.5)
    device.start_engine()


def engine_away(device: Device) -> None:
    """End dockerd for some seconds."""
    device.stop_engine()
    time.sleep(5)
    device.start_engine()


def power_lost(device: Device) -> None:
    """Take the power away, and give it back."""
    device.power_off()
    device.power_on()


def program_killed(device: Device) -> None:
    """Kill all that a deployer has started there."""
    device.kill("python3")


def worker_killed(device: Device) -> None:
    """Kill only the youngest process of the program, which does the work."""
    found = device.processes("python3")
    if found:
        with contextlib.suppress(ProcessLookupError):
            os.kill(max(found, key=_started), 9)


def _started(pid: int) -> int:
    with contextlib.suppress(OSError):
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19])
    return 0


FAULTS: Mapping[str, Callable[[Device], None]] = {
    "link cut for 3 s": short_cut,
    "link reset": Device.reset_links,
    "sshd killed": sshd_killed,
    "dockerd restarted": Device.restart_engine,
    "dockerd killed": engine_killed,
    "dockerd away for 5 s": engine_away,
    "power lost": power_lost,
    "program killed": program_killed,
    "worker killed": worker_killed,
    "link cut for 45 s": long_cut,
}


@contextlib.contextmanager
def faults_at(
    deployer: Deployer, fault: Callable[[Device], None], steps: Sequence[str]
) -> Iterator[None]:
    """Let a fault come to each device of a deployer at another step, while the body runs."""
    devices = deployer.devices[: len(steps)]
    known = {device.name: len(deployer.notes(device)) for device in devices}

    def come(device: Device, step: str) -> None:
        wait_for_step(deployer, device, step, known[device.name])
        fault(device)

    with ThreadPoolExecutor(len(steps)) as pool:
        coming: list[Future[None]] = []
        for device, step in zip(devices, steps, strict=True):
            if step == "sending":
                device.slow(SLOW_KB_A_SECOND)
            coming.append(pool.submit(come, device, step))
        yield
        for future in coming:
            future.result()
    for device, step in zip(devices, steps, strict=True):
        if step == "sending" and fault is not power_lost:
            device.fast()

"""Links that are cut without a word: a device that hears nothing any more is free for the next."""

import contextlib
import time

import pytest
from devices import Device, Fleet
from jetship.fleet import link as module
from jetship.fleet.link import SshLink, open_link
from jetship.fleet.model import LockedError
from jetship.ssh import Login
from jetship.targets.device import Address
from product import wait_until

APP = "silent"
SILENCE_SECONDS = 5.0


@pytest.fixture(autouse=True)
def _short_times(monkeypatch):
    monkeypatch.setattr(module, "SILENCE_SECONDS", SILENCE_SECONDS)
    monkeypatch.setattr(module, "BEAT_SECONDS", SILENCE_SECONDS / 6)


def opened(fleet: Fleet, device: Device, **words: float) -> SshLink:
    login = Login(Address("robot", device.address), fleet.identity, fleet.known_hosts)
    return open_link(login, app=APP, release="r", who="eve@laptop", **words)


def test_a_link_that_nobody_hung_up_does_not_lock_a_device_for_hours(fleet):
    device = fleet.devices[0]
    with contextlib.closing(opened(fleet, device)):
        # The deployer's half of the connection goes, and the device is not told.
        device.cut()
        device.reset_links()
        time.sleep(0.5)
        device.mend()
        assert device.processes("python3"), "the program waits for a deployer that is gone"
        with contextlib.closing(opened(fleet, device, wait_seconds=60)) as second:
            assert second.facts.machine == "aarch64"


def test_a_session_in_which_nothing_is_said_stays(fleet):
    device = fleet.devices[1]
    with contextlib.closing(opened(fleet, device)) as link:
        time.sleep(2 * SILENCE_SECONDS)
        with pytest.raises(LockedError):
            opened(fleet, device)
        assert link._child.poll() is None
    wait_until(lambda: not device.processes("python3"), "the end of the program")

"""The deployer's half of a session, with the device's program on this machine in ssh's place."""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from devicesession import APP, Device, image
from jetship.fleet.link import open_link
from jetship.fleet.model import (
    Health,
    HostKeyError,
    LockedError,
    LostError,
    RefusedError,
    RollbackOrder,
    SwapOrder,
    UnreachableError,
)
from jetship.targets.device import Address

ADDRESS = Address("robot", "here")


@dataclass(frozen=True)
class Here:
    """A login whose command line is a program on this machine."""

    device: Device
    before: str = ""
    instead: str = ""
    address: Address = ADDRESS
    python: str = "python3"

    def require(self) -> None:
        """Nothing is missing."""

    def runs(self, source: str, _: str) -> list[str]:
        path = f"PATH={self.device.folder}:{os.environ['PATH']}"
        if self.instead:
            return ["sh", "-c", self.instead]
        program = self.device.folder / "program.py"
        program.write_text(source)
        return ["env", path, f"HOME={self.device.folder}", "sh", "-c",
                f"{self.before}exec {sys.executable} -S {program}"]  # fmt: skip


@pytest.fixture
def device(tmp_path):
    with Device.new(tmp_path / "device") as one:
        yield one


def order(number: int, **words) -> SwapOrder:
    health = Health(("selftest",), ("health",), interval=0.05, timeout=1, settle=0.05)
    return SwapOrder(f"r{number}", image(number), health=health, stop_seconds=1, **words)


def state(device: Device) -> str:
    return str(device.folder / "state")


def test_a_session_from_hello_to_the_way_back(device):
    phases: list[str] = []
    with open_link(Here(device), app=APP, state=state(device)) as link:
        assert link.facts.runtimes == ("nvidia", "runc")
        assert link.facts.state.current is None
        outcome = link.swap(order(1), phases.append)
        assert (outcome.status, outcome.release) == ("committed", "r1")
        assert phases[0] == "creating"
        assert link.swap(order(1)).status == "already"
        assert link.swap(order(2)).release == "r2"
        assert link.rollback(RollbackOrder(to="r1")).release == "r1"
    with open_link(Here(device), app=APP, state=state(device)) as link:
        facts = link.facts
    assert facts.container == "running"
    assert facts.state.current.release == "r1"
    assert facts.state.previous.release == "r2"
    assert (facts.state.last.action, facts.state.last.outcome) == ("rollback", "committed")


def test_what_a_login_shell_says_is_skipped(device):
    login = Here(device, before="echo 'Welcome to Ubuntu 18.04!'; echo '{}'; ")
    with open_link(login, app=APP, state=state(device)) as link:
        assert link.facts.docker == "20.10.24"


def test_a_shell_that_does_not_stop_is_told(device):
    with pytest.raises(UnreachableError, match="does not run what is sent"):
        open_link(Here(device, before="yes | head -c 100000; "), app=APP, state=state(device))


SAID = {
    "echo 'ssh: connect to host here port 22: Connection refused' >&2; exit 255": (
        UnreachableError, "robot@here cannot be reached"),
    "echo 'Host key verification failed.' >&2; exit 255": (HostKeyError, "is not known"),
    "echo 'sh: 1: exec: python3: not found' >&2; exit 127": (
        UnreachableError, "robot@here has no python3"),
    "echo 'SyntaxError' >&2; exit 1": (UnreachableError, "ended before it began"),
    "echo '{\"jetship\": 1}'; read hello; exit 255": (LostError, "the link to robot@here was cut"),
}  # fmt: skip


@pytest.mark.parametrize("instead", SAID)
def test_sessions_that_do_not_come_about(device, instead):
    kind, what = SAID[instead]
    with pytest.raises(kind, match=what) as caught:
        open_link(Here(device, instead=instead), app=APP)
    assert type(caught.value) is kind
    assert caught.value.fix


def test_a_device_that_somebody_has(device):
    with (
        open_link(Here(device), app=APP, state=state(device), who="ann@desk", release="r7"),
        pytest.raises(LockedError, match="another session holds robot@here") as caught,
    ):
        open_link(Here(device), app=APP, state=state(device))
    assert (caught.value.holder, caught.value.release) == ("ann@desk", "r7")
    assert "ann@desk, for r7, since 20" in caught.value.why


def test_what_the_device_refuses(device):
    with open_link(Here(device), app=APP, state=state(device)) as link:
        with pytest.raises(RefusedError, match="robot@here: the device's engine has no image"):
            link.swap(order(9))
        with pytest.raises(RefusedError) as caught:
            link.rollback(RollbackOrder())
        assert caught.value.kind == "previous"
        assert link.swap(order(1)).status == "committed"


def test_a_program_that_dies_is_a_lost_link(device):
    with open_link(Here(device), app=APP, state=state(device)) as link:
        os.kill(link._child.pid, 9)
        with pytest.raises(LostError):
            link.swap(order(1))
    assert not Path(device.own / "state.json").exists()

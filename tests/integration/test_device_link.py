"""Sessions with a device of the test fleet: what is sent, what changes, and what a fault leaves."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product

import pytest
from arm64images import HEALTHY, SELFTEST, Behaviour, Image, make_image
from devices import REGISTRY_OPTION, Device, Fleet, running_fleet, running_registry
from jetship.fleet.layers import LayeredImage, layered_image
from jetship.fleet.link import SshLink, open_link
from jetship.fleet.model import (
    DiskFullError,
    Health,
    LockedError,
    LostError,
    RefusedError,
    RollbackOrder,
    SwapOrder,
)
from jetship.ssh import Login
from jetship.store import Store
from jetship.targets.device import Address
from product import wait_until

APP = "linked"
HEALTH = Health(SELFTEST, HEALTHY, interval=0.2, timeout=20, settle=1)
MODES = ("replace", "beside")


def cases(rows: Iterable[tuple[str, str]], *ordinary: tuple[str, str]) -> list:
    """Return cases of which some are in an ordinary run, and the others in a long one."""
    return [pytest.param(*row, marks=() if row in ordinary else pytest.mark.long) for row in rows]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("images")


@pytest.fixture(scope="module")
def made(folder, fleet) -> Callable[..., LayeredImage]:
    """Makes an image, whose layers then lie in a cache of this module's."""
    store, known = Store(folder / "cache"), {}

    def make(version: str, behaviour: Behaviour = "healthy", **words) -> LayeredImage:
        if version not in known:
            image = make_image(folder, version, behaviour=behaviour, **words)
            fleet.builder.load(image)
            with fleet.builder.client() as client:
                known[version] = layered_image(client, image.tag, store)
            assert known[version].id == image.id
            assert known[version].diff_ids == image.diff_ids
        return known[version]

    return make


class Linked:
    """A device, and who is linked with it."""

    def __init__(self, fleet: Fleet, device: Device) -> None:
        self.fleet = fleet
        self.device = device

    def link(self, **words) -> SshLink:
        address = Address("robot", self.device.address)
        login = Login(address, self.fleet.identity, self.fleet.known_hosts)
        return open_link(login, app=APP, release="r", **words)

    def deploy(self, image: LayeredImage, **words):
        with self.link() as link:
            link.send_image(image)
            return link.swap(order(image, **words))

    @property
    def running(self) -> list[str]:
        """The images of the application's containers that run."""
        label = f"label=jetship.app={APP}"
        names = self.device.docker("ps", "--filter", label, "--format", "{{.Names}}").split()
        return [self.device.docker("inspect", "-f", "{{.Image}}", name) for name in names]

    def require(self, image: LayeredImage) -> None:
        """See that an image runs, alone, and that the device says so."""
        with self.link(wait_seconds=60) as link:
            state = link.facts.state
            assert link.facts.container == "running"
        assert state.unfinished == ""
        assert state.current is not None
        assert state.current.image == image.id
        assert self.running == [image.id]

    def clear(self) -> None:
        self.device.inside("sh", "-c", f"docker rm -f $(docker ps -aq --filter name={APP})")
        self.device.inside("sh", "-c", f"rm -rf /home/robot/.local/share/jetship/{APP}")


def order(image: LayeredImage, **words) -> SwapOrder:
    release = words.pop("release", image.id[7:13])
    given = {"health": HEALTH, "stop_seconds": 2, "patience": 60} | words
    return SwapOrder(release=release, image=image.id, **given)


@pytest.fixture
def linked(fleet) -> Iterator[Linked]:
    one = Linked(fleet, fleet.devices[0])
    one.clear()
    yield one
    one.clear()


def test_only_what_the_device_lacks_is_sent(linked, made):
    first, second, third = made("1.0"), made("1.1"), made("1.2")
    with linked.link() as link:
        assert link.facts.machine == "aarch64"
        assert link.facts.l4t == "r36.4.3"
        assert link.facts.docker.startswith("20.10")
        assert "nvidia" in link.facts.runtimes
        assert link.facts.container == ""
        told: list[tuple[int, int]] = []
        sent = link.send_image(first, lambda *row: told.append(row))
        assert sent.layers == 2
        assert told[-1] == (sent.bytes, sum(layer.size for layer in first.layers))
        assert link.swap(order(first)).status == "committed"
        assert link.swap(order(first)).status == "already"
        assert link.send_image(first).layers == 0
    linked.require(first)
    before = linked.device.received_bytes
    with linked.link() as link:
        assert first.id in link.facts.images
        assert second.missing(link.facts.chains) == second.layers[1:]
        sent = link.send_image(second)
        assert (sent.layers, sent.bytes) == (1, second.layers[1].size)
        phases: list[str] = []
        outcome = link.swap(order(second), phases.append)
    assert outcome.status == "committed"
    assert phases == ["creating", "stopping", "starting", "checking", "settling", "committing"]
    over_the_wire = linked.device.received_bytes - before
    assert over_the_wire <= 1.2 * second.layers[1].size
    linked.require(second)
    assert linked.deploy(third).status == "committed"
    linked.require(third)
    assert first.id not in linked.device.images()
    assert second.id in linked.device.images()


@pytest.mark.parametrize("mode", ["replace", pytest.param("beside", marks=pytest.mark.long)])
def test_there_and_back(linked, made, mode):
    first, second = made("1.0"), made("1.1")
    assert linked.deploy(first, release="a", mode=mode).release == "a"
    assert linked.deploy(second, release="b", mode=mode).release == "b"
    with linked.link() as link:
        with pytest.raises(RefusedError, match="the previous release here is a, not z") as caught:
            link.rollback(RollbackOrder(to="z"))
        assert caught.value.kind == "previous"
        outcome = link.rollback(RollbackOrder(to="a", mode=mode))
        assert (outcome.status, outcome.release) == ("committed", "a")
        state = link.facts.state
    linked.require(first)
    with linked.link() as link:
        assert link.facts.state.previous == state.current
        assert link.rollback(RollbackOrder(mode=mode)).release == "b"
    linked.require(second)


SICK = {
    "crashes": "the container stopped with exit status 3",
    "dies": "the container stopped with exit status 4",
    "never-healthy": "the health command did not succeed within 3 s",
    "health-hangs": "the health command did not succeed within 3 s",
    "fails-selftest": "the self test fails",
}


@pytest.mark.parametrize(
    ("behaviour", "mode"),
    cases(product(SICK, MODES), ("crashes", "replace"), ("health-hangs", "beside")),
)
def test_a_sick_image_is_taken_back(linked, made, behaviour, mode):
    good = made("1.0")
    sick = made("2." + str(list(SICK).index(behaviour)), behaviour, seconds=2)
    linked.deploy(good)
    health = replace(HEALTH, timeout=3, settle=4)
    outcome = linked.deploy(sick, health=health, mode=mode)
    assert outcome.status == "rolled-back"
    assert SICK[behaviour] in outcome.reason
    if behaviour in ("crashes", "dies"):
        assert {"crashes": "no such camera", "dies": "out of film"}[behaviour] in outcome.logs
    linked.require(good)
    with linked.link() as link:
        assert link.facts.state.last.outcome == "rolled-back"
        assert link.facts.state.last.reason == outcome.reason


def test_a_sick_first_image_leaves_nothing(linked, made):
    sick = made("2.0", "crashes")
    outcome = linked.deploy(sick)
    assert (outcome.status, outcome.release) == ("rolled-back", "")
    assert linked.running == []


PHASES = ("creating", "stopping", "starting", "checking", "settling", "committing")


@pytest.mark.parametrize(
    ("phase", "mode"),
    cases(product(PHASES, MODES), ("checking", "replace")),
)
def test_the_engine_starts_again_in_the_middle(linked, made, phase, mode):
    old, new = made("1.0"), made("1.1")
    linked.deploy(old)
    with linked.link() as link:
        link.send_image(new)
        said = []

        def restart(word: str) -> None:
            if word == phase:
                said.append(word)
                linked.device.restart_engine()

        outcome = link.swap(order(new, mode=mode), restart)
    assert said or mode == "beside"
    linked.require(new if outcome.status == "committed" else old)
    assert outcome.status in ("committed", "rolled-back")


@pytest.mark.parametrize(
    ("phase", "fault"),
    cases(
        product(PHASES, ("program", "sshd", "power")),
        ("checking", "program"),
        ("stopping", "sshd"),
        ("settling", "power"),
    ),
)
def test_the_device_is_left_in_the_middle(linked, made, phase, fault):
    old, new = made("1.0"), made("1.1")
    linked.deploy(old)
    device, one = linked.device, order(new, health=replace(HEALTH, settle=2))

    def strike(word: str) -> None:
        if word != phase:
            return
        if fault == "program":
            assert device.kill("python3") >= 2
        elif fault == "sshd":
            device.kill_sshd()
            device.start_sshd()
        else:
            device.power_off()
            device.power_on()
            wait_until(lambda: linked.running, "what the engine starts by itself")

    with linked.link() as link:
        link.send_image(new)
        with pytest.raises(LostError):
            link.swap(one, strike)
    with linked.link(wait_seconds=60) as link:
        last = link.facts.state.last
        assert last.token == one.token
    # Without its link the device goes on, and ends what it was told.
    assert (last.outcome == "committed") == (fault == "sshd") or phase == "committing"
    linked.require(new if last.outcome == "committed" else old)


def test_what_has_arrived_is_not_sent_again(linked, made):
    image = made("3.0", wheel_kb=3000)
    linked.device.slow(1000)

    def cut(there: int, total: int) -> None:
        if there > 0.8 * total:  # some megabytes of it are on the way
            linked.device.reset_links()

    try:
        with linked.link() as link, pytest.raises(LostError):
            link.send_image(image, cut)
    finally:
        linked.device.fast()
    total = sum(layer.size for layer in image.layers)
    with linked.link(wait_seconds=30) as link:
        sent = link.send_image(image)
        assert 0 < sent.bytes < total * 0.9
        assert link.swap(order(image)).status == "committed"
    linked.require(image)


def test_a_layer_that_was_damaged_on_the_device_is_refused(linked, made):
    image = made("3.1", wheel_kb=600)
    layers = f"/home/robot/.local/share/jetship/{APP}/layers"
    linked.device.inside("mkdir", "-p", layers, user="robot")
    part = f"{layers}/{image.layers[1].sha256}.gz"
    linked.device.inside("dd", "if=/dev/zero", f"of={part}", "bs=1000", "count=100", user="robot")
    with linked.link() as link, pytest.raises(RefusedError, match="arrived damaged"):
        link.send_image(image)
    with linked.link() as link:
        assert link.send_image(image).bytes >= image.layers[1].size


def test_a_second_session_is_told_who_has_the_device(linked):
    with linked.link(who="ann@desk"):
        with pytest.raises(LockedError) as caught:
            linked.link(who="bob@desk")
        assert (caught.value.holder, caught.value.release) == ("ann@desk", "r")
    began = time.monotonic()
    with linked.link(who="bob@desk", wait_seconds=20):
        assert time.monotonic() - began < 15


def test_containers_of_others_are_not_touched(linked, made):
    first, second = made("1.0"), made("1.1")
    linked.deploy(first)
    stranger = f"{APP}-{second.id[7:19]}-1"
    own_tag = f"jetship.device/{APP}:{first.id[7:19]}"
    linked.device.docker("run", "-d", "--name", stranger, own_tag)
    outcome = linked.deploy(second)
    assert outcome.status == "committed"
    linked.require(second)
    assert linked.device.docker("inspect", "-f", "{{.State.Running}}", stranger) == "true"


def test_a_container_that_somebody_removed_comes_back(linked, made):
    first, sick = made("1.0"), made("2.2", "never-healthy", seconds=2)
    linked.deploy(first)
    with linked.link() as link:
        container = link.facts.state.current.container
    linked.device.docker("rm", "-f", container)
    with linked.link() as link:
        assert link.facts.container == "missing"
    outcome = linked.deploy(sick, health=replace(HEALTH, timeout=2))
    assert outcome.status == "rolled-back"
    linked.require(first)


@pytest.mark.long
def test_a_lost_state_file_is_found_again(linked, made):
    first, second = made("1.0"), made("1.1")
    linked.deploy(first, release="a")
    linked.device.inside("rm", "-rf", f"/home/robot/.local/share/jetship/{APP}")
    with linked.link() as link:
        assert link.facts.state.current.release == "a"
    assert linked.deploy(second).status == "committed"
    linked.require(second)


def test_an_engine_that_is_away_is_told(linked, made):
    image = made("1.0")
    linked.deploy(image)
    linked.device.stop_engine()
    try:
        with linked.link() as link:
            assert link.facts.docker == ""
            assert "Cannot connect to the Docker daemon" in link.facts.docker_error
            with pytest.raises(RefusedError, match="Cannot connect") as caught:
                link.swap(order(image, command=("/bin/service", "again")))
            assert caught.value.kind == "engine"
    finally:
        linked.device.start_engine()
    linked.require(image)


@pytest.mark.long
def test_a_full_disk(made):
    old, new, large = made("1.0"), made("1.1"), made("4.0", wheel_kb=40_000)
    with running_fleet(1, disk_mb=150) as fleet:
        linked = Linked(fleet, fleet.devices[0])
        linked.deploy(old)
        linked.device.fill_disk(leave_mb=60)
        with linked.link() as link, pytest.raises(DiskFullError, match="MiB are needed"):
            link.send_image(large)
        with linked.link() as link:
            link.send_image(new)
        linked.device.free_disk()
        linked.device.fill_disk(leave_mb=0)
        with linked.link() as link, pytest.raises(DiskFullError):
            link.swap(order(new))
        assert linked.running == [old.id]
        linked.device.free_disk()
        linked.require(old)
        assert linked.deploy(new).status == "committed"
        linked.require(new)


def test_an_image_is_pulled_by_its_digest(folder, made):
    with running_fleet(1, engine_options=[REGISTRY_OPTION]) as fleet:
        linked = Linked(fleet, fleet.devices[0])
        with running_registry(fleet) as registry:
            image: Image = make_image(folder, "5.0", repository=f"{registry}/fleet")
            fleet.builder.load(image)
            said = fleet.builder.docker("push", image.tag)
            digest = said.rpartition("digest: ")[2].split()[0]
            with linked.link() as link:
                link.pull(f"{registry}/fleet@{digest}", image.id)
                with pytest.raises(RefusedError, match="is meant"):
                    link.pull(f"{registry}/fleet@{digest}", "sha256:" + "1" * 64)
                swap = SwapOrder(release="r", image=image.id, health=HEALTH)
                assert link.swap(swap).status == "committed"
        assert linked.running == [image.id]

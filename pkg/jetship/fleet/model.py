"""What a device says of itself, what it is told to do, and how that ended."""

import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, Protocol

from jetship.errors import RolloutError
from jetship.fleet.layers import LayeredImage

Mode = Literal["replace", "beside"]
Status = Literal["committed", "rolled-back", "already", "broken"]
Progress = Callable[[int, int], None]  # bytes that are there, of how many
Phases = Callable[[str], None]


@dataclass(frozen=True)
class Health:
    """When a container counts as healthy.

    Args:
        selftest: run once in the container: exit status 0, and where it prints a JSON object,
            that has no `ok` other than true. Empty: there is none.
        command: run in the container until its exit status is 0. Empty: there is none.
        interval: seconds between two runs of the command.
        timeout: seconds within which the self test has to end, and the command to succeed.
        settle: seconds for which the container has to keep running, without a restart; the
            command has to succeed at their end again.
    """

    selftest: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    interval: float = 2.0
    timeout: float = 60.0
    settle: float = 5.0


@dataclass(frozen=True)
class SwapOrder:
    """Put a container of another image in place of the one that runs; the device ends it by itself.

    Args:
        release: what the rollout calls this state of the device.
        image: the image's id, "sha256:...", which is the digest of its config on any engine
            (`LayeredImage.id`). The device has it already (`send_image`, `pull`).
        create: words for `docker create` before the image, such as "--runtime", "nvidia"; never
            a name, a restart policy or --rm, which are the device program's.
        command: what follows the image.
        mode: stop the old one before the new one starts, or only once that is healthy.
        health: when the new one is good.
        stop_seconds: what a container has between SIGTERM and SIGKILL.
        patience: seconds for which going back is tried where the engine does not answer.
        token: names this very order; the device's last outcome repeats it.
    """

    release: str
    image: str
    create: tuple[str, ...] = ()
    command: tuple[str, ...] = ()
    mode: Mode = "replace"
    health: Health = field(default_factory=Health)
    stop_seconds: int = 10
    patience: float = 120.0
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class RollbackOrder:
    """Put the previous container in place of the one that runs.

    Args:
        to: the release that is meant; it has to be the previous one. Empty: whichever that is.
        health: when it is good; None: as when it was deployed.
        mode, stop_seconds, patience, token: as a swap has them.
    """

    to: str = ""
    health: Health | None = None
    mode: Mode = "replace"
    stop_seconds: int = 10
    patience: float = 120.0
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


@dataclass(frozen=True)
class Installed:
    """A release on a device: image id, container name, and what the rollout called it."""

    image: str
    container: str
    release: str


@dataclass(frozen=True)
class Last:
    """How the last change of a device ended. `at` is by the deployer's clock, in UTC (ISO 8601)."""

    token: str
    action: Literal["swap", "rollback"]
    release: str
    outcome: Status
    reason: str
    at: str
    logs: str = ""


@dataclass(frozen=True)
class DeviceState:
    """What the device's state file says.

    `unfinished` is the phase of a change that is not ended: it is under way, or the engine does not
    answer, or not even the old container starts. Each session that is not for looking tries again.
    `note` says what of the file was lost.
    """

    current: Installed | None = None
    previous: Installed | None = None
    unfinished: str = ""
    last: Last | None = None
    note: str = ""


@dataclass(frozen=True)
class Facts:
    """What a device says of itself when a session begins; a fact that it lacks is empty.

    Args:
        machine: what `uname -m` says, "aarch64".
        l4t: "r36.4.3".
        cuda: version of the host's CUDA toolkit, "12.6".
        model: the board, as its device tree calls it.
        docker: version of the engine; empty where none answers.
        docker_error: then what the docker command says.
        runtimes: names of the engine's runtimes.
        containerd_store: the engine keeps its images in containerd.
        disk_free_bytes: on the disk of the engine's images.
        state_free_bytes: on the disk of the state folder, to which layers are sent.
        one_disk: these are the same disk.
        memory_bytes: all memory.
        clock: the device's clock, in seconds since 1970.
        images: ids of the images that the engine has.
        chains: the diff ids of each of these images, from the bottom up.
        container: what the engine says of the current container: "running", "exited",
            "restarting", ...; "missing" where it is gone; empty where there is no current one.
        state: the state file, after whatever a former session left unfinished was ended, unless
            this one only looks.
    """

    machine: str
    l4t: str
    cuda: str
    model: str
    docker: str
    docker_error: str
    runtimes: tuple[str, ...]
    containerd_store: bool
    disk_free_bytes: int
    state_free_bytes: int
    one_disk: bool
    memory_bytes: int
    clock: float
    images: tuple[str, ...]
    chains: tuple[tuple[str, ...], ...]
    container: str
    state: DeviceState


@dataclass(frozen=True)
class Sent:
    """What one image cost: layers and bytes that went over the link in this session."""

    layers: int
    bytes: int


@dataclass(frozen=True)
class Outcome:
    """How a change ended on the device.

    Args:
        status: "committed": the new one runs; "rolled-back": the old one runs, or none did
            before; "already": nothing was to do; "broken": the old one does not run again.
        reason: why, where it is not committed.
        logs: the last lines of the new container where it failed.
        seconds: how long it took on the device.
        release: what is current now; empty: nothing.
    """

    status: Status
    reason: str = ""
    logs: str = ""
    seconds: float = 0.0
    release: str = ""


class LinkError(RolloutError):
    """A device could not be asked, or did not do what it was asked."""


class UnreachableError(LinkError):
    """No session came about: no network, refused login, no python3 there."""


class HostKeyError(UnreachableError):
    """The device's host key is unknown, or another one than is known."""


class LockedError(LinkError):
    """Another session holds the device: `holder` is who, `release` what, `since` when."""

    def __init__(
        self, what: str, *, why: str = "", fix: str = "", holder: str, release: str, since: str
    ) -> None:
        super().__init__(what, why=why, fix=fix)
        self.holder = holder
        self.release = release
        self.since = since


class LostError(LinkError):
    """The link was cut. A swap that was ordered goes on; ask the next session how it ended."""


class DiskFullError(LinkError):
    """The device has not the room that is needed."""


class RefusedError(LinkError):
    """The device did not do it, and nothing changed.

    `kind` says why for programs: "engine" (its docker command fails), "image" (it is not there, or
    is another one), "previous" (there is none, or another is meant), "unfinished" (an earlier
    change cannot be ended yet), "digest", "disk", "request".
    """

    def __init__(self, what: str, *, why: str = "", fix: str = "", kind: str = "") -> None:
        super().__init__(what, why=why, fix=fix)
        self.kind = kind


class Link(Protocol):
    """A session with a device; the device is locked as long as it lasts."""

    @property
    def facts(self) -> Facts:
        """What the device said when the session began."""

    def send_image(self, image: LayeredImage, progress: Progress | None = None) -> Sent:
        """Send the layers that the device lacks, and give the image to its engine.

        Raises:
            LostError: the link was cut; what arrived stays, and the next session goes on there.
            DiskFullError: it has not enough room.
            RefusedError: its engine refuses the image.
            DownloadError: a layer is damaged in this machine's cache.
        """

    def pull(self, reference: str, image: str) -> None:
        """Have the device pull "repository@sha256:..." from a registry; `image` is its id.

        Raises:
            LostError: the link was cut.
            DiskFullError: it has not enough room.
            RefusedError: its engine cannot pull it, or gets another image.
        """

    def swap(self, order: SwapOrder, phases: Phases | None = None) -> Outcome:
        """Have the device change over to an image that it has.

        Args:
            order: what is wanted.
            phases: called with a word for each step that begins: "creating", "stopping",
                "starting", "checking", "settling", "committing", "rolling back".

        Raises:
            LostError: the link was cut; the device ends it nevertheless.
            RefusedError: nothing was begun.
        """

    def rollback(self, order: RollbackOrder, phases: Phases | None = None) -> Outcome:
        """Have the device change back to its previous container.

        Raises:
            LostError: the link was cut; the device ends it nevertheless.
            RefusedError: nothing was begun: there is no previous one, or another is meant.
        """

    def close(self) -> None:
        """End the session; the device is free."""

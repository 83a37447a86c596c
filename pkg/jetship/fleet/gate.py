"""The gate: whether a device can run an image, from what it says of itself, before it gets a byte.

What cannot be told is refused like what is wrong: nobody wants to find out on a robot.
"""

import re
from dataclasses import dataclass
from typing import Literal

from packaging.version import InvalidVersion, Version

from jetship.fleet.model import Facts
from jetship.targets import releases
from jetship.targets.catalog import Catalog
from jetship.targets.l4t import l4t_lines
from jetship.targets.model import Board, Platform, Target

Transfer = Literal["layers", "registry"]
# JetPack 4.2 came with this one; `docker run --runtime` and `docker update --restart` are older.
OLDEST_DOCKER = Version("18.9")
DISK_MARGIN_BYTES = 256 << 20


@dataclass(frozen=True)
class Room:
    """What an image takes of a device's disks: the engine's, and that of the state folder."""

    engine_bytes: int = 0
    state_bytes: int = 0


@dataclass(frozen=True)
class Wanted:
    """What a device is to get.

    Args:
        target: what the image was built for.
        board: the device's board by deploy.yaml.
        runtime: the container runtime that the board's containers ask for, or "".
        room: what the image takes while it comes.
        transfer: how it comes.
        max_clock_skew: how many seconds the device's clock may be wrong.
    """

    target: Target
    board: Board
    runtime: str = ""
    room: Room = Room()
    transfer: Transfer = "layers"
    max_clock_skew: float = 300


@dataclass(frozen=True)
class Verdict:
    """Why a device gets nothing, and what is worth knowing where it does."""

    refusals: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def judge(facts: Facts, wanted: Wanted, catalog: Catalog, *, now: float) -> Verdict:
    """Compare a device with what it is to get.

    Args:
        facts: what the device says of itself.
        wanted: what it is to get.
        catalog: the known boards and platforms.
        now: the deployer's time, in seconds of the epoch.
    """
    rows = [
        _machine(facts, wanted),
        _model(facts, wanted, catalog),
        _l4t(facts, wanted, catalog),
        _cuda(facts, wanted),
        _docker(facts),
        _runtime(facts, wanted),
        _disk(facts, wanted),
    ]
    late = _clock(facts, wanted, now)
    if wanted.transfer == "registry":
        rows.append(f"{late}, so certificates of the registry may not hold" if late else "")
        late = ""
    return Verdict(tuple(row for row in rows if row), (late,) if late else ())


def _machine(facts: Facts, wanted: Wanted) -> str:
    machine = wanted.target.platform.machine
    if facts.machine == machine:
        return ""
    return f"the device is {facts.machine or 'of an unknown machine'}, and the image is {machine}"


def _model(facts: Facts, wanted: Wanted, catalog: Catalog) -> str:
    """Compare the kernel's words for the board; what they do not tell refutes nothing."""
    said = facts.model.strip("\0\n ")
    found = [board for board in catalog.boards if any(word in said for word in board.models)]
    if not found or wanted.board.name in {board.name for board in found}:
        return ""
    names = " or ".join(board.name for board in found)
    return f"it calls itself {said!r}, a {names}; deploy.yaml has it as {wanted.board.name}"


def _l4t(facts: Facts, wanted: Wanted, catalog: Catalog) -> str:
    platform = wanted.target.platform
    if not platform.l4t:
        return _jetson_with_foreign_image(facts, platform)
    if not facts.l4t:
        return (
            f"it has no L4T (/etc/nv_tegra_release), which images of {platform.name} take the "
            "driver from"
        )
    known = {release: one.name for one in catalog.platforms for release in one.l4t}
    if facts.l4t not in known and facts.l4t not in platform.l4t:
        near = releases.nearest(facts.l4t, known)
        hint = f"; the nearest known is {near} ({known[near]})" if near else ""
        return f"its L4T {facts.l4t} is not known{hint}"
    if l4t_lines().runs(facts.l4t, platform.l4t):
        return ""
    own = next((name for release, name in known.items() if release == facts.l4t), "")
    return (
        f"its L4T {facts.l4t} does not run images of {platform.name} "
        f"({_range(platform.l4t)}); build for {own}"
    )


def _jetson_with_foreign_image(facts: Facts, platform: Platform) -> str:
    if not facts.l4t:
        return ""
    why = (
        "is an open userland for emulation and CI"
        if platform.kind == "emulation"
        else "is for servers"
    )
    return f"it is a Jetson (L4T {facts.l4t}), and {platform.name} {why}"


def _range(l4t: tuple[str, ...]) -> str:
    return l4t[0] if len(l4t) == 1 else f"{l4t[0]} to {l4t[-1]}"


def _cuda(facts: Facts, wanted: Wanted) -> str:
    """Compare CUDA where containers have the device's own; newer images bring theirs."""
    platform = wanted.target.platform
    if not facts.l4t or not platform.l4t or not l4t_lines().gives_cuda(facts.l4t):
        return ""
    if not facts.cuda:
        return (
            f"no CUDA was found on it, and with L4T {facts.l4t} containers have that of the device"
        )
    if facts.cuda.split(".")[:2] == platform.cuda.version.split(".")[:2]:
        return ""
    return (
        f"it has CUDA {facts.cuda}, and with L4T {facts.l4t} containers have that of the device; "
        f"the image is for CUDA {platform.cuda.version}"
    )


def _docker(facts: Facts) -> str:
    if not facts.docker:
        said = f" ({facts.docker_error})" if facts.docker_error else ""
        return f"no Docker engine answers there{said}"
    # Engines of distributions say "20.10.24+dfsg1" or "24.0.5-0ubuntu1~22.04.1".
    plain = re.match(r"[0-9]+(?:\.[0-9]+)*", facts.docker)
    try:
        version = Version(plain[0] if plain else facts.docker)
    except InvalidVersion:
        return f"its Docker engine tells no version that can be read: {facts.docker!r}"
    if version < OLDEST_DOCKER:
        return f"its Docker engine {facts.docker} is older than {OLDEST_DOCKER}"
    return ""


def _runtime(facts: Facts, wanted: Wanted) -> str:
    if not wanted.runtime or wanted.runtime in facts.runtimes or not facts.docker:
        return ""
    return (
        f"its Docker engine has no runtime {wanted.runtime!r} (it has "
        f"{', '.join(facts.runtimes) or 'none'}): install nvidia-container-toolkit, then "
        "`nvidia-ctk runtime configure --runtime=docker`"
    )


def _disk(facts: Facts, wanted: Wanted) -> str:
    """Compare what is free with what is needed, and a margin: a full disk stops what runs there."""
    engine, state = wanted.room.engine_bytes, wanted.room.state_bytes
    rows = [
        ("of the engine's images", facts.disk_free_bytes, engine),
        ("of the state folder", facts.state_free_bytes, state),
    ]
    if facts.one_disk:
        rows = [("", facts.disk_free_bytes, engine + state)]
    short = [
        f"its disk{f' {what}' if what else ''} has {free >> 20} MiB free, and the image needs "
        f"{(needed + DISK_MARGIN_BYTES) >> 20} MiB while it comes"
        for what, free, needed in rows
        if needed and free < needed + DISK_MARGIN_BYTES
    ]
    return "; ".join(short)


def _clock(facts: Facts, wanted: Wanted, now: float) -> str:
    skew = facts.clock - now
    if abs(skew) <= wanted.max_clock_skew:
        return ""
    return f"its clock is {_span(abs(skew))} {'ahead' if skew > 0 else 'behind'}"


def _span(seconds: float) -> str:
    for size, name in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {name}"
    return f"{seconds:.0f} seconds"

"""The `docker run` line for a board, and for emulation on the build machine."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jetship.engine import OCI_NAMES
from jetship.targets.catalog import Catalog
from jetship.targets.model import Board, Target

EMULATION_FOLDER = "/opt/jetship/emulation"


@dataclass(frozen=True)
class RunLine:
    """A command line to copy, what it is for, and what to know before."""

    title: str
    line: str
    note: str = ""


def run_lines(
    *,
    target: Target,
    image: str,
    catalog: Catalog,
    command: Sequence[str] = (),
    stubs: Path | None = None,
) -> tuple[RunLine, ...]:
    """Return the line for every board of the target's archs, and before them the emulation line.

    Args:
        target: what the image was built for.
        image: its name.
        catalog: the boards and their device nodes.
        command: what to run in it (default: the image's own command).
        stubs: the stand-in libraries of `jetship.image.stubs`, for the emulation line.
    """
    emulated = target.platform.kind == "emulation"
    lines = [emulation_line(target, image, command, stubs)] if emulated else []
    archs = {str(code.arch) for code in target.code}
    boards = (board for board in catalog.boards if board.arch in archs)
    lines += [board_line(target, board, image, catalog, command) for board in boards]
    return tuple(lines)


def board_line(
    target: Target, board: Board, image: str, catalog: Catalog, command: Sequence[str] = ()
) -> RunLine:
    """Return the line that runs an image on a board."""
    words = ["docker", "run", "--rm"]
    notes = []
    if target.platform.kind == "emulation":
        notes.append(
            f"an image of {target.platform.name} has no CUDA torch and does not use the GPU of a "
            f"{board.title}: build for its platform, up to {catalog.newest_of(board)}; this is the "
            "line then"
        )
    elif target.platform.kind == "server" and board.kind == "jetson":
        notes.append(
            f"a {board.title} does not run {target.platform.name}: build for its platform, up to "
            f"{catalog.newest_of(board)}; this is the line then"
        )
    platform = target.platform if target.platform.l4t else catalog.platform(board.platforms[-1])
    devices = catalog.devices_on(platform)
    if board.kind == "server":
        words += ["--gpus", "all"]
    elif devices is None:
        notes.append(f"how a container reaches the GPU on {platform.title} is not recorded")
        words += ["--runtime", "nvidia"]
    else:
        words += ["--runtime", devices.runtime]
        for node in devices.nodes:
            words += ["--device", f"/dev/{node}"]
        for group in devices.groups:
            words += ["--group-add", group]
    return RunLine(board.title, shlex.join([*words, image, *command]), "; ".join(notes))


def emulation_line(
    target: Target, image: str, command: Sequence[str] = (), stubs: Path | None = None
) -> RunLine:
    """Return the line that runs an image on the build machine, emulated."""
    platform = "linux/" + OCI_NAMES[target.platform.machine][0]
    words = ["docker", "run", "--rm", "--platform", platform]
    if stubs is not None:
        words += ["--volume", f"{stubs}:{EMULATION_FOLDER}:ro"]
        words += ["--env", f"LD_LIBRARY_PATH={EMULATION_FOLDER}"]
    title = f"this machine, emulating {target.platform.machine}"
    return RunLine(title, shlex.join([*words, image, *command]))

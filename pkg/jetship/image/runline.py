"""The `docker run` line for a board, and for emulation on the build machine."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jetship.engine import OCI_NAMES
from jetship.image.container import Container, container_for
from jetship.targets.catalog import Catalog
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Board, Platform, Target

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
    plan: ImagePlan | None = None,
    command: Sequence[str] = (),
    stubs: Path | None = None,
) -> tuple[RunLine, ...]:
    """Return the line for every board of the target's archs, and before them the emulation line.

    Args:
        target: what the image was built for.
        image: its name.
        catalog: the boards and their device nodes.
        plan: what the user's program needs, from deploy.yaml.
        command: what to run in it (default: the image's own command).
        stubs: the stand-in libraries of `jetship.image.stubs`, for the emulation line.
    """
    emulated = target.platform.kind == "emulation"
    lines = [emulation_line(target, image, command, stubs)] if emulated else []
    lines += [
        board_line(target, board, image, catalog, plan=plan, command=command)
        for board in boards_of(target, catalog)
    ]
    return tuple(lines)


def boards_of(target: Target, catalog: Catalog) -> tuple[Board, ...]:
    """Return the boards that have an arch of the target."""
    archs = {str(code.arch) for code in target.code}
    return tuple(board for board in catalog.boards if board.arch in archs)


def board_line(
    target: Target,
    board: Board,
    image: str,
    catalog: Catalog,
    *,
    plan: ImagePlan | None = None,
    command: Sequence[str] = (),
) -> RunLine:
    """Return the line that runs an image on a board."""
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
    platform = shown_platform(target, board, catalog)
    if board.kind == "jetson" and catalog.devices_on(platform) is None:
        notes.append(f"how a container reaches the GPU on {platform.title} is not recorded")
    container = container_for(platform, board, catalog, plan)
    return RunLine(board.title, _line(container, image, command), "; ".join(notes))


def shown_platform(target: Target, board: Board, catalog: Catalog) -> Platform:
    """Return the target's platform, or the board's newest where it does not run that one."""
    runs = target.platform.l4t or target.platform.name in board.platforms
    return target.platform if runs else catalog.platform(board.platforms[-1])


def emulation_line(
    target: Target, image: str, command: Sequence[str] = (), stubs: Path | None = None
) -> RunLine:
    """Return the line that runs an image on the build machine, emulated."""
    container = Container(platform="linux/" + OCI_NAMES[target.platform.machine][0])
    if stubs is not None:
        container = replace(
            container,
            mounts=(f"{stubs}:{EMULATION_FOLDER}:ro",),
            environment={"LD_LIBRARY_PATH": EMULATION_FOLDER},
        )
    title = f"this machine, emulating {target.platform.machine}"
    return RunLine(title, _line(container, image, command))


def _line(container: Container, image: str, command: Sequence[str]) -> str:
    return shlex.join(["docker", "run", "--rm", *container.words(), image, *command])

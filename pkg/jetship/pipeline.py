"""The stages in order: target, toolchain, wheel, report. A failing wheel goes no further."""

import contextlib
import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jetship import board, console, usage
from jetship.board import Board
from jetship.build.api import (
    NO_SETTINGS,
    BuiltWheel,
    Order,
    build_project,
    log_path,
    verify_project,
)
from jetship.build.environment import max_jobs
from jetship.build.includes import needed_math
from jetship.build.project import Project
from jetship.check.api import check_wheel
from jetship.check.findings import Report
from jetship.check.prepared import target_libraries
from jetship.epoch import source_date_epoch
from jetship.errors import CheckError, ConfigError, JetshipError
from jetship.schedule import run_all
from jetship.store import STAGING_PREFIX, Store, disk_errors, sweep
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.model import Target
from jetship.toolchain.model import Toolchain
from jetship.toolchain.ownparts import NO_SUPPLY, NOTHING_OWN, OwnParts, OwnSupply
from jetship.toolchain.prepare import plan, prepare
from jetship.toolchain.sources import download_bytes, has_part

REJECTED = "rejected"
LOGS = "logs"


@dataclass(frozen=True)
class Produced:
    """What came of one target: a checked wheel, or the error that ended it.

    `log` is what a build printed that came to no wheel; None where it ended before there was a log.
    """

    target: Target
    wheel: BuiltWheel | None = None
    report: Report | None = None
    error: JetshipError | None = None
    log: Path | None = None


@dataclass(frozen=True)
class Request:
    """What to produce, and how.

    Args:
        project: what is built.
        dist: where checked wheels go.
        own: the user's parts, in place of a platform's.
        settings: what deploy.yaml says of the build.
        rebuild: build even where nothing has changed.
        verify: build twice, and compare the bytes.
    """

    project: Project
    dist: Path
    own: OwnSupply = NO_SUPPLY
    settings: BuildSettings = NO_SETTINGS
    rebuild: bool = False
    verify: bool = False


def produce(request: Request, targets: Sequence[Target], store: Store) -> list[Produced]:
    """Build and check a project for every target; one that fails does not stop the rest.

    A wheel that passes its check is in `request.dist`; one that does not is in its folder
    rejected/, for inspection.

    Raises:
        ConfigError: `request.dist` is a file, or MAX_JOBS or SOURCE_DATE_EPOCH is not a number.
    """
    source_date_epoch(0)  # setuptools reads it as well, and blames itself
    if request.dist.exists() and not request.dist.is_dir():
        raise ConfigError(f"{request.dist} is not a folder", fix="name another one with --dist DIR")
    several = len(targets) > 1
    with board.shown([target.id for target in targets]) as shown:

        def work(target: Target, jobs: int) -> Produced:
            with console.speaking_of(target.id if several else ""):
                shown.begin(target.id)
                log: Path | None = None
                try:
                    shown.doing(target.id, "toolchain")
                    own = request.own.of(target)
                    toolchain = toolchain_for(request.project, target, store, own)
                    order = Order(request.project, target, toolchain, request.settings, jobs)
                    log = log_path(order, request.dist / LOGS)
                    result = _produce(request, order, store, shown)
                    shown.end(target.id, "done" if result.error is None else "rejected")
                except JetshipError as error:
                    if several:
                        console.error(str(error))
                    shown.end(target.id, "failed")
                    made = log if log is not None and log.is_file() else None
                    result = Produced(target, error=error, log=made)
                return result

        return run_all(targets, work, jobs=max_jobs())


def _produce(request: Request, order: Order, store: Store, shown: Board) -> Produced:
    project, target, dist = order.project, order.target, request.dist
    with _only_build(project, target, store, dist), _staging(dist) as staging:
        shown.doing(target.id, "builds")
        built = build_project(
            order, store=store, out=staging, logs=dist / LOGS, rebuild=request.rebuild
        )
        _warn_of_nothing_compiled(built.path)
        if request.verify:
            shown.doing(target.id, "builds again")
            verify_project(order, built, store=store)
        shown.doing(target.id, "checks")
        console.step(f"checking {built.path.name}")
        report = check(built.path, target, store, request.own.of(target))
        accepted = report.outcome == "pass"
        final = (dist if accepted else dist / REJECTED) / built.path.name
        final.parent.mkdir(parents=True, exist_ok=True)
        built.path.replace(final)
    wheel = replace(built, path=final)
    error = None if accepted else CheckError(
        f"{final.name} does not fit {target.id}" if report.outcome == "fail"
        else f"it cannot be told whether {final.name} fits {target.id}",
        fix=f"see the findings above; the wheel is in {final.parent} for inspection",
    )  # fmt: skip
    return Produced(target, wheel, report, error)


def _warn_of_nothing_compiled(wheel: Path) -> None:
    """Say that a wheel is the same for all machines: its project may have lost its extension."""
    if wheel.name.endswith("-any.whl"):
        console.warn(
            f"{wheel.name} has nothing compiled in it, as its setup.py names no extension; if the "
            "project has one, give it to setup() as ext_modules"
        )


def toolchain_for(project: Project, target: Target, store: Store, own_parts: OwnParts) -> Toolchain:
    """Return the target's toolchain, with headers of CUDA's math libraries if the project asks."""
    toolchain = prepare(target, store, own_parts)
    offered = plan(target, own_parts).math
    needed = needed_math(project, toolchain, offered) if offered else {}
    for part, missing in needed.items():
        if not has_part(part, store):
            size = f"{download_bytes(part) / 1e6:.0f} MB"
            console.note(f"{missing}: fetching the {part.part.title} (once, {size})")
    return prepare(target, store, own_parts, math=list(needed)) if needed else toolchain


@contextlib.contextmanager
def _only_build(project: Project, target: Target, store: Store, dist: Path) -> Iterator[None]:
    """Let builds that would write the same log and wheel run one after the other."""
    place = f"{dist.resolve()}/{project.title}".encode("utf-8", "surrogateescape")
    name = f"build-{target.id}-{hashlib.sha256(place).hexdigest()[:16]}"
    with store.locked(name, doing=f"builds {project.title} for {target.id}"):
        yield


@contextlib.contextmanager
def _staging(dist: Path) -> Iterator[Path]:
    """Yield a folder on the disk of `dist`, for a wheel that is not checked yet."""
    other = "name another folder with --dist DIR"
    fix = f"free some space, or {other}"
    with disk_errors(dist, what="the folder of the finished wheels", fix=fix, elsewhere=other):
        dist.mkdir(parents=True, exist_ok=True)
        sweep(dist.glob(f"{STAGING_PREFIX}*"))
        with usage.working(dist, STAGING_PREFIX) as folder:
            yield folder


def check(wheel: Path, target: Target, store: Store, own_parts: OwnParts = NOTHING_OWN) -> Report:
    """Check one wheel against a target.

    Raises:
        CheckError: the file is not a wheel.
        DownloadError, ToolMissingError: the target's libraries cannot be had.
    """
    return check_wheel(wheel, target, target_libraries(target, store, own_parts))

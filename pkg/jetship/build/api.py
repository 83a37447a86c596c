"""Build one project for one target."""

import os
import shutil
import time
from dataclasses import dataclass, replace
from pathlib import Path

from jetship import console, proc
from jetship.build import compilercache, environment, isolated
from jetship.build.causes import signal_name
from jetship.build.compilercache import CacheUse
from jetship.build.detached import none_left
from jetship.build.environment import CrossEnvironment
from jetship.build.fingerprint import fingerprint
from jetship.build.finish import CompiledWith, finish
from jetship.build.isolated import Limits, Seen
from jetship.build.project import Project
from jetship.build.torchfacts import release_of
from jetship.build.wheelfile import Wheel
from jetship.errors import BuildError, ToolMissingError
from jetship.store import Store, disk_errors, sha256_of, write_atomically
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.model import Target
from jetship.toolchain.model import Toolchain

NO_SETTINGS = BuildSettings()


@dataclass(frozen=True)
class BuiltWheel:
    """A finished wheel, and how it came about.

    `cache` says how many of its objects were compiled before; None where the wheel itself was
    there, because nothing has changed since it was built.
    """

    path: Path
    sha256: str
    target: Target
    log: Path
    seconds: float
    cache: CacheUse | None = None


@dataclass(frozen=True)
class Order:
    """What to build, and how.

    Args:
        project: the project; its folder is not written to.
        target: what to build for.
        toolchain: the toolchain of the target's platform.
        settings: what deploy.yaml says of the build.
        jobs: how many compilers may run at once.
        cached: take objects from the compiler cache.
    """

    project: Project
    target: Target
    toolchain: Toolchain
    settings: BuildSettings = NO_SETTINGS
    jobs: int = 1
    cached: bool = True


def log_path(order: Order, logs: Path) -> Path:
    """Return where `build_project` writes, below `logs`, what a build prints."""
    return logs / f"{order.project.title}-{order.target.id}.log"


def build_project(
    order: Order, *, store: Store, out: Path, logs: Path, rebuild: bool = False
) -> BuiltWheel:
    """Build a project for a target; the wheel appears in `out` whole or not at all.

    The cache keeps the wheel under the digest of all that it is made from: as long as nothing of
    that changes, it is copied from there.

    Args:
        order: what to build.
        store: scratch folders come from it, and finished wheels stay in it.
        out: where the finished wheel goes.
        logs: where the log of the build goes.
        rebuild: build even where nothing has changed.

    Raises:
        BuildError: the project did not build or cannot be bound to the target.
        DownloadError: a build requirement cannot be installed.
    """
    started = time.monotonic()
    log = log_path(order, logs)
    log.unlink(missing_ok=True)  # that of another build
    digest = fingerprint(order.project, order.target, order.toolchain, order.settings, os.environ)
    used: list[CacheUse] = []

    def make(root: Path) -> None:
        wheel, cache = build_once(order, store=store, log=log)
        used.append(cache)
        wheel.write(root)
        shutil.copyfile(log, root / "build.log")

    name = f"wheel-{order.target.id}"
    if rebuild:
        store.drop_tree(name, digest)
    tree = store.tree(name, digest, make)
    if not used:
        console.note("nothing has changed since this wheel was built")
        logs.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(tree / "build.log", log)
    made = next(tree.glob("*.whl"))
    path = out / made.name
    write_atomically(path, made.read_bytes())
    seconds = time.monotonic() - started
    return BuiltWheel(path, sha256_of(path), order.target, log, seconds, used[0] if used else None)


def verify_project(order: Order, built: BuiltWheel, *, store: Store) -> None:
    """Build a project once more, in another folder and with an empty compiler cache, and compare.

    Args:
        order: what was built.
        built: what came of it.
        store: scratch folders come from it.

    Raises:
        BuildError: the second wheel is another one; says which of its files differ.
    """
    console.note("building once more, with an empty compiler cache, to compare")
    log = built.log.with_suffix(".verify.log")
    with store.scratch() as scratch:
        again = build_once(replace(order, cached=False), store=store, log=log)[0].write(scratch)
        if again.name == built.path.name and again.read_bytes() == built.path.read_bytes():
            console.note(f"the same bytes again: sha256 {built.sha256}")
            return
        first, second = Wheel.read(built.path).members, Wheel.read(again).members
        differing = [
            name for name in sorted({*first, *second}) if first.get(name) != second.get(name)
        ]
    raise BuildError(
        "two builds of the same inputs gave different bytes",
        why=f"they differ in {', '.join(differing) or 'the names of the wheels'}",
        fix="look in the project for times, random numbers, __DATE__ and absolute paths that it "
        f"writes into its files; the logs are {built.log} and {log}",
    )


def build_once(order: Order, *, store: Store, log: Path) -> tuple[Wheel, CacheUse]:
    """Build a project for a target, and return the finished wheel as a value.

    Raises:
        BuildError, DownloadError: as `build_project`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    log.write_bytes(b"")
    project, toolchain = order.project, order.toolchain
    console.step(f"building {project.title} for {order.target.id}")
    with store.scratch() as scratch, disk_errors(store.root), none_left(scratch / "sources"):
        sources = scratch / "sources"
        project.copy_sources(sources)
        cached = scratch / "compilations"
        cross = environment.create(
            toolchain,
            order.target,
            scratch / "cross",
            jobs=order.jobs,
            extra=_extra(order, store, cached),
        )
        console.note(_said(order))
        _run_before(order, cross, sources, log)
        built = isolated.build_wheel(
            sources,
            cross,
            scratch / "wheel",
            log,
            store=store,
            limits=Limits(
                platform=toolchain.platform,
                constraints=toolchain.build_constraints + order.settings.constraints,
                requirements=toolchain.build_requirements,
                minutes=order.settings.time_limit_minutes,
            ),
            shown_as=project.folder,
        )
        cache = compilercache.cache_use(cached)
        if cache.hits:
            console.note(str(cache))
        return finish(Wheel.read(built), order.target, project, _compiled(order)), cache


def _extra(order: Order, store: Store, log: Path) -> dict[str, str]:
    cache = compilercache.variables(store, log, os.environ)
    if not order.cached:
        # An empty cache and not none: compilers then see the same relative paths as ever.
        cache |= {"CCACHE_DIR": str(log.with_name("ccache")), "CCACHE_REMOTE_STORAGE": ""}
    return cache | order.settings.env


def _run_before(order: Order, cross: CrossEnvironment, sources: Path, log: Path) -> None:
    """Run the commands that deploy.yaml has before the build, in the copy of the project.

    Raises:
        BuildError: one of them failed, or took longer than the build may.
    """
    env = environment.compose(os.environ, cross, {})
    env["JETSHIP_SOURCES"] = str(sources.resolve())  # for the compilers of the toolchain
    for command in order.settings.before_build:
        shown = proc.shown(command)
        console.note(f"before_build: {shown}")
        try:
            seconds = order.settings.time_limit_minutes * 60
            done = proc.run(command, env=env, cwd=sources, log=log, seconds=seconds)
        except proc.TimedOutError as error:
            raise BuildError(
                f"`{shown}` of before_build did not end within "
                f"{order.settings.time_limit_minutes:g} minutes",
                fix=f"see its output in {log}",
            ) from error
        except ToolMissingError as error:
            raise BuildError(
                f"`{shown}` of before_build cannot be run: there is no {command[0]}",
                fix="correct before_build in deploy.yaml, or install that program",
            ) from error
        if not done.ok:
            failed = isolated.build_failed(
                Seen(log, sources, order.project.folder, cross.variables["MAX_JOBS"], done.status)
            )
            how = (
                f"was ended by {signal_name(-done.status)}"
                if done.status < 0
                else f"failed with exit status {done.status}"
            )
            raise BuildError(
                f"`{shown}` of before_build {how}",
                why=failed.why,
                fix=failed.fix,
            )


def _compiled(order: Order) -> CompiledWith:
    nvcc = order.toolchain.cuda_version if order.target.code else ""
    return CompiledWith(nvcc or None, release_of(order.toolchain))


def _said(order: Order) -> str:
    jobs = f"{order.jobs} job{'s' if order.jobs > 1 else ''} at once"
    return f"{said_of_code(order.target, order.toolchain.cuda_version)}, {jobs}"


def said_of_code(target: Target, nvcc: str) -> str:
    """Return what device code a target gets, and of which nvcc, in the words of all messages."""
    if not target.code:
        return "without CUDA"
    return f"TORCH_CUDA_ARCH_LIST={target.arch_list}, nvcc {nvcc}"

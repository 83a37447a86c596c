"""Build one project for one target."""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from jetship import console
from jetship.build import compilercache, environment, isolated
from jetship.build.finish import finish
from jetship.build.project import Project
from jetship.build.wheelfile import Wheel
from jetship.store import Store, disk_errors, sha256_of
from jetship.targets.model import Target
from jetship.toolchain.model import Toolchain


@dataclass(frozen=True)
class BuiltWheel:
    """A finished wheel, and how it came about."""

    path: Path
    sha256: str
    target: Target
    log: Path
    seconds: float


def build_project(
    project: Project, target: Target, toolchain: Toolchain, *, store: Store, out: Path, logs: Path
) -> BuiltWheel:
    """Build a project for a target; the wheel appears in `out` whole or not at all.

    Args:
        project: the project; its folder is not written to.
        target: what to build for.
        toolchain: the toolchain of the target's platform.
        store: scratch folders come from it.
        out: where the finished wheel goes.
        logs: where the log of the build goes.

    Raises:
        BuildError: the project did not build or cannot be bound to the target.
        DownloadError: a build requirement cannot be installed.
    """
    started = time.monotonic()
    logs.mkdir(parents=True, exist_ok=True)
    log = logs / f"{project.title}-{target.id}.log"
    log.write_bytes(b"")
    console.step(f"building {project.title} for {target.id}")
    with store.scratch() as scratch:
        with disk_errors(store.root):
            sources = scratch / "sources"
            project.copy_sources(sources)
            cached = scratch / "compilations"
            cross = environment.create(
                toolchain,
                target,
                scratch / "cross",
                compilercache.variables(store, cached, os.environ),
            )
            console.note(_said(toolchain, target))
            built = isolated.build_wheel(
                sources,
                cross,
                scratch / "wheel",
                log,
                shown_as=project.folder,
                constraints=toolchain.build_constraints,
                requirements=toolchain.build_requirements,
            )
            wheel = finish(Wheel.read(built), target, project)
            console.note(str(compilercache.cache_use(cached)))
        path = wheel.write(out)
    seconds = time.monotonic() - started
    return BuiltWheel(path, sha256_of(path), target, log, seconds)


def _said(toolchain: Toolchain, target: Target) -> str:
    jobs = f"{environment.max_jobs()} jobs"
    if not target.code:
        return f"without CUDA, {jobs}"
    return f"TORCH_CUDA_ARCH_LIST={target.arch_list}, nvcc {toolchain.cuda_version}, {jobs}"

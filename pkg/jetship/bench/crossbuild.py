"""The same project built both ways on this machine: crossed, and emulated in a container.

Both take the same sources, GCC, nvcc, torch and number of jobs. Emulated, the target's own
compilers run under qemu-user in an arm64 container, as `docker buildx` would do it.
"""

import contextlib
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from jetship import console
from jetship.build.api import Order, build_once
from jetship.engine import OCI_NAMES, engine_errors
from jetship.errors import BuildError, ConfigError
from jetship.image.base import base_image, packages_folder
from jetship.store import Store
from jetship.targets.model import Platform, Target
from jetship.toolchain.layout import CUDA_CMAKE_MACROS
from jetship.toolchain.lock import require_fitting
from jetship.toolchain.model import Toolchain
from jetship.toolchain.sources import make_part

SHOWN_LINES = 15
STUBS = "/opt/import-stubs"
# The index's torch for aarch64 is a CPU build, whose cpp_extension looks for no CUDA toolkit. It is
# told that it has CUDA, so that it compiles what the target's torch would; nothing else is changed.
_BUILD = """
import torch
torch._C._cuda_getDeviceCount = lambda: 0
torch.version.cuda = {cuda!r}
import setuptools.build_meta as backend
print(backend.build_wheel("/jetship/out"))
"""


@dataclass(frozen=True)
class Timing:
    """How long one way of building took, in seconds of the wall clock, and how often faster it is.

    `ratio` is to the emulated build of the same run.
    """

    way: str
    seconds: float
    ratio: float

    def to_json(self) -> dict[str, Any]:
        """Return it as machines read it."""
        return {
            "way": self.way, "seconds": round(self.seconds, 1), "ratio": round(self.ratio, 1)
        }  # fmt: skip


def compare(order: Order, *, store: Store, logs: Path, client: docker.DockerClient) -> list[Timing]:
    """Build a project emulated, crossed without and crossed with a warm compiler cache.

    Args:
        order: what to build, for a platform that has its compilers for the target itself.
        store: the cache.
        logs: where the logs go.
        client: the engine, on this machine, with an emulator for the target's machine.

    Raises:
        ConfigError: the platform has no compilers to be emulated.
        BuildError: one of the builds fails.
        ImageError, ToolMissingError: the engine fails, or emulates nothing.
    """
    image = _image(order.target.platform, store, client)
    logs.mkdir(parents=True, exist_ok=True)
    seconds = {"emulated": _emulated(order, image, store, logs, client)}
    for way, cached in (("crossed, nothing cached", False), ("crossed, objects cached", True)):
        if cached:
            build_once(order, store=store, log=logs / "bench-warming.log")
        started = time.monotonic()
        build_once(replace(order, cached=cached), store=store, log=logs / "bench-crossed.log")
        seconds[way] = time.monotonic() - started
    return [Timing(way, took, seconds["emulated"] / took) for way, took in seconds.items()]


def _image(platform: Platform, store: Store, client: docker.DockerClient) -> str:
    part = platform.toolchain.emulated
    if part is None:
        raise ConfigError(
            f"{platform.name} has no compilers that could be emulated",
            fix="take one whose file under toolchains/platforms names an `emulated` part, such "
            "as debian-12",
        )
    require_fitting(part)
    made = make_part(part, store).path
    return base_image(
        platform=platform,
        content=made,
        store=store,
        client=client,
        name="emulated",
    )


def _emulated(
    order: Order, image: str, store: Store, logs: Path, client: docker.DockerClient
) -> float:
    console.step(f"building {order.project.title} emulated, in {image}")
    with store.scratch() as scratch:
        order.project.copy_sources(scratch / "sources")
        (scratch / "out").mkdir()
        with _container(order, image, scratch, client) as container:
            started = time.monotonic()
            with engine_errors("building under emulation"):
                container.start()
                status = int(container.wait()["StatusCode"])
                seconds = time.monotonic() - started
                said = container.logs()
        log = logs / "bench-emulated.log"
        log.write_bytes(said)
        if status or not list((scratch / "out").glob("*.whl")):
            lines = said.decode(errors="replace").splitlines()[-SHOWN_LINES:]
            raise BuildError(
                f"the emulated build ended with exit status {status}",
                why="\n       ".join(lines),
                fix=f"the whole log is {log}",
            )
        for made in (scratch / "sources", scratch / "out"):
            shutil.rmtree(made, ignore_errors=True)
    return seconds


@contextlib.contextmanager
def _container(
    order: Order, image: str, scratch: Path, client: docker.DockerClient
) -> Iterator[Container]:
    with engine_errors(f"creating a container of {image}"):
        container = client.containers.create(
            image,
            ["python3", "-c", _BUILD.format(cuda=order.toolchain.cuda_version)],
            platform="linux/" + OCI_NAMES[order.target.platform.machine][0],
            working_dir="/jetship/sources",
            environment=_environment(order.target, order.jobs),
            volumes=_volumes(order.toolchain, scratch),
            network_mode="none",
            init=True,
        )
    try:
        yield container
    finally:
        container.remove(force=True, v=True)


def _environment(target: Target, jobs: int) -> dict[str, str]:
    compilers = target.platform.toolchain.compiler.part.gcc
    return {
        "CC": f"gcc-{compilers}",
        "CXX": f"g++-{compilers}",
        "CUDA_HOME": "/opt/cuda",
        "FORCE_CUDA": "1",
        "TORCH_CUDA_ARCH_LIST": target.arch_list,
        "MAX_JOBS": str(jobs),
        "LIBRARY_PATH": STUBS,
        "LC_ALL": "C.UTF-8",
    }


def _volumes(toolchain: Toolchain, scratch: Path) -> dict[str, dict[str, str]]:
    """Return what the container sees of this machine: the sources, and what torch and nvcc lack."""
    macros = f"{packages_folder(toolchain.platform)}/{CUDA_CMAKE_MACROS}"
    shared = {
        scratch: ("/jetship", "rw"),
        toolchain.stubs.resolve(): (STUBS, "ro"),
        (toolchain.site_packages / CUDA_CMAKE_MACROS).resolve(): (f"/{macros}", "ro"),
    }
    for folder in ("include", "lib64"):
        shared[(toolchain.cuda_home / folder).resolve()] = (f"/opt/cuda/{folder}", "ro")
    return {str(path): {"bind": bind, "mode": mode} for path, (bind, mode) in shared.items()}

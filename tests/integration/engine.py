"""A real Docker engine and arm64 emulation for the tests, installed and started where missing.

Needs root on a Debian or Ubuntu machine. What cannot be had is an error, never a skipped test.
"""

import contextlib
import os
import signal
import subprocess  # noqa: TID251 - dockerd has to stay in the background, which proc cannot do
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import docker
from jetship import proc
from jetship.engine import connect
from jetship.errors import ToolMissingError

BINFMT = Path("/proc/sys/fs/binfmt_misc")
START_SECONDS = 60


@contextlib.contextmanager
def running_engine() -> Iterator[docker.DockerClient]:
    """Yield a client of the running engine, or of one that lives as long as this context."""
    ensure_emulation()
    try:
        running = connect()
    except ToolMissingError:
        with _own_engine() as client:
            yield client
    else:
        with contextlib.closing(running):
            yield running


def ensure_emulation() -> None:
    """Register qemu for arm64 programs with the kernel, unless something is registered."""
    if os.uname().machine == "aarch64" or (BINFMT / "qemu-aarch64").exists():
        return
    install("qemu-aarch64-static", "qemu-user-static", "binfmt-support")
    if not (BINFMT / "register").exists():
        _run("mount", "-t", "binfmt_misc", "binfmt_misc", str(BINFMT))
    if not (BINFMT / "qemu-aarch64").exists():
        _run("update-binfmts", "--enable", "qemu-aarch64")


@contextlib.contextmanager
def _own_engine() -> Iterator[docker.DockerClient]:
    with started_engine() as (client, socket):
        # For the tests that run jetship's tasks as programs of their own.
        os.environ["DOCKER_HOST"] = socket
        yield client


@contextlib.contextmanager
def started_engine(*words: str) -> Iterator[tuple[docker.DockerClient, str]]:
    """Yield the client and socket of an engine of its own, started with `words` besides."""
    install("dockerd", "docker.io")
    with tempfile.TemporaryDirectory(prefix="jetship-engine-") as folder:
        daemon, socket, log = _start(Path(folder), *words)
        try:
            with contextlib.closing(_wait_for(daemon, socket, log)) as client:
                yield client, socket
        finally:
            daemon.send_signal(signal.SIGTERM)
            daemon.wait(START_SECONDS)
            # The engine makes its data root a mount of its own and leaves it mounted.
            proc.run(["umount", "--recursive", f"{folder}/data"])


def _start(folder: Path, *words: str) -> tuple["subprocess.Popen[bytes]", str, Path]:
    socket = f"unix://{folder}/docker.sock"
    log = folder / "dockerd.log"
    argv = [
        "dockerd",
        f"--host={socket}",
        f"--data-root={folder}/data",
        f"--exec-root={folder}/exec",
        f"--pidfile={folder}/docker.pid",
        # The tests' containers have no network, so the engine needs neither.
        "--iptables=false",
        "--bridge=none",
        *words,
    ]
    with log.open("wb") as sink:
        daemon = subprocess.Popen(argv, stdout=sink, stderr=sink, start_new_session=True)
    return daemon, socket, log


def _wait_for(daemon: "subprocess.Popen[bytes]", socket: str, log: Path) -> docker.DockerClient:
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end and daemon.poll() is None:
        with contextlib.suppress(ToolMissingError):
            return connect(socket)
        time.sleep(0.2)
    tail = "\n".join(log.read_text().splitlines()[-15:])
    raise RuntimeError(f"dockerd does not start:\n{tail}")


def install(program: str, *packages: str) -> None:
    """Install Debian packages, unless the program that they bring is there."""
    if proc.find(program) is None:
        _run("apt-get", "-o", "DPkg::Lock::Timeout=300", "update")
        environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
        _run(
            "apt-get", "-o", "DPkg::Lock::Timeout=300", "install", "-y", "--no-install-recommends",
            *packages,
            env=environment,
        )  # fmt: skip


def _run(*argv: str, env: dict[str, str] | None = None) -> None:
    done = proc.run(argv, env=env)
    if not done.ok:
        raise RuntimeError(f"{' '.join(argv)} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")

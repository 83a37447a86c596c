"""The smoke run: a command in the new image, emulated where the engine's machine is another."""

import concurrent.futures
import contextlib
import io
import json
import threading
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import docker
import docker.errors
import requests
from docker.models.containers import Container
from docker.types import LogConfig

from jetship import console, interrupts, proc
from jetship.engine import EMULATION_FIX, OCI_NAMES, engine_errors
from jetship.errors import ImageError, ToolMissingError
from jetship.image.runline import EMULATION_FOLDER
from jetship.image.stubs import emulation_stubs
from jetship.image.tree import Layer, write_tar
from jetship.image.wheelfile import libraries
from jetship.store import Store
from jetship.targets.model import Target
from jetship.toolchain.model import Toolchain

DEFAULT_LIMIT_SECONDS = 600.0
SHOWN_LINES = 15


def smoke(
    *,
    target: Target,
    image: str,
    wheel: Path,
    command: Sequence[str],
    client: docker.DockerClient,
    toolchain: Toolchain,
    store: Store,
    limit_seconds: float = DEFAULT_LIMIT_SECONDS,
) -> dict[str, Any]:
    """Run `command` in the image and return the JSON object that it prints to stdout.

    Args:
        target: what the image was built for.
        image: its name; the engine must have it.
        wheel: the wheel in it, whose missing symbols the stand-in libraries define.
        command: the `smoke` of deploy.yaml.
        client: the engine.
        toolchain: the platform's toolchain, which compiles the stand-ins.
        store: where the stand-ins are kept.
        limit_seconds: the run is stopped after this time.

    Raises:
        ImageError: the command fails, takes too long or prints no JSON object; has the last
            lines of its output.
        ToolMissingError: the engine cannot run programs of the target's machine.
    """
    with interrupts.noticed() as interrupted:
        stubs = emulation_stubs(dict(libraries(wheel)), toolchain, store)
        console.step(f"running {proc.shown(command)} in {image}")
        for init in (True, False):
            # The engine is spoken to in a thread, which Ctrl-C does not reach.
            with (
                ThreadPoolExecutor(1) as thread,
                _container(
                    thread, client, image, command, target, stubs=stubs, init=init
                ) as container,
            ):
                run = _Run(container, limit_seconds)
                following = thread.submit(run.follow, target.platform.machine)
                status = interrupts.result(following, interrupted)
            if not run.never_began:
                break
            # docker-init reports a program of a foreign machine as a missing file. The engine by
            # itself tells them apart, so it is asked, for the message.
    return _answer(status, run, command)


@contextlib.contextmanager
def _container(
    thread: ThreadPoolExecutor,
    client: docker.DockerClient,
    image: str,
    command: Sequence[str],
    target: Target,
    *,
    stubs: Path | None,
    init: bool,
) -> Iterator[Container]:
    """Create the container; remove it on every way out, Ctrl-C too."""
    environment = _environment(client, image) if stubs is not None else {}
    name = f"jetship-smoke-{uuid.uuid4().hex}"
    making = thread.submit(
        client.containers.create,
        image,
        list(command),
        name=name,
        platform="linux/" + OCI_NAMES[target.platform.machine][0],
        environment=environment,
        network_mode="none",
        # The output is read back, whatever the engine does with logs otherwise.
        log_config=LogConfig(type=LogConfig.types.JSON),
        # qemu never ends where it is the first process and the emulated program
        # crashes: the kernel keeps the fatal signal from it. So docker-init is first.
        init=init,
    )
    try:
        with engine_errors(f"creating a container of {image}"):
            container = making.result()
        if stubs is not None:
            # Copied, not mounted: the engine may be on another machine.
            with engine_errors("copying the stand-in libraries"):
                thread.submit(container.put_archive, "/", _stub_archive(stubs)).result()
        yield container
    finally:
        # The container exists, or never will, once the engine has answered.
        concurrent.futures.wait([making])
        _remove(client, name)


def _remove(client: docker.DockerClient, name: str) -> None:
    try:
        client.api.remove_container(name, force=True, v=True)
    except docker.errors.NotFound:
        return
    except (docker.errors.DockerException, requests.RequestException) as error:
        console.warn(f"the container {name} is left behind: {error}")


def _environment(client: docker.DockerClient, image: str) -> dict[str, str]:
    with engine_errors(f"looking for {image}"):
        given = client.images.get(image).attrs["Config"].get("Env") or []
    paths = [line.split("=", 1)[1] for line in given if line.startswith("LD_LIBRARY_PATH=")]
    return {"LD_LIBRARY_PATH": ":".join([EMULATION_FOLDER, *paths])}


def _stub_archive(stubs: Path) -> bytes:
    out = io.BytesIO()
    write_tar(out, Layer(stubs, prefix=EMULATION_FOLDER.lstrip("/"), plain_modes=True))
    return out.getvalue()


class _Run:
    """A container's run: what it wrote, and whether it had to be stopped."""

    def __init__(self, container: Container, limit_seconds: float) -> None:
        self.stdout = b""
        self.stderr = b""
        self.limit_seconds = limit_seconds
        self.expired = False
        self._container = container

    def follow(self, machine: str) -> int:
        """Run the container to its end, read what it wrote, and return its exit status.

        Raises:
            ImageError: the engine cannot start the command.
            ToolMissingError: the engine cannot run programs of `machine`.
        """
        timer = threading.Timer(self.limit_seconds, self._stop)
        with engine_errors("running the smoke command"):
            self._start(machine)
            timer.start()
            try:
                self._show_stderr()
                status = int(self._container.wait()["StatusCode"])
            finally:
                timer.cancel()
            self.stdout = self._container.logs(stdout=True, stderr=False)
            self.stderr = self._container.logs(stdout=False, stderr=True)
        if status:
            _refuse_foreign(self.stderr.decode(errors="replace"), machine)
        return status

    def _start(self, machine: str) -> None:
        try:
            self._container.start()
        except docker.errors.APIError as error:
            _refuse_foreign(str(error.explanation), machine)
            raise

    def _show_stderr(self) -> None:
        """Pass on what the command says, until it has ended."""
        stream = self._container.logs(stdout=False, stderr=True, stream=True, follow=True)
        try:
            for chunk in stream:
                console.debug(chunk.decode(errors="replace").rstrip())
        finally:
            stream.close()

    def _stop(self) -> None:
        self.expired = True
        # It may have ended by itself in this very moment.
        with contextlib.suppress(docker.errors.APIError):
            self._container.kill()

    @property
    def never_began(self) -> bool:
        """Whether the first process, docker-init, found nothing that it could run."""
        return self.stderr.startswith(b"[FATAL tini")

    def last_lines(self) -> str:
        text = (self.stderr + self.stdout).decode(errors="replace").strip()
        return "\n       ".join(text.splitlines()[-SHOWN_LINES:])


def _refuse_foreign(text: str, machine: str) -> None:
    if "exec format error" in text.lower():
        raise ToolMissingError(
            f"the Docker engine's machine cannot run {machine} programs",
            why="no emulator is registered with its kernel (binfmt_misc)",
            fix=EMULATION_FIX,
        )


def _answer(status: int, run: _Run, command: Sequence[str]) -> dict[str, Any]:
    said = proc.shown(command)
    if run.expired:
        raise ImageError(
            f"the smoke command `{said}` did not end within {run.limit_seconds:.0f} seconds",
            why=run.last_lines(),
            fix="emulation is slow: give it more time, or make the self test smaller",
        )
    try:
        answer = json.loads(run.stdout)
    except ValueError:
        answer = None
    # A self test that finds something wrong says so in its answer, and with its exit status.
    if status and not (isinstance(answer, dict) and answer.get("ok") is False):
        raise ImageError(
            f"the smoke command `{said}` ended with exit status {status}",
            why=run.last_lines(),
            fix="see its last words above; `docker run` with the line that `image` printed "
            "runs it by hand",
        )
    if not isinstance(answer, dict):
        raise ImageError(
            f"the smoke command `{said}` did not print a JSON object to stdout",
            why=run.last_lines(),
            fix="print one JSON object to stdout, and everything else to stderr",
        )
    return answer

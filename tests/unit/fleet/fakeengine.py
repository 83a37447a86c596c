"""An engine behind a docker command, which fails where it is told to.

The command is a small script that hands its words to this process; so the engine outlives whatever
is killed, as a real one does.
"""

import contextlib
import copy
import json
import os
import signal
import socketserver
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

AWAY = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is it running?"
STOP_SECONDS = 0.1  # what a container takes to end; the engine counts them, not the command
AWAY_SECONDS = 0.15
KILLED = 137

# bash opens the connection by itself, and starts in a fraction of the time that Python takes.
_COMMAND = """\
#!/bin/bash
exec 3<>/dev/tcp/127.0.0.1/{port}
printf '%s\\0' "$PPID" "$@" $'\\1' >&3
IFS= read -r status <&3 || exit 137
IFS= read -r -d '' text <&3
if [ "$status" = 0 ]; then printf '%s' "$text"; else printf '%s\\n' "$text" >&2; fi
exit "$status"
"""


class CommandError(Exception):
    """The docker command fails with these words."""


class SilentError(Exception):
    """The docker command gets no answer: who called it was killed."""


@dataclass
class Container:
    image: str
    restart: str
    labels: list[str]
    running: bool = False
    started: int = 0
    execs: int = 0
    stops_at: float | None = None


@dataclass(frozen=True)
class Fault:
    """What happens at which call.

    Args:
        call: its number, from 1.
        what: fail: the command does; away: no engine answers; hang: it never ends; restart: of the
            engine; worker, watcher, both: these processes of the program die; power: both, and the
            engine starts again; in flight: both, while the engine goes on to stop a container;
            full: from then on, the disk of the program's state.
        after: whether the call has done its work by then.
    """

    call: int
    what: str
    after: bool


@dataclass
class Engine:
    """Containers, images, and what was asked so far."""

    images: dict[str, str] = field(default_factory=dict)
    containers: dict[str, Container] = field(default_factory=dict)
    behaviours: dict[str, str] = field(default_factory=dict)
    calls: list[list[str]] = field(default_factory=list)
    fault: Fault | None = None
    watcher: int = 0
    away_until: float = 0
    full: bool = False
    """The disk of the program's state takes no more."""

    def __post_init__(self) -> None:
        self.lock = threading.RLock()

    def copy(self) -> "Engine":
        with self.lock:
            return Engine(dict(self.images), copy.deepcopy(self.containers), dict(self.behaviours))

    @property
    def running(self) -> list[str]:
        with self.lock:
            self._settle()
            return [name for name, one in self.containers.items() if one.running]

    def restart(self) -> None:
        """Stop all, and start those again that are to run always."""
        with self.lock:
            for one in self.containers.values():
                one.stops_at, one.running = None, one.restart == "always"
                one.started += one.running

    def call(self, worker: int, words: list[str]) -> str:
        with self.lock:
            self.calls.append(words)
            mine = self.fault and self.fault.call == len(self.calls)
        fault = self.fault if mine else None
        if fault and not fault.after:
            self._strike(fault.what, worker)
        if time.monotonic() < self.away_until:
            raise CommandError(AWAY)
        if words[0] == "stop":
            self._end(words[-1], worker, fault)
        with self.lock:
            self._settle()
            said = getattr(self, f"_{words[0]}", self._nothing)(words[1:])
        if fault and fault.after:
            self._strike(fault.what, worker)
        return said or ""

    def _strike(self, what: str, worker: int) -> None:
        if what == "fail":
            raise CommandError("Error response from daemon: an error that was asked for")
        if what in ("restart", "power"):
            self.restart()
        if what == "restart":
            self.away_until = time.monotonic() + AWAY_SECONDS
        if what in ("away", "restart"):
            raise CommandError(AWAY)
        if what == "full":
            self.full = True
        if what == "hang":
            time.sleep(3)
            raise SilentError
        # The watcher first: it would act upon the worker's death.
        if what in ("watcher", "both", "power"):
            kill(self.watcher)
        if what in ("worker", "both", "power"):
            kill(worker)
            raise SilentError

    def _settle(self) -> None:
        for one in self.containers.values():
            if one.stops_at and time.monotonic() >= one.stops_at:
                one.running, one.stops_at = False, None

    def _named(self, name: str) -> Container:
        if name not in self.containers:
            raise CommandError(f"Error: No such container: {name}")
        return self.containers[name]

    def _end(self, name: str, worker: int, fault: Fault | None) -> None:
        with self.lock:
            one = self._named(name)
            if one.running and not one.stops_at:
                one.stops_at = time.monotonic() + STOP_SECONDS
        if fault and fault.what == "in flight":
            self._strike("both", worker)
        while name in self.running:
            time.sleep(0.01)

    def _nothing(self, _: list[str]) -> str:
        """Answer a crash point: the program calls it before and after it replaces its state."""
        if self.full:
            raise CommandError("No space left on device")
        return ""

    def _info(self, _: list[str]) -> str:
        return json.dumps({"ServerVersion": "20.10.24", "Runtimes": {"runc": {}, "nvidia": {}},
                           "DockerRootDir": "/", "DriverStatus": []})  # fmt: skip

    def _ps(self, words: list[str]) -> str:
        label = next((word[6:] for word in words if word.startswith("label=")), None)
        rows = self.containers.items()
        return "".join(f"{name}\n" for name, one in rows if label is None or label in one.labels)

    def _create(self, words: list[str]) -> None:
        values, labels = {}, []
        while words[0].startswith("--"):
            name, value, *words = words
            values[name] = value
            labels += [value] if name == "--label" else []
        if words[0] not in self.images:
            raise CommandError(f"Unable to find image '{words[0]}' locally")
        if values["--name"] in self.containers:
            raise CommandError("Conflict. The container name is already in use")
        made = Container(self.images[words[0]], values["--restart"], labels)
        self.containers[values["--name"]] = made

    def _start(self, words: list[str]) -> None:
        one = self._named(words[0])
        behaviour = self.behaviours.get(one.image, "")
        if behaviour == "does not start":
            raise CommandError("Error response from daemon:\n could not select device driver")
        if not one.running:
            one.running, one.stops_at = behaviour != "ends at once", None
            one.started += 1

    def _rm(self, words: list[str]) -> None:
        self._named(words[-1])
        del self.containers[words[-1]]

    def _update(self, words: list[str]) -> None:
        self._named(words[2]).restart = words[1]

    def _container(self, words: list[str]) -> str:
        one = self._named(words[1])
        state = {"Running": one.running, "Status": "running" if one.running else "exited",
                 "StartedAt": str(one.started), "ExitCode": 3}  # fmt: skip
        labels = dict(label.split("=", 1) for label in one.labels)
        return json.dumps([{"Name": "/" + words[1], "State": state, "Config": {"Labels": labels},
                            "HostConfig": {"RestartPolicy": {"Name": one.restart}},
                            "Image": one.image, "Created": str(one.started)}])  # fmt: skip

    def _image(self, words: list[str]) -> str:
        names = self.images
        if words[0] == "inspect" and "--format" in words:
            return "".join(f"{names[word]}\n" for word in words[3:] if word in names)
        if words[0] == "inspect":
            if words[-1] not in names:
                raise CommandError(f"Error: No such image: {words[-1]}")
            return json.dumps([{"Id": names[words[1]], "RootFS": {"Layers": []}}])
        if words[0] == "ls" and "--quiet" in words:
            return "".join(f"{one}\n" for one in set(names.values()))
        if words[0] == "ls":
            return "".join(f"{one}\n" for one in names if one.startswith(words[-1] + ":"))
        if words[0] == "tag":
            names[words[2]] = names[words[1]]
        if words[0] == "rm":
            names.pop(words[1], None)
        return ""

    def _logs(self, words: list[str]) -> str:
        self._named(words[-1])
        return "the container's last words\n"

    def _exec(self, words: list[str]) -> str:
        one = self._named(words[0])
        if not one.running:
            raise CommandError(f"Error response from daemon: Container {words[0]} is not running")
        one.execs += 1
        behaviour = self.behaviours.get(one.image, "")
        if behaviour == "dies when asked":
            one.running = False
        if (
            behaviour == "dies when asked"
            or (behaviour == "never healthy" and words[1] == "health")
            or (behaviour == "healthy later" and words[1] == "health" and one.execs < 4)
        ):
            raise CommandError("not yet")
        return '{"ok": false}\n' if behaviour == "wrong answer" else 'warm\n{"ok": true}\n'


def kill(process: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)


class _Handler(socketserver.StreamRequestHandler):
    server: "_Server"

    def handle(self) -> None:
        data = b""
        while not data.endswith(b"\0\1\0"):
            chunk = self.connection.recv(1 << 16)
            if not chunk:
                return
            data += chunk
        worker, *words = data[:-3].decode().split("\0")
        with contextlib.suppress(SilentError, ConnectionError):
            try:
                status, text = 0, self.server.engine.call(int(worker), words)
            except CommandError as error:
                status, text = 1, str(error)
            self.wfile.write(f"{status}\n{text}".encode())


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, engine: Engine) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.engine = engine


@contextlib.contextmanager
def serving(engine: Engine, folder: Path) -> Iterator[None]:
    """Put a docker command for an engine into a folder, as long as the body runs."""
    with _Server(engine) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        command = folder / "docker"
        command.write_text(_COMMAND.format(port=server.server_address[1]))
        command.chmod(0o755)
        try:
            yield
        finally:
            server.shutdown()
            thread.join()

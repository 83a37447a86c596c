"""The device's program, run here as ssh would run it there, with a docker command that fails."""

import contextlib
import json
import os
import shutil
import subprocess  # noqa: TID251 - it is spoken to, and killed
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fakeengine import Engine, serving
from jetship.fleet.program import program_source

APP = "app"
# What takes a device's time is short here.
QUICK = {
    "STEADY_SECONDS = 1.0": "STEADY_SECONDS = 0.02",
    "PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0)": "PAUSE_SECONDS = (0.05,)",
    "TERMINATED_PATIENCE_SECONDS = 10.0": "TERMINATED_PATIENCE_SECONDS = 2.0",
    "RECOVERY_PATIENCE_SECONDS = 30.0": "RECOVERY_PATIENCE_SECONDS = 5.0",
    "POLL_SECONDS = 0.5": "POLL_SECONDS = 0.02",
}
# A crash just before and just after the state file becomes another one, or a disk that is full
# just before.
CRASH = '__import__("subprocess").call(["docker", "crashpoint"], stderr=-3)'
FULL = f'{CRASH} and (_ for _ in ()).throw(OSError(28, "No space left on device"))'
REPLACE = 'os.replace(path + ".new", path)'


def image(number: int) -> str:
    return f"sha256:{number:012x}{0:052x}"


def order(number: int, **words) -> dict:
    health = {"selftest": ["selftest"], "command": ["health"], "interval": 0.02, "timeout": 1.0,
              "settle": 0.02}  # fmt: skip
    return {
        "do": "swap", "token": f"t{number}", "release": f"r{number}", "image": image(number),
        "create": ["--runtime", "nvidia"], "command": ["run"], "mode": "replace",
        "health": health, "stop_seconds": 1, "patience": 5.0,
    } | words  # fmt: skip


def back(**words) -> dict:
    return {"do": "rollback", "token": "back", "to": "", "health": None, "mode": "replace",
            "stop_seconds": 1, "patience": 5.0} | words  # fmt: skip


class Device:
    """A folder with the docker command and the program's state; and its engine."""

    def __init__(self, folder: Path, engine: Engine) -> None:
        self.folder = folder
        self.engine = engine
        self.own = folder / "state" / APP

    @classmethod
    @contextlib.contextmanager
    def new(cls, folder: Path) -> Iterator["Device"]:
        folder.mkdir(parents=True)
        engine = Engine({image(number): image(number) for number in range(1, 5)})
        with serving(engine, folder):
            yield cls(folder, engine)

    @contextlib.contextmanager
    def copied(self, folder: Path) -> Iterator["Device"]:
        folder.mkdir(parents=True)
        if self.own.exists():
            shutil.copytree(self.own, folder / "state" / APP)
        engine = self.engine.copy()
        with serving(engine, folder):
            yield Device(folder, engine)

    @property
    def state(self) -> dict:
        path = self.own / "state.json"
        empty = {"current": None, "previous": None, "last": None, "swap": None}
        return json.loads(path.read_text()) if path.exists() else empty

    @property
    def journal(self) -> list[dict]:
        text = (self.own / "journal.jsonl").read_text()
        return [json.loads(line) for line in text.splitlines()]

    @property
    def said(self) -> str:
        """What the program wrote to stderr: nothing, where it has no defect."""
        return (self.folder / "stderr").read_text()

    def asked(self, *requests: dict, **quick: str) -> list[dict | None]:
        """Return the answers of one session; None where it was killed."""
        with Session(self, quick) as session:
            answers = [session.hello()]
            if answers[0] is not None and "answer" in answers[0]:
                answers += [session.ask(request) for request in requests]
        return answers

    def wait_until_free(self) -> None:
        """Hold a session as soon as no process of an earlier one has the lock any more."""
        end = time.monotonic() + 60
        while time.monotonic() < end:
            with Session(self, {}) as session:
                answer = session.hello(wait=20)
            if answer is not None and answer.get("refused") != "locked":
                return
        raise AssertionError("the device stays locked")


class Session:
    """A running program."""

    def __init__(self, device: Device, quick: dict[str, str] | None = None) -> None:
        source = program_source()
        for old, new in (QUICK | (quick or {})).items():
            assert source.count(old) == 1, old
            source = source.replace(old, new)
        # A module is a quoted text in it.
        assert source.count(REPLACE) == 1
        source = source.replace(REPLACE, f"{FULL}; {REPLACE}; {CRASH}")
        env = {"PATH": f"{device.folder}:{os.environ['PATH']}", "HOME": str(device.folder)}
        with (device.folder / "stderr").open("ab") as errors:
            self.process = subprocess.Popen(
                [sys.executable, "-S", "-c", source],
                env=env,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,
            )
        self.device = device
        device.engine.watcher = self.process.pid
        self.phases: list[str] = []

    def __enter__(self) -> "Session":
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        self.process.wait(60)
        self.process.stdout.close()

    def hello(self, **words) -> dict | None:
        hello = {"do": "hello", "app": APP, "state": str(self.device.folder / "state"),
                 "who": "me@here", "release": "r", "wait": 0, "clock": 1.8e9}  # fmt: skip
        self.ask(None)
        return self.ask(hello | words)

    def ask(self, request: dict | None) -> dict | None:
        """Return the answer, or None where the program has ended."""
        if request is not None:
            with contextlib.suppress(BrokenPipeError):
                self.send(request)
        while line := self.process.stdout.readline():
            message = json.loads(line)
            if "phase" not in message:
                return message
            self.phases.append(message["phase"])
        return None

    def send(self, request: dict) -> None:
        self.process.stdin.write(json.dumps(request).encode() + b"\n")
        self.process.stdin.flush()

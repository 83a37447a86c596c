"""Run jetship as its users do, as a child process, and look at what it says and leaves."""

import contextlib
import json
import os
import shutil
import signal
import subprocess  # noqa: TID251 - a child that is to be stopped has to run in the background
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetship import proc
from jetship.store import default_root

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = ROOT / "tests/projects"
INVOKE = (sys.executable, "-m", "invoke")
JETSHIP = (str(Path(sys.executable).with_name("jetship")),)
LABEL = "debian12.torch271.cxx11abi.cu118"
MARK = "JETSHIP_TEST_MARK"
WAIT_SECONDS = 120


@dataclass(frozen=True)
class Ended:
    """A task that ended: its exit status and what it wrote."""

    status: int
    stdout: str
    stderr: str

    @property
    def json(self) -> Any:
        """The one JSON document on stdout."""
        return json.loads(self.stdout)

    def one_error(self, status: int) -> str:
        """Return the error, having made sure that it is the only one, and no traceback."""
        assert self.status == status, self.stderr
        assert "Traceback" not in self.stderr + self.stdout
        _, *errors = ("\n" + self.stderr).split("\nerror: ")
        assert len(errors) == 1, self.stderr
        assert "\n  fix: " in errors[0], "an error says what to do next"
        return errors[0]

    def good(self) -> "Ended":
        """Return this, having made sure that all went well."""
        assert self.status == 0, self.stderr
        assert "error:" not in self.stderr
        return self


def environment(**changes: str | None) -> dict[str, str]:
    """Return this process's environment without jetship's switches, and with `changes`."""
    kept = {name: value for name, value in os.environ.items() if name != "JETSHIP_VERBOSE"}
    kept["JETSHIP_CACHE"] = str(default_root())
    kept.pop("TORCH_CUDA_ARCH_LIST", None)
    kept.update({name: value for name, value in changes.items() if value is not None})
    return {name: value for name, value in kept.items() if changes.get(name, "") is not None}


def invoke(*words: str | Path, **changes: str | None) -> Ended:
    """Run `invoke` in this repository; `changes` are variables, None takes one away."""
    done = proc.run([*INVOKE, *words], cwd=ROOT, env=environment(**changes))
    return Ended(done.status, done.stdout, done.stderr)


def jetship(*words: str | Path, cwd: Path, **changes: str | None) -> Ended:
    """Run the `jetship` command in another folder, where there is no tasks.py."""
    done = proc.run([*JETSHIP, *words], cwd=cwd, env=environment(**changes))
    return Ended(done.status, done.stdout, done.stderr)


@dataclass(frozen=True)
class Running:
    """A task in the background. It and all that it starts carry a mark."""

    child: "subprocess.Popen[bytes]"
    mark: str
    folder: Path

    def send(self, number: signal.Signals) -> None:
        """Send a signal to jetship alone, not to what it started."""
        self.child.send_signal(number)

    def said(self) -> str:
        """Return what it wrote to stderr so far."""
        return (self.folder / "stderr").read_text()

    def end(self) -> Ended:
        """Wait for its end."""
        status = self.child.wait(WAIT_SECONDS)
        return Ended(status, (self.folder / "stdout").read_text(), self.said())

    @property
    def temporary(self) -> Path:
        """Its TMPDIR."""
        return self.folder / "tmp"

    def programs(self) -> list[str]:
        """Return the names of all its processes that run now."""
        return [name for _, name in marked(self.mark)]


@contextlib.contextmanager
def running(*words: str | Path, **changes: str | None) -> Iterator[Running]:
    """Run `invoke` in the background; nothing of it runs any more afterwards."""
    mark = uuid.uuid4().hex
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as name,
        contextlib.ExitStack() as stack,
    ):
        folder = Path(name)
        (folder / "tmp").mkdir()
        child = subprocess.Popen(
            [*INVOKE, *map(str, words)],
            cwd=ROOT,
            env=environment(**changes, TMPDIR=str(folder / "tmp"), **{MARK: mark}),
            stdin=subprocess.DEVNULL,
            stdout=stack.enter_context((folder / "stdout").open("wb")),
            stderr=stack.enter_context((folder / "stderr").open("wb")),
            start_new_session=True,
        )
        with child:
            try:
                yield Running(child, mark, folder)
            finally:
                for process, _ in marked(mark):
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(process, signal.SIGKILL)


def marked(mark: str) -> list[tuple[int, str]]:
    """Return id and name of every process, zombies apart, with this mark."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):  # it may end while it is looked at
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append((int(folder.name), (folder / "comm").read_text().strip()))
    return found


def wait_until(condition: Callable[[], object], what: str, pause: float = 0.05) -> None:
    """Wait for what another process is about to do; how long that takes is not the test."""
    end = time.monotonic() + WAIT_SECONDS
    while not condition():
        assert time.monotonic() < end, f"{what} did not happen"
        time.sleep(pause)


def names_in(folder: Path) -> list[str]:
    """Return the names in a folder, hidden ones too; a missing folder has none."""
    return sorted(path.name for path in folder.iterdir()) if folder.is_dir() else []


def wheels_in(folder: Path) -> list[Path]:
    """Return all wheels anywhere below a folder."""
    return sorted(folder.rglob("*.whl"))


def copy_of(project: str, folder: Path) -> Path:
    """Copy one of tests/projects to where a test may change it."""
    return Path(shutil.copytree(PROJECTS / project, folder / project))

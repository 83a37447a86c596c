"""The one module that starts programs: argv lists only, never a shell."""

import atexit
import contextlib
import errno
import os
import shlex
import shutil
import signal
import subprocess  # noqa: TID251 - the one place that may
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from jetship import console
from jetship.errors import ToolMissingError

STOP_GRACE_SECONDS = 5.0
STOP_POLL_SECONDS = 0.02
SHOWN_LETTERS = 100
WATCHER = Path(__file__).with_name("_watcher.py")


class TimedOutError(Exception):
    """A program took longer than it may; it was stopped, with all that it had started."""


class StoppedError(Exception):
    """A program was stopped, or not started, because the work that it belongs to has ended."""


class Stopper:
    """Ends the programs that other threads run, and lets them start no more."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._children: set[subprocess.Popen[bytes]] = set()
        self._stopped = False

    def stop(self) -> None:
        """Stop every program that runs in a `with_stopper` of this one."""
        with self._lock:
            self._stopped = True
            children = list(self._children)
        for child in children:
            stop_group(child)

    @contextlib.contextmanager
    def watching(self, child: "subprocess.Popen[bytes]") -> Iterator[None]:
        """Let `stop` end a child while the body runs.

        Raises:
            StoppedError: it was, or `stop` was called before.
        """
        with self._lock:
            self._children.add(child)
            late = self._stopped
        if late:
            stop_group(child)
        try:
            yield
        finally:
            with self._lock:
                self._children.discard(child)
        if self._stopped:
            raise StoppedError


_stopper: ContextVar[Stopper | None] = ContextVar("stopper", default=None)


@contextlib.contextmanager
def with_stopper(stopper: Stopper) -> Iterator[None]:
    """Put the programs that this thread runs in the body under a stopper."""
    token = _stopper.set(stopper)
    try:
        yield
    finally:
        _stopper.reset(token)


class _Watcher:
    """A process that outlives this one where it is killed, and then ends what it had started.

    One for all programs, started with the first of them.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pipe: int | None = None

    @contextlib.contextmanager
    def watching(self, child: "subprocess.Popen[bytes]") -> Iterator[None]:
        """Have a child ended if this process is killed while the body runs."""
        self._tell(f"+{child.pid}\n")
        try:
            yield
        finally:
            self._tell(f"-{child.pid}\n")

    def _tell(self, line: str) -> None:
        with self._lock:
            if self._pipe is None:
                self._pipe = self._begin()
            # One that somebody has killed ends nothing any more; builds work without.
            with contextlib.suppress(BrokenPipeError):
                os.write(self._pipe, line.encode())

    @staticmethod
    def _begin() -> int:
        read, write = os.pipe()
        # In a session of its own, so that what ends this process's group leaves it alone.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", WATCHER, str(STOP_GRACE_SECONDS)],
            env={},
            cwd="/",
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        os.close(read)

        def end() -> None:
            os.close(write)
            process.wait()

        atexit.register(end)
        return write


_watcher = _Watcher()


@dataclass(frozen=True)
class Finished:
    """A program that ended: its exit status and, where captured, what it wrote."""

    argv: tuple[str, ...]
    status: int
    stdout: str = ""
    stderr: str = ""

    @property
    def ok(self) -> bool:
        return self.status == 0


def shown(argv: Sequence[str]) -> str:
    """Return a command line for people: on one line, without the end of a long one."""
    text = " ".join(" ".join(argv).split())
    return text if len(text) <= SHOWN_LETTERS else f"{text[: SHOWN_LETTERS - 4].rstrip()} ..."


def find(program: str, env: Mapping[str, str] | None = None) -> Path | None:
    """Return the program's path on the PATH of `env` (default: this process's), or None."""
    variables = os.environ if env is None else env
    found = shutil.which(program, path=variables.get("PATH", os.defpath))
    return Path(found) if found else None


def require(program: str, *, fix: str, env: Mapping[str, str] | None = None) -> Path:
    """Return the program's path.

    Raises:
        ToolMissingError: the program is not on PATH; `fix` says how to get it.
    """
    found = find(program, env)
    if found is None:
        raise ToolMissingError(f"`{program}` is not installed or not on PATH", fix=fix)
    return found


def run(
    argv: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    output: Path | None = None,
    capture: bool = True,
    seconds: float | None = None,
) -> Finished:
    """Run a program to its end and return how it ended; never raises for its exit status.

    Args:
        argv: program and arguments.
        env: the whole environment of the child (default: this process's).
        cwd: its working folder.
        log: append stdout and stderr to this file instead of capturing them.
        output: write stdout into this file, and capture stderr.
        capture: keep the output; False lets it go to this process's stderr.
        seconds: how long it may take (default: as long as it likes).

    Raises:
        TimedOutError: it took longer than `seconds`.
        ToolMissingError: the program does not exist, or cannot be executed on this machine.
    """
    words = tuple(str(word) for word in argv)
    console.debug(f"+ {shlex.join(words)}")
    if log is not None:
        with log.open("ab") as sink:
            return _finish(_Launch(words, env, cwd, sink, sink), seconds)
    if output is not None:
        with output.open("wb") as sink:
            return _finish(_Launch(words, env, cwd, sink, subprocess.PIPE), seconds)
    sinks = (subprocess.PIPE, subprocess.PIPE) if capture else (2, 2)
    return _finish(_Launch(words, env, cwd, *sinks), seconds)


@contextlib.contextmanager
def conversation(
    argv: Sequence[str | Path], errors: IO[bytes]
) -> Iterator["subprocess.Popen[bytes]"]:
    """Run a program that is spoken to through its stdin and stdout; it ends with the body.

    Args:
        argv: program and arguments.
        errors: the file that gets its stderr.

    Raises:
        ToolMissingError: the program does not exist, or cannot be executed on this machine.
    """
    words = tuple(str(word) for word in argv)
    console.debug(f"+ {shown(words)}")
    launch = _Launch(words, None, None, subprocess.PIPE, errors, subprocess.PIPE)
    stopper = _stopper.get() or Stopper()
    with _start(launch) as child, _watcher.watching(child), stopper.watching(child):
        try:
            yield child
            if child.stdin:
                child.stdin.close()
            child.wait(STOP_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            stop_group(child)
        except BaseException:
            stop_group(child)
            raise


@dataclass(frozen=True)
class _Launch:
    """How a program is started."""

    argv: tuple[str, ...]
    env: Mapping[str, str] | None
    cwd: Path | None
    stdout: IO[bytes] | int
    stderr: IO[bytes] | int
    stdin: int = subprocess.DEVNULL


def _finish(launch: _Launch, seconds: float | None) -> Finished:
    stopper = _stopper.get() or Stopper()
    with _start(launch) as child, _watcher.watching(child), stopper.watching(child):
        try:
            out, err = child.communicate(timeout=seconds)
        except subprocess.TimeoutExpired as error:
            stop_group(child)
            raise TimedOutError(launch.argv[0]) from error
        except BaseException:
            # Ctrl-C and every other way out: the compiler jobs of a build are the child's
            # children, so the whole group has to go.
            stop_group(child)
            raise
    return Finished(launch.argv, child.returncode, _text(out), _text(err))


def _start(launch: _Launch) -> "subprocess.Popen[bytes]":
    program = launch.argv[0]
    try:
        return subprocess.Popen(
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdin=launch.stdin,
            stdout=launch.stdout,
            stderr=launch.stderr,
            start_new_session=True,
        )
    except OSError as error:
        if launch.cwd is not None and not launch.cwd.is_dir():
            raise
        if isinstance(error, FileNotFoundError):
            raise ToolMissingError(
                f"`{program}` is not installed", fix="run `invoke doctor` to see what is missing"
            ) from error
        if error.errno in (errno.EACCES, errno.ENOEXEC):
            raise ToolMissingError(
                f"`{program}` cannot be run",
                why=error.strerror or "",
                fix="`invoke doctor` says what this machine must be and have",
            ) from error
        raise


def stop_group(child: "subprocess.Popen[bytes]") -> None:
    """Terminate a child with all it started; kill what is left after a grace period."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGTERM)
        end = time.monotonic() + STOP_GRACE_SECONDS
        while time.monotonic() < end:
            child.poll()  # a child that ended counts as a member until it is collected
            os.killpg(child.pid, 0)
            time.sleep(STOP_POLL_SECONDS)
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _text(data: bytes | None) -> str:
    return "" if data is None else data.decode("utf-8", "replace")

"""The device's Docker engine, through its own command; every call has an end."""

import json
import subprocess  # noqa: TID251 - jetship.proc is not on the device
from typing import Any, Dict, List, NamedTuple, Optional, Sequence

INSPECT_SECONDS = 30.0
START_SECONDS = 180.0  # the GPU's runtime takes its time on the first start after power-on
REMOVE_SECONDS = 90.0
BEYOND_STOP_SECONDS = 30.0
LOG_LINES = 20
KEPT_BYTES = 1 << 20
# What the docker command says where no engine answers, in its versions since 18.09.
AWAY = ("Cannot connect to the Docker daemon", "Is the docker daemon running",
        "error during connect", "connection refused", "connection reset", "unexpected EOF",
        "permission denied while trying to connect")  # fmt: skip


class EngineError(Exception):
    """A docker command failed; `away` says that no engine answered."""

    def __init__(self, what: str, *, away: bool = False) -> None:
        super().__init__(what)
        self.away = away


class Done(NamedTuple):
    """A docker command that ended; its status is None where it had to be killed."""

    status: Optional[int]
    stdout: str
    stderr: str


class Engine:
    """The engine that the user's docker command speaks to."""

    def try_call(self, words: Sequence[str], seconds: float) -> Done:
        """Run a docker command; it is killed when its time is over."""
        try:
            child = subprocess.Popen(
                ["docker", *words],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            )  # fmt: skip
        except OSError as error:
            raise EngineError("the docker command cannot be run: %s" % error, away=True) from error
        try:
            out, err = child.communicate(timeout=seconds)
            return Done(child.returncode, _text(out), _text(err))
        except subprocess.TimeoutExpired:
            child.kill()
            return Done(None, *_rest(child))

    def call(self, words: Sequence[str], seconds: float = INSPECT_SECONDS) -> str:
        """Run a docker command that has to succeed, and return what it prints.

        Raises:
            EngineError: it did not, or took longer than it may.
        """
        done = self.try_call(words, seconds)
        said = "`docker %s`" % words[0]
        if done.status is None:
            raise EngineError("%s did not end within %.0f s" % (said, seconds), away=True)
        if done.status:
            raise _failure(said, done)
        return done.stdout

    def info(self) -> Dict[str, Any]:
        """Return what the engine says of itself.

        Raises:
            EngineError: none answers.
        """
        done = self.try_call(["info", "--format", "{{json .}}"], INSPECT_SECONDS)
        if done.status is None:
            raise EngineError("the engine does not answer", away=True)
        try:
            found = dict(json.loads(done.stdout))
        except ValueError:
            raise _failure("`docker info`", done) from None
        if not found.get("ServerVersion"):
            errors = found.get("ServerErrors") or [done.stderr.strip()]
            raise EngineError("; ".join(errors) or "no engine answers", away=True)
        return found

    def container(self, name: str) -> Optional[Dict[str, Any]]:
        """Return what the engine knows of a container, or None where there is none."""
        return self._inspect("container", name)

    def image(self, name: str) -> Optional[Dict[str, Any]]:
        """Return what the engine knows of an image, or None where there is none."""
        return self._inspect("image", name)

    def _inspect(self, kind: str, name: str) -> Optional[Dict[str, Any]]:
        done = self.try_call([kind, "inspect", name], INSPECT_SECONDS)
        said = "`docker %s inspect`" % kind
        if done.status is None:
            raise EngineError("%s did not end within %.0f s" % (said, INSPECT_SECONDS), away=True)
        if done.status and "no such " + kind in done.stderr.lower():
            return None
        if done.status:
            raise _failure(said, done)
        found = json.loads(done.stdout)
        return dict(found[0]) if found else None

    def start(self, name: str) -> None:
        """Start a container."""
        self.call(["start", name], START_SECONDS)

    def stop(self, name: str, seconds: int) -> None:
        """Stop a container; one that is stopped stays so."""
        self.call(["stop", "-t", str(seconds), name], seconds + BEYOND_STOP_SECONDS)

    def remove(self, name: str) -> None:
        """Remove a container, running or not, with the volumes that have no name."""
        self.call(["rm", "--force", "--volumes", name], REMOVE_SECONDS)

    def set_restart(self, name: str, policy: str) -> None:
        """Say whether the engine starts a container again: "always" or "no"."""
        self.call(["update", "--restart", policy, name])

    def logs(self, name: str) -> str:
        """Return the last lines of a container, or "" where the engine has none."""
        try:
            done = self.try_call(["logs", "--tail", str(LOG_LINES), name], INSPECT_SECONDS)
        except EngineError:
            return ""
        if done.status != 0:
            return ""
        lines = (done.stdout + done.stderr).splitlines()[-LOG_LINES:]
        return "\n".join(line[:500] for line in lines)


def _failure(said: str, done: Done) -> EngineError:
    said_there = done.stderr.strip() or done.stdout.strip() or "exit status %s" % done.status
    text = " ".join(said_there.split())[-600:]  # one line, as a row of a table is
    away = any(words.lower() in text.lower() for words in AWAY)
    return EngineError("%s failed: %s" % (said, text), away=away)


def _rest(child: "subprocess.Popen[bytes]") -> List[str]:
    """Collect a killed command; one that the kernel does not let go is left behind."""
    try:
        out, err = child.communicate(timeout=5)
    except subprocess.TimeoutExpired:
        return ["", ""]
    return [_text(out), _text(err)]


def _text(data: bytes) -> str:
    return data[-KEPT_BYTES:].decode("utf-8", "replace")

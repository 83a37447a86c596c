"""Whether a container that was started is good."""

import json
import time
from typing import Any, Callable, Dict, List

from jetship.fleet.ondevice.engine import Done, Engine

POLL_SECONDS = 0.5
SHOWN = 300


class UnhealthyError(Exception):
    """The container is not good; the text says why."""


class Check:
    """The health check of one container, from its start on.

    Args:
        engine: the device's.
        name: the container's.
        health: `selftest`, `command`, `interval`, `timeout`, `settle`, as deploy.yaml has them.
        interrupted: raises where the whole change has to end.
    """

    def __init__(
        self, engine: Engine, name: str, health: Dict[str, Any], interrupted: Callable[[], None]
    ) -> None:
        self._engine = engine
        self._name = name
        self._health = health
        self._interrupted = interrupted
        self._started = ""

    def begin(self) -> None:
        """Run the self test, and the command until it succeeds.

        Raises:
            UnhealthyError: one of them does not.
            EngineError: the engine does not.
        """
        self._require_running()
        if self._health["selftest"]:
            self._self_test(self._health["selftest"])
        if self._health["command"]:
            self._wait_for(self._health["command"])

    def settle(self) -> None:
        """Watch the container for a while; it has to be good at the end.

        Raises:
            UnhealthyError: it stops, or its command fails.
            EngineError: the engine does.
        """
        end = time.monotonic() + self._health["settle"]
        while time.monotonic() < end:
            self._pause(min(POLL_SECONDS, end - time.monotonic()))
            self._require_running()
        if self._health["command"]:
            done = self._run(self._health["command"], self._health["timeout"])
            if done.status != 0:
                raise UnhealthyError("the health command fails after a while: " + _said(done))
        self._require_running()

    def _self_test(self, words: List[str]) -> None:
        seconds = self._health["timeout"]
        done = self._run(words, seconds)
        if done.status is None:
            raise UnhealthyError("the self test did not end within %.0f s" % seconds)
        answer = _answer(done.stdout)
        if done.status:
            raise UnhealthyError("the self test fails: " + _said(done))
        if answer is not None and answer.get("ok") is not True:
            raise UnhealthyError("the self test does not say that all is well: " + _said(done))

    def _wait_for(self, words: List[str]) -> None:
        seconds = self._health["timeout"]
        end = time.monotonic() + seconds
        while True:
            done = self._run(words, max(end - time.monotonic(), 0.1))
            if done.status == 0:
                return
            if time.monotonic() + self._health["interval"] >= end:
                text = "the health command did not succeed within %.0f s: " % seconds
                raise UnhealthyError(text + _said(done))
            self._pause(self._health["interval"])

    def _run(self, words: List[str], seconds: float) -> Done:
        done = self._engine.try_call(["exec", self._name, *words], seconds)
        # One that stopped says more than the command that could not run in it.
        self._require_running()
        return done

    def _require_running(self) -> None:
        self._interrupted()
        found = self._engine.container(self._name)
        if found is None:
            raise UnhealthyError("somebody removed the container")
        state = found["State"]
        if not state["Running"] or state.get("Restarting") or state.get("Paused"):
            raise UnhealthyError(_stopped(state))
        if self._started not in ("", state["StartedAt"]):
            raise UnhealthyError("the container was started again meanwhile")
        self._started = state["StartedAt"]
        # What the image itself says of health (HEALTHCHECK), where it does.
        if (state.get("Health") or {}).get("Status") == "unhealthy":
            raise UnhealthyError("the image's own health check says that it is unhealthy")

    def _pause(self, seconds: float) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._interrupted()
            time.sleep(min(POLL_SECONDS, max(end - time.monotonic(), 0)))


def _stopped(state: Dict[str, Any]) -> str:
    text = "the container stopped with exit status %s" % state.get("ExitCode")
    if state.get("OOMKilled"):
        text += ", because it had no memory left"
    return text


def _answer(stdout: str) -> Any:
    """Return the JSON object that is the whole output or its last line, or None."""
    lines = stdout.strip().splitlines()
    for text in (stdout, lines[-1] if lines else ""):
        try:
            found = json.loads(text)
        except ValueError:
            continue
        if isinstance(found, dict):
            return found
    return None


def _said(done: Done) -> str:
    text = " ".join((done.stderr.strip() or done.stdout.strip()).split())[-SHOWN:]
    if done.status is None:
        return "it was stopped at its limit" + (": " + text if text else "")
    return "exit status %s%s" % (done.status, ": " + text if text else "")

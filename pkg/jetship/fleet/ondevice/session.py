"""One session: requests on stdin, answers on stdout, a JSON object a line each.

    request: {"do": "hello" | "offer" | "layer" | "load" | "pull" | "swap" | "rollback", ...}
    answers: {"answer": ...} | {"refused": kind, "what": ..., "fix": ...} | {"phase": word}

The bytes of a layer follow their request. The session ends with stdin, or when nothing was heard
for some time: the deployer sends an empty line now and then, and a link that was cut may never
tell. What is being changed then is changed to its end nevertheless.
"""

import contextlib
import io
import json
import os
import re
import select
import signal
import sys
from typing import IO, Any, Callable, Dict

from jetship.fleet.ondevice.containers import OWN_WORDS, Containers
from jetship.fleet.ondevice.engine import Engine, EngineError
from jetship.fleet.ondevice.facts import device_facts
from jetship.fleet.ondevice.folder import Folder, RefusedError
from jetship.fleet.ondevice.lost import remade
from jetship.fleet.ondevice.supervise import Tell, supervised
from jetship.fleet.ondevice.swap import Changer
from jetship.fleet.ondevice.transfer import FULL, Transfer

PROTOCOL = 1
APP_FORM = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
RECOVERY_PATIENCE_SECONDS = 30.0
FIRST_SILENCE_SECONDS = 60.0
CHUNK_BYTES = 1 << 18
NO_HEALTH = {"selftest": [], "command": [], "interval": 2.0, "timeout": 60.0, "settle": 5.0}
UNFINISHED = (
    "`docker ps --all` on the device shows what runs; docs/rollout.md says what to do where one "
    "says broken or unfinished"
)
DEFAULT_STATE = "~/.local/share/jetship"

Request = Dict[str, Any]


def main() -> None:
    """Serve one deployer."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    send({"jetship": PROTOCOL})
    ear = Ear(sys.stdin.fileno())
    stdin = io.BufferedReader(ear, CHUNK_BYTES)
    line = stdin.readline()
    if not line.endswith(b"\n"):
        return
    hello = json.loads(line.decode())
    ear.seconds = hello.get("silence", FIRST_SILENCE_SECONDS)
    try:
        session = Session(hello, stdin)
        send({"answer": session.facts()})
    except (RefusedError, EngineError, OSError) as error:
        send(refusal(error))
        return
    session.serve()


class Ear(io.RawIOBase):
    """What a deployer says; it ends also when nothing was heard for some seconds."""

    def __init__(self, handle: int) -> None:
        super().__init__()
        self._handle = handle
        self.seconds = FIRST_SILENCE_SECONDS

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        heard, _, _ = select.select([self._handle], [], [], self.seconds)
        if not heard:
            return 0
        data = os.read(self._handle, len(buffer))
        buffer[: len(data)] = data
        return len(data)


class Session:
    """A deployer's session with one application; its lock is held until this process ends.

    Args:
        hello: app, state, who, release, clock, wait, silence, look.
        stdin: what comes after it.

    Raises:
        RefusedError: another session has the lock, or the request is none that can be served.
    """

    def __init__(self, hello: Request, stdin: IO[bytes]) -> None:
        if hello.get("do") != "hello" or not re.fullmatch(APP_FORM, hello["app"]):
            raise RefusedError("request", "%r is no name of an application" % hello.get("app"))
        base = os.path.expanduser(hello["state"] or DEFAULT_STATE)
        folder = Folder(os.path.join(base, hello["app"]), hello["app"])
        folder.create()
        folder.set_clock(hello["clock"])
        me = {"who": hello["who"], "release": hello["release"]}
        holder = folder.lock(me, hello["wait"])
        if holder is not None:
            raise RefusedError("locked", "another session holds this device", holder=holder)
        self._stdin = stdin
        self._folder, self._engine = folder, Engine()
        self._transfer = Transfer(folder, self._engine)
        self._looks = hello.get("look", False)

    def facts(self) -> Dict[str, Any]:
        """End what an earlier session left, and return what the device says of itself.

        Who only looks gets what it says as it is.
        """
        if not self._looks:
            self._recover()
            return device_facts(self._folder, self._engine, self._folder.load())
        state = self._folder.look()
        with contextlib.suppress(EngineError):
            containers = Containers(self._folder.app, self._engine)
            state = remade(self._folder, containers, state) or state
        return device_facts(self._folder, self._engine, state)

    def serve(self) -> None:
        """Answer requests until there are no more; a layer that fails is the last one."""
        transfer = self._transfer
        actions: Dict[str, Callable[[Request], Any]] = {
            "offer": lambda request: transfer.offer(request["image"], request["layers"]),
            "layer": lambda request: transfer.receive(request, self._stdin),
            "load": lambda request: transfer.load(
                request["image"], request["config"], request["layers"]
            ),
            "pull": lambda request: transfer.pull(request["reference"], request["image"]),
            "swap": self._swap,
            "rollback": self._rollback,
        }
        for line in iter(self._stdin.readline, b""):
            if not line.strip():
                continue  # somebody is there
            if not line.endswith(b"\n"):
                return  # the link was cut in it
            request = json.loads(line.decode())
            try:
                send({"answer": actions[request["do"]](request)})
            except (RefusedError, EngineError, OSError) as error:
                send(refusal(error))
                if request["do"] == "layer":
                    # The rest of it is on its way, and would be read as requests.
                    return
            except EOFError:
                return

    def _recover(self) -> None:
        """End what an earlier session left; where the engine is away, that stays as it is."""
        try:
            if self._folder.load()["swap"]:
                supervised(self._again, self._again, lambda _: None)
            else:
                Changer(self._folder, self._engine, lambda _: None).adopt()
        except (EngineError, OSError) as error:
            self._folder.note("not recovered", reason=str(error))

    def _swap(self, request: Request) -> Any:
        changer = self._changer()
        settings = {key: request[key] for key in ("create", "command", "health")}
        for word in settings["create"]:
            if word.startswith(OWN_WORDS):
                raise RefusedError("request", "%s is not the user's to say" % word)
        if not self._transfer.has(request["image"]):
            raise RefusedError("image", "the device's engine has no image %s" % request["image"])
        self._transfer.drop()
        if changer.already(request["image"], settings):
            release = self._folder.load()["current"]["release"]
            return {"status": "already", "reason": "", "logs": "", "release": release, "seconds": 0}
        entry = changer.new_entry(request["image"], request["release"], settings)
        changer.begin(request, entry)
        return self._change()

    def _rollback(self, request: Request) -> Any:
        changer = self._changer()
        entry = changer.previous_entry()
        if request["to"] not in ("", entry["release"]):
            text = "the previous release here is %s, not %s" % (entry["release"], request["to"])
            raise RefusedError("previous", text)
        health = request["health"] or (entry["settings"] or {}).get("health") or NO_HEALTH
        changer.begin(dict(request, health=health), entry)
        return self._change()

    def _changer(self) -> Changer:
        """Return what can begin a change.

        Raises:
            RefusedError: an earlier one is not ended yet.
        """
        state = self._folder.load()
        changer = Changer(self._folder, self._engine, lambda _: None)
        if not state["swap"] or changer.supersede():
            return changer
        self._recover()
        changer = Changer(self._folder, self._engine, lambda _: None)
        state = self._folder.load()
        if state["swap"] and not changer.supersede():
            reason = state["last"]["reason"] if state["last"] else state["swap"]["phase"]
            text = "an earlier change of this device could not be ended yet: %s" % reason
            raise RefusedError("unfinished", text, UNFINISHED)
        return changer

    def _change(self) -> Any:
        outcome = supervised(self._first, self._again, lambda word: send({"phase": word}))
        reason = "the program that does it was killed again and again"
        killed = {"status": "broken", "reason": reason, "logs": "", "release": "", "seconds": 0}
        return outcome or killed

    def _first(self, tell: Tell) -> Any:
        return self._in_child(tell).change()

    def _again(self, tell: Tell) -> Any:
        return self._in_child(tell).recover(RECOVERY_PATIENCE_SECONDS)

    def _in_child(self, tell: Tell) -> Changer:
        changer = Changer(self._folder, self._engine, lambda word: tell("phase", word))
        signal.signal(signal.SIGTERM, lambda *_: changer.terminate())
        return changer


def send(message: Dict[str, Any]) -> None:
    """Write a line; where nobody reads any more, the work goes on nevertheless."""
    try:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Python would try once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def refusal(error: Exception) -> Dict[str, Any]:
    """Return the answer that says why something was not done."""
    if isinstance(error, EngineError):
        fix = "look after the engine: `systemctl status docker` on the device"
        error = RefusedError("engine", str(error), fix)
    elif not isinstance(error, RefusedError):
        full = isinstance(error, OSError) and error.errno in FULL
        error = RefusedError("full" if full else "disk", "the device's disk: %s" % error)
    return dict(error.more, refused=error.kind, what=error.what, fix=error.fix)


if __name__ == "__main__":
    main()

"""One session: requests on stdin, answers on stdout, a JSON object a line each.

    request: {"do": "hello" | "offer" | "layer" | "load" | "pull" | "swap" | "rollback", ...}
    answers: {"answer": ...} | {"refused": kind, "what": ..., "fix": ...} | {"phase": word}

The bytes of a layer follow their request. The session ends with stdin; what is being changed then
is changed to its end nevertheless.
"""

import json
import os
import re
import signal
import sys
from typing import Any, Callable, Dict, Optional

from jetship.fleet.ondevice.containers import OWN_WORDS, Containers
from jetship.fleet.ondevice.engine import Engine, EngineError
from jetship.fleet.ondevice.facts import device_facts
from jetship.fleet.ondevice.folder import Folder, RefusedError
from jetship.fleet.ondevice.supervise import Tell, supervised
from jetship.fleet.ondevice.swap import Changer
from jetship.fleet.ondevice.transfer import FULL, Transfer

PROTOCOL = 1
APP_FORM = r"[a-z0-9]+(?:(?:\.|_{1,2}|-+)[a-z0-9]+)*"
HELLO_PATIENCE_SECONDS = 30.0
NO_HEALTH = {"selftest": [], "command": [], "interval": 2.0, "timeout": 60.0, "settle": 5.0}
DEFAULT_STATE = "~/.local/share/jetship"

Request = Dict[str, Any]


def main() -> None:
    """Serve one deployer."""
    for number in (signal.SIGHUP, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    send({"jetship": PROTOCOL})
    Session().serve()


class Session:
    """What a deployer has asked for so far."""

    def __init__(self) -> None:
        self._engine = Engine()
        self._folder: Optional[Folder] = None
        self._transfer: Optional[Transfer] = None

    def serve(self) -> None:
        """Answer requests until there are no more; a layer that fails is the last one."""
        actions: Dict[str, Callable[[Request], Any]] = {
            "hello": self._hello, "offer": self._offer, "layer": self._layer, "load": self._load,
            "pull": self._pull, "swap": self._swap, "rollback": self._rollback,
        }  # fmt: skip
        for line in iter(sys.stdin.buffer.readline, b""):
            request = json.loads(line.decode())
            try:
                send({"answer": actions[request["do"]](request)})
            except (RefusedError, EngineError, OSError) as error:
                refused = _as_refused(error)
                send(dict(refused.more, refused=refused.kind, what=refused.what, fix=refused.fix))
                if request["do"] in ("hello", "layer"):
                    # Without the lock there is nothing to say, and the rest of a layer that is on
                    # its way would be read as requests.
                    return
            except EOFError:
                return

    def _hello(self, request: Request) -> Any:
        if not re.fullmatch(APP_FORM, request["app"]):
            raise RefusedError("request", "%r is no name of an application" % request["app"])
        base = os.path.expanduser(request["state"] or DEFAULT_STATE)
        folder = Folder(os.path.join(base, request["app"]), request["app"])
        folder.create()
        folder.set_clock(request["clock"])
        me = {"who": request["who"], "release": request["release"]}
        holder = folder.lock(me, request["wait"])
        if holder is not None:
            raise RefusedError("locked", "another session holds this device", holder=holder)
        self._folder, self._transfer = folder, Transfer(folder, self._engine)
        self._recover(folder)
        return device_facts(folder, self._engine, folder.load())

    def _recover(self, folder: Folder) -> None:
        """End what an earlier session left; where the engine is away, that stays as it is."""
        try:
            if folder.load()["swap"]:
                supervised(self._again, self._again, lambda _: None)
            else:
                Changer(folder, self._engine, lambda _: None).adopt()
        except (EngineError, OSError) as error:
            folder.note("not recovered", reason=str(error))

    def _offer(self, request: Request) -> Any:
        return self._held().offer(request["image"], request["layers"])

    def _layer(self, request: Request) -> Any:
        return self._held().receive(request, sys.stdin.buffer)

    def _load(self, request: Request) -> Any:
        return self._held().load(request["image"], request["config"], request["layers"])

    def _pull(self, request: Request) -> Any:
        return self._held().pull(request["reference"], request["image"])

    def _swap(self, request: Request) -> Any:
        changer = self._changer()
        settings = {key: request[key] for key in ("create", "command", "health")}
        for word in settings["create"]:
            if word.startswith(OWN_WORDS):
                raise RefusedError("request", "%s is not the user's to say" % word)
        if not self._held().has(request["image"]):
            raise RefusedError("image", "the device's engine has no image %s" % request["image"])
        if changer.already(request["image"], settings):
            return _already(self._state())
        containers = Containers(self._folder.app, self._engine)
        entry = containers.new_entry(request["image"], request["release"], settings)
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

    def _change(self) -> Any:
        outcome = supervised(self._first, self._again, lambda word: send({"phase": word}))
        if outcome is None:
            reason = "the program that does it was killed again and again"
            return {"status": "broken", "reason": reason, "logs": "", "release": "", "seconds": 0}
        return outcome

    def _first(self, tell: Tell) -> Any:
        return self._in_child(tell).change()

    def _again(self, tell: Tell) -> Any:
        return self._in_child(tell).recover(HELLO_PATIENCE_SECONDS)

    def _in_child(self, tell: Tell) -> Changer:
        assert self._folder is not None
        changer = Changer(self._folder, self._engine, lambda word: tell("phase", word))
        signal.signal(signal.SIGTERM, lambda *_: changer.terminate())
        return changer

    def _changer(self) -> Changer:
        """Return what can begin a change.

        Raises:
            RefusedError: an earlier one is not ended yet.
        """
        self._held()
        assert self._folder is not None
        if self._state()["swap"]:
            self._recover(self._folder)
        if self._state()["swap"]:
            raise RefusedError(
                "unfinished", "an earlier change of this device could not be ended yet"
            )
        return Changer(self._folder, self._engine, lambda _: None)

    def _state(self) -> Dict[str, Any]:
        assert self._folder is not None
        return self._folder.load()

    def _held(self) -> Transfer:
        if self._transfer is None:
            raise RefusedError("request", "say hello first")
        return self._transfer


def send(message: Dict[str, Any]) -> None:
    """Write a line; where nobody reads any more, the work goes on nevertheless."""
    try:
        sys.stdout.buffer.write(json.dumps(message).encode() + b"\n")
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # Python would try once more at its end, and complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _already(state: Dict[str, Any]) -> Dict[str, Any]:
    release = state["current"]["release"]
    return {"status": "already", "reason": "", "logs": "", "release": release, "seconds": 0}


def _as_refused(error: Exception) -> RefusedError:
    if isinstance(error, RefusedError):
        return error
    if isinstance(error, EngineError):
        return RefusedError(
            "engine", str(error), "look after the engine: `systemctl status docker`"
        )
    full = isinstance(error, OSError) and error.errno in FULL
    return RefusedError("full" if full else "disk", "the device's disk: %s" % error)


if __name__ == "__main__":
    main()

"""The change from one container to another: it is done as a whole, or taken back.

What is on the disk at each moment says what is to be done after a crash (`Changer.recover`):

    phase of `swap`   what is to be
    none              nothing is under way
    begun             the old container runs, the new one goes
    stopping          the same; and an order to stop the old one may still be under way
    failed            the same; and no such order is
    committed         the new container runs, and what is older goes

Restart policies do the same where nobody comes to recover, after power loss say: until the commit
only the old container has `always`, and the engine starts such a container whenever it starts
itself, even one that was stopped by hand.
"""

import time
from typing import Any, Callable, Dict, List, Optional

from jetship.fleet.ondevice.containers import (
    Containers,
    Entry,
    GoneError,
    is_up,
    restart_policy,
    same_release,
)
from jetship.fleet.ondevice.engine import Engine, EngineError
from jetship.fleet.ondevice.folder import Folder, RefusedError
from jetship.fleet.ondevice.health import Check, UnhealthyError
from jetship.fleet.ondevice.lost import remade

Say = Callable[[str], None]

PAUSE_SECONDS = (0.2, 0.5, 1.0, 2.0)
STEADY_SECONDS = 1.0
TERMINATED_PATIENCE_SECONDS = 10.0
BROKEN_OFF = "it was broken off: the program or the machine was stopped"


class TerminatedError(Exception):
    """The machine is being shut down, or somebody ends the program."""


class Changer:
    """Changes the containers of one application. Its caller holds the folder's lock.

    Args:
        folder: the application's.
        engine: the device's.
        say: is told each step as it begins.
    """

    def __init__(self, folder: Folder, engine: Engine, say: Say) -> None:
        self._folder = folder
        self._engine = engine
        self._containers = Containers(folder.app, engine)
        self._say = say
        self._state = folder.load()
        self._terminated = False
        self._gone = False

    def terminate(self) -> None:
        """End what is under way soon, by taking it back. A signal's handler may call this."""
        self._terminated = True

    # Before

    def adopt(self) -> None:
        """Take over the containers of which the state file says nothing, as it was lost.

        Raises:
            EngineError: the engine does not answer.
        """
        made = remade(self._folder, self._containers, self._state)
        if made is None:
            return
        self._state = made
        self._folder.save(made)
        names = [made[key]["container"] for key in ("current", "previous") if made[key]]
        self._folder.note("adopted", containers=names, said=made["note"])

    def already(self, image: str, settings: Dict[str, Any]) -> bool:
        """Return whether the current container is one of this image and settings, and runs."""
        current = self._state["current"]
        if not current or current["image"] != image or not current["settings"]:
            return False
        if any(current["settings"][key] != settings[key] for key in ("create", "command")):
            return False
        return is_up(self._containers.find(current["container"]))

    def new_entry(self, image: str, release: str, settings: Dict[str, Any]) -> Entry:
        """Return a release that is to come; its container gets a name that nothing has."""
        name = self._free_name(image)
        return {"image": image, "release": release, "container": name, "settings": settings}

    def previous_entry(self) -> Entry:
        """Return the previous release; where somebody removed its container, with a new name.

        Raises:
            RefusedError: there is none, or nothing is known of which it could be made again.
            EngineError: the engine does not answer.
        """
        previous: Optional[Entry] = self._state["previous"]
        current: Optional[Entry] = self._state["current"]
        if previous is None:
            raise RefusedError("previous", "there is no previous release on this device")
        if current and same_release(previous, current):
            raise RefusedError("previous", "its previous release is the one that it has now")
        if self._containers.find(previous["container"]):
            return previous
        if not previous["settings"]:
            raise RefusedError("previous", "the container of the previous release is gone")
        if self._containers.local_image(previous["image"]) is None:
            text = "the image of its previous release is no longer on the device"
            raise RefusedError("image", text)
        return self.new_entry(previous["image"], previous["release"], previous["settings"])

    def begin(self, order: Dict[str, Any], entry: Entry) -> None:
        """Write down what is going to be done.

        Args:
            order: do ("swap" or "rollback"), token, mode, health, stop_seconds, patience.
            entry: the release to come. The previous one's container is there already, and stays
                where the change is taken back.
        """
        state = self._state
        kept = entry is state["previous"]
        swap = {key: order[key] for key in ("token", "mode", "health", "stop_seconds", "patience")}
        swap.update(action=order["do"], entry=entry, kept=kept, phase="begun", reason="")
        swap["older"] = None if kept else state["previous"]
        swap["old"], swap["backup"] = state["current"], self._backup(order["do"], entry)
        state["swap"] = swap
        self._folder.save(state)
        self._note("begun")

    def supersede(self) -> bool:
        """Give up a change that could not be ended, for another one that may mend the device.

        Returns:
            Whether that can be: not while anything of it is running, or an order to stop is.

        Raises:
            EngineError: the engine does not answer.
        """
        state, swap = self._state, self._state["swap"]
        current = state["current"]["container"] if state["current"] else ""
        others = [name for name in self._containers.names() if name != current]
        up = [name for name in others if is_up(self._containers.find(name))]
        if up or swap["phase"] == "stopping":
            return False
        self._note("superseded")
        state["swap"] = None
        self._folder.save(state)
        return True

    def _backup(self, action: str, entry: Entry) -> Optional[Entry]:
        """Return the release that is the previous one once `entry` is committed.

        That is the present one, unless nothing is left of it, or it only is made anew: then
        another one is still the one to go back to.
        """
        old: Optional[Entry] = self._state["current"]
        if old and not same_release(old, entry) and self._is_there(old):
            return old
        older: Optional[Entry] = None if action == "rollback" else self._state["previous"]
        return older

    def _is_there(self, entry: Entry) -> bool:
        """Return whether a release has its container, or that could be made again."""
        if self._containers.find(entry["container"]):
            return True
        return bool(entry["settings"]) and self._containers.local_image(entry["image"]) is not None

    # The change

    def change(self) -> Dict[str, Any]:
        """Do what was begun, or take it back, and return the outcome."""
        began = time.monotonic()
        try:
            self._forward()
        except (EngineError, UnhealthyError, TerminatedError, OSError) as error:
            outcome = self._fail(str(error))
        else:
            outcome = self._keep_on()
        return dict(outcome, seconds=round(time.monotonic() - began, 3))

    def recover(self, patience: float) -> Optional[Dict[str, Any]]:
        """End what a killed program or a power loss left unfinished.

        Args:
            patience: for how many seconds at most.

        Returns:
            The outcome, or that of the last change where all is ended; None where there was none.
        """
        swap = self._state["swap"]
        if swap is None:
            return self._last_outcome()
        began = time.monotonic()
        swap["patience"] = min(swap["patience"], patience)
        self._note("recovering")
        committed = swap["phase"] == "committed"
        outcome = self._keep_on() if committed else self._fail(swap["reason"] or BROKEN_OFF)
        return dict(outcome, seconds=round(time.monotonic() - began, 3))

    def _forward(self) -> None:
        swap, new, old = self._state["swap"], self._new, self._old
        name = new["container"]
        if not swap["kept"]:
            self._step("creating")
            self._containers.create(new)
        if swap["mode"] == "replace" and old:
            self._step("stopping")
            self._stop_old(old["container"], swap["stop_seconds"])
        self._step("starting")
        self._engine.start(name)
        check = Check(self._engine, name, swap["health"], self._interrupted)
        self._step("checking")
        check.begin()
        self._step("settling")
        check.settle()
        self._step("committing")
        self._commit()

    def _stop_old(self, name: str, seconds: int) -> None:
        if self._containers.find(name):
            # On the disk first: the order may still be under way when a recovery begins, and
            # would stop the container that this has just found running.
            self._save_phase("stopping")
            self._engine.stop(name, seconds)

    def _commit(self) -> None:
        """Let the engine keep the new container. From the saved state on there is no way back."""
        state, swap, new = self._state, self._state["swap"], self._new
        self._engine.set_restart(new["container"], "always")
        before, phase = dict(state), swap["phase"]
        state.update(current=new, previous=swap["backup"], note="")
        swap["phase"] = "committed"
        try:
            self._folder.save(state)
        except OSError:
            state.update(before)
            swap["phase"] = phase
            raise
        self._note("committed")

    # After the commit

    def _keep_on(self) -> Dict[str, Any]:
        """Put away what is older than the release that was committed, and see that this runs."""
        problems = self._try(self._keep_once)
        if not problems:
            return self._end("committed", "")
        reason = "; ".join(problems)
        if self._runs(self._new):
            return self._end("committed", "what is older is not put away: " + reason, left=True)
        if self._old is None or not self._answers():
            text = "it does not start again: " + reason
            return self._end("broken", text, left=not self._gone)
        # It was healthy once, and is no more: the old one is better than none.
        state, new, old = self._state, self._new, self._old
        state["swap"].update(entry=new, kept=False, phase="stopping")
        state["current"], state["previous"] = old, state["swap"]["older"]
        return self._fail("it was committed, and does not start again: " + reason)

    def _keep_once(self) -> List[str]:
        """Try each step that follows the commit; return what failed."""
        swap, new, old = self._state["swap"], self._new, self._old
        problems: List[str] = []
        if old:
            self._attempt(
                problems, lambda: self._containers.retire(old["container"], swap["stop_seconds"])
            )
        started: List[bool] = []
        self._attempt(problems, lambda: started.append(self._raise_up(new)))
        if True in started:
            time.sleep(STEADY_SECONDS)
            if not self._runs(new):
                problems.append("it does not keep running")
        if not problems:
            self._attempt(problems, lambda: self._containers.remove_others(self._kept()))
        return problems

    # Back

    def _fail(self, reason: str) -> Dict[str, Any]:
        """Take the change back, and return the outcome."""
        swap = self._state["swap"]
        self._say("rolling back")
        self._note("rolling back", reason=reason)
        logs = self._engine.logs(self._new["container"])
        swap["reason"] = reason
        # What is on the disk already leads to the same end, only without the reason.
        self._try_to_save()
        problems = self._try(self._back_once)
        if not problems:
            return self._end("rolled-back", reason, logs=logs)
        text = "%s; and then: %s" % (reason, "; ".join(problems))
        if self._gone:
            return self._end_without_old(text, logs)
        status = "rolled-back" if self._old is None or self._runs(self._old) else "broken"
        return self._end(status, text, logs=logs, left=True)

    def _end_without_old(self, text: str, logs: str) -> Dict[str, Any]:
        """Start what there was before the old release, of which nothing is left."""
        state, swap = self._state, self._state["swap"]
        older = state["previous"] if swap["action"] == "swap" else None
        if older:
            problems = self._try(lambda: self._up_once(older))
            if not problems:
                state["current"], state["previous"] = older, None
                text += "; so it runs %s, which it had before that" % older["release"]
                return self._end("rolled-back", text, logs=logs)
            text += "; nor does %s start: %s" % (older["release"], "; ".join(problems))
        # The next session would find no more than this one.
        return self._end("broken", text, logs=logs)

    def _up_once(self, entry: Entry) -> List[str]:
        problems: List[str] = []
        self._attempt(problems, lambda: self._raise_up(entry))
        time.sleep(STEADY_SECONDS)
        if not self._runs(entry):
            problems.append("it does not keep running")
        return problems

    def _back_once(self) -> List[str]:
        """Try each step of the way back; return what failed."""
        swap, new, old = self._state["swap"], self._new, self._old
        problems: List[str] = []
        self._attempt(problems, lambda: self._put_away(new["container"]))
        if old is None:
            return problems
        if swap["phase"] == "stopping":
            self._attempt(problems, lambda: self._stop_wholly(old["container"]))
        self._attempt(problems, lambda: self._raise_up(old))
        time.sleep(STEADY_SECONDS)
        if not self._runs(old):
            problems.append("the old container does not keep running")
        if self._runs(new):
            problems.append("the new container still runs")
        return problems

    def _put_away(self, name: str) -> None:
        swap = self._state["swap"]
        if swap["kept"]:
            self._containers.retire(name, swap["stop_seconds"])
        else:
            self._containers.remove(name)

    def _stop_wholly(self, name: str) -> None:
        """Wait until no order to stop the old container can be under way any more."""
        swap = self._state["swap"]
        if self._containers.find(name):
            self._engine.stop(name, swap["stop_seconds"])
        swap["phase"] = "failed"
        self._try_to_save()

    def _raise_up(self, entry: Entry) -> bool:
        """See that a release's container runs and is kept; return whether it had to be started."""
        found = self._containers.find(entry["container"])
        if found is None:
            # Somebody removed it; what it was made of is known.
            if not entry["settings"]:
                raise GoneError("the container %s is gone" % entry["container"])
            if self._containers.local_image(entry["image"]) is None:
                raise GoneError("its image is no longer on the device")
            entry["container"] = self._free_name(entry["image"])
            self._folder.save(self._state)
            self._containers.create(entry)
        if found is None or restart_policy(found) != "always":
            self._engine.set_restart(entry["container"], "always")
        if is_up(found):
            return False
        self._engine.start(entry["container"])
        return True

    # What both ways need

    @property
    def _new(self) -> Entry:
        """The release that is to come, or has just come."""
        state, swap = self._state, self._state["swap"]
        if swap["phase"] == "committed":
            entry: Entry = state["current"]
        else:
            entry = state["previous"] if swap["kept"] else swap["entry"]
        return entry

    @property
    def _old(self) -> Optional[Entry]:
        """The release that is to go, and comes back where the change fails."""
        state, swap = self._state, self._state["swap"]
        committed = swap["phase"] == "committed"
        found: Optional[Entry] = swap["old"] if committed else state["current"]
        return found

    def _try(self, once: Callable[[], List[str]]) -> List[str]:
        """Repeat until nothing fails, as long as that may help and the order's patience allows."""
        began, count, self._gone = time.monotonic(), 0, False
        while True:
            # An engine that hangs would take the time of every call there is.
            away = count and not self._answers()
            try:
                problems = ["the engine does not answer"] if away else once()
            except GoneError as error:
                self._gone = True
                return [str(error)]
            patience = self._state["swap"]["patience"]
            if self._terminated:
                patience = min(patience, TERMINATED_PATIENCE_SECONDS)
            if not problems or time.monotonic() - began >= patience:
                return problems
            time.sleep(PAUSE_SECONDS[min(count, len(PAUSE_SECONDS) - 1)])
            count += 1

    @staticmethod
    def _attempt(problems: List[str], step: Callable[[], Any]) -> None:
        """Take a step, and note what fails; raises GoneError where nothing else failed."""
        try:
            step()
        except GoneError as error:
            if not problems:
                raise
            problems.append(str(error))
        except (EngineError, OSError) as error:
            problems.append(str(error))

    def _free_name(self, image: str) -> str:
        return self._containers.free_name(image, [entry["container"] for entry in self._kept()])

    def _kept(self) -> List[Entry]:
        return [self._state[key] for key in ("current", "previous") if self._state[key]]

    def _runs(self, entry: Entry) -> bool:
        try:
            return is_up(self._containers.find(entry["container"]))
        except EngineError:
            return False

    def _answers(self) -> bool:
        try:
            return bool(self._engine.info())
        except EngineError:
            return False

    def _interrupted(self) -> None:
        if self._terminated:
            raise TerminatedError("the device's program was told to end")

    def _step(self, word: str) -> None:
        self._interrupted()
        self._say(word)
        self._note(word)

    def _save_phase(self, phase: str) -> None:
        self._state["swap"]["phase"] = phase
        self._folder.save(self._state)

    def _try_to_save(self) -> str:
        try:
            self._folder.save(self._state)
        except OSError as error:
            self._folder.note("state not saved", reason=str(error))
            return "the state file could not be written: %s" % error
        return ""

    def _end(
        self, status: str, reason: str, *, logs: str = "", left: bool = False
    ) -> Dict[str, Any]:
        """Write down the outcome; with `left`, the next session goes on with the change."""
        state, swap = self._state, self._state["swap"]
        self._note("ended", outcome=status, reason=reason, left=left)
        state["last"] = {
            "token": swap["token"], "action": swap["action"], "release": self._new["release"],
            "outcome": status, "reason": reason, "logs": logs, "at": self._folder.now(),
        }  # fmt: skip
        if not left:
            state["swap"] = None
        # Without it, the next session comes to the same end once more.
        unsaved = self._try_to_save()
        return dict(self._outcome(state["last"]), reason="; ".join(filter(None, (reason, unsaved))))

    def _last_outcome(self) -> Optional[Dict[str, Any]]:
        last = self._state["last"]
        return dict(self._outcome(last), seconds=0.0) if last else None

    def _outcome(self, last: Dict[str, Any]) -> Dict[str, Any]:
        current = self._state["current"]
        words = {"reason": last["reason"], "logs": last["logs"]}
        return dict(words, status=last["outcome"], release=current["release"] if current else "")

    def _note(self, event: str, **words: Any) -> None:
        swap = self._state["swap"]
        self._folder.note(
            event, token=swap["token"], action=swap["action"], phase=swap["phase"],
            release=self._new["release"], container=self._new["container"], **words,
        )  # fmt: skip

"""The containers and image names on a device that are one application's."""

import json
import re
from typing import Any, Dict, Iterable, List, Optional

from jetship.fleet.ondevice.engine import Engine, EngineError

Entry = Dict[str, Any]  # image, container, release, settings: create, command, health

DIGITS = 12
REMOVE_IMAGE_SECONDS = 120.0
# Words for `docker create` that are the program's own.
OWN_WORDS = ("--name", "--restart", "--rm", "--cidfile", "--label=jetship.")


class GoneError(EngineError):
    """What a release is made of is not on the device any more; no further try finds it."""


class Containers:
    """Containers that jetship made for an application; whatever else is there is not touched."""

    def __init__(self, app: str, engine: Engine) -> None:
        self.app = app
        self._engine = engine

    def own_name(self, image: str) -> str:
        """Return how an image is called on a device: a name that no registry and no user has."""
        return "jetship.device/%s:%s" % (self.app, image.split(":")[1][:DIGITS])

    def local_image(self, image: str) -> Optional[str]:
        """Return the id by which the engine knows an image, which is then called as ours are.

        Returns:
            None where the engine has it neither by our name nor by its id.

        Raises:
            EngineError: the engine does not answer.
        """
        name = self.own_name(image)
        found = self._engine.image(name)
        if found is None:
            found = self._engine.image(image)
            if found is None:
                return None
            self._engine.call(["image", "tag", image, name])
        return str(found["Id"])

    def find(self, name: str) -> Optional[Dict[str, Any]]:
        """Return what the engine knows of a container; None where it is not there, or not ours."""
        found = self._engine.container(name)
        labels = (found or {}).get("Config", {}).get("Labels") or {}
        return found if labels.get("jetship.app") == self.app else None

    def names(self) -> List[str]:
        """Return the names of ours, running or not."""
        form = re.compile(r"%s-[0-9a-f]{%d}-[0-9]+" % (re.escape(self.app), DIGITS))
        label = "label=jetship.app=%s" % self.app
        words = ["ps", "--all", "--filter", label, "--format", "{{.Names}}"]
        return [name for name in self._engine.call(words).split() if form.fullmatch(name)]

    def free_name(self, image: str, avoid: Iterable[str]) -> str:
        """Return a name for a container of an image: one that nothing has, nor is to be avoided."""
        taken = set(self._engine.call(["ps", "--all", "--format", "{{.Names}}"]).split())
        stem, number = "%s-%s-" % (self.app, image.split(":")[1][:DIGITS]), 1
        while stem + str(number) in taken.union(avoid):
            number += 1
        return stem + str(number)

    def create(self, entry: Entry) -> None:
        """Create a release's container, which nothing starts by itself yet.

        Its labels say all of which it could be made again, in case the state file is lost.

        Raises:
            GoneError: its image is not there any more.
            EngineError: the engine fails.
        """
        # By its id: for a name that it lacks, the engine would ask whoever answers to it.
        image = self.local_image(entry["image"])
        if image is None:
            raise GoneError("the image of %s is no longer on the device" % entry["release"])
        words = ["create", "--name", entry["container"], "--restart", "no"]
        labels = {"app": self.app, "release": entry["release"], "image": entry["image"]}
        labels["settings"] = json.dumps(entry["settings"], sort_keys=True)
        for name, value in labels.items():
            words += ["--label", "jetship.%s=%s" % (name, value)]
        settings = entry["settings"]
        self._engine.call([*words, *settings["create"], image, *settings["command"]], 120)

    def retire(self, name: str, seconds: int) -> None:
        """Stop a container of ours, and let nothing start it again."""
        if self.find(name):
            self._engine.set_restart(name, "no")
            self._engine.stop(name, seconds)

    def remove(self, name: str) -> None:
        """Remove a container of ours."""
        if self.find(name):
            self._engine.remove(name)

    def remove_others(self, kept: Iterable[Entry]) -> None:
        """Remove our containers and image names but those of some releases."""
        kept = list(kept)
        containers = {entry["container"] for entry in kept}
        for name in self.names():
            if name not in containers:
                self._engine.remove(name)
        images = {self.own_name(entry["image"]) for entry in kept}
        repository = "jetship.device/" + self.app
        words = ["image", "ls", "--format", "{{.Repository}}:{{.Tag}}", repository]
        for name in sorted(set(self._engine.call(words).split()) - images):
            # Without force: the engine keeps an image that anything else uses.
            self._engine.try_call(["image", "rm", name], REMOVE_IMAGE_SECONDS)


def same_release(one: Entry, other: Entry) -> bool:
    """Return whether two releases are the same image, in containers made by the same words."""
    if one["image"] != other["image"]:
        return False
    mine, theirs = one["settings"], other["settings"]
    if mine and theirs:
        return all(mine[key] == theirs[key] for key in ("create", "command"))
    # A rollout ends the name of a release with the digest of these words.
    return bool(one["release"].split(".")[-1] == other["release"].split(".")[-1])


def is_up(found: Optional[Dict[str, Any]]) -> bool:
    """Return whether a container runs, or is being started again by the engine."""
    state = (found or {}).get("State", {})
    return bool(state.get("Running") or state.get("Restarting"))


def restart_policy(found: Dict[str, Any]) -> str:
    """Return whether the engine starts a container again by itself: "always", "no"."""
    return str(found["HostConfig"]["RestartPolicy"]["Name"])

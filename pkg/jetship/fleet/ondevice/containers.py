"""The containers and image names on a device that are one application's."""

import re
from typing import Any, Dict, Iterable, List, Optional

from jetship.fleet.ondevice.engine import Engine

Entry = Dict[str, Any]  # image, container, release, settings: create, command, health

DIGITS = 12
REMOVE_IMAGE_SECONDS = 120.0
# Words for `docker create` that are the program's own.
OWN_WORDS = ("--name", "--restart", "--rm", "--cidfile", "--label=jetship.")


class Containers:
    """Containers that jetship made for an application; whatever else is there is not touched."""

    def __init__(self, app: str, engine: Engine) -> None:
        self.app = app
        self._engine = engine

    def own_name(self, image: str) -> str:
        """Return how an image is called on a device: a name that no registry and no user has."""
        return "jetship.device/%s:%s" % (self.app, image.split(":")[1][:DIGITS])

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
        """Create a release's container, which nothing starts by itself yet."""
        words = ["create", "--name", entry["container"], "--restart", "no"]
        labels = {"app": self.app, "release": entry["release"], "image": entry["image"]}
        for name, value in labels.items():
            words += ["--label", "jetship.%s=%s" % (name, value)]
        settings, image = entry["settings"], self.own_name(entry["image"])
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


def is_up(found: Optional[Dict[str, Any]]) -> bool:
    """Return whether a container runs, or is being started again by the engine."""
    state = (found or {}).get("State", {})
    return bool(state.get("Running") or state.get("Restarting"))


def restart_policy(found: Dict[str, Any]) -> str:
    """Return whether the engine starts a container again by itself: "always", "no"."""
    return str(found["HostConfig"]["RestartPolicy"]["Name"])

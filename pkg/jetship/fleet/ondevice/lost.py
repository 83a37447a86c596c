"""The state file of an application, made anew from its containers and the device's journal."""

import json
from typing import Any, Dict, List, Optional

from jetship.fleet.ondevice.containers import Containers, Entry, restart_policy
from jetship.fleet.ondevice.folder import Folder, State

Found = Dict[str, Any]  # what the engine says of a container


def remade(folder: Folder, containers: Containers, state: State) -> Optional[State]:
    """Return the state of which the file says nothing, as it was lost.

    The present container is the newest one that the engine keeps running. What remains beside it is
    the previous one, unless the journal has it begun and never committed.

    Returns:
        None where nothing was lost.

    Raises:
        EngineError: the engine does not answer.
    """
    if any(state[key] for key in ("current", "previous", "swap", "last")):
        return None
    there = [containers.find(name) for name in containers.names()]
    found = sorted(filter(None, there), key=lambda one: str(one["Created"]), reverse=True)
    current = _first([one for one in found if restart_policy(one) == "always"])
    lines = folder.lines()
    candidates = _named(lines, "begun") - _named(lines, "committed")
    others = [one for one in found if one is not current and _name(one) not in candidates]
    previous = _first(others)
    if not found and not state["note"] and not _named(lines, "committed"):
        return None
    note = state["note"] or "its state file was lost"
    note += "; its containers tell what it has" if found else ""
    note += "" if previous else "; what it had before is not known"
    made = dict(state, note=note)
    made["current"] = _entry(current) if current else None
    made["previous"] = _entry(previous) if previous else None
    return made


def _first(rows: List[Found]) -> Optional[Found]:
    return rows[0] if rows else None


def _named(lines: List[Dict[str, Any]], event: str) -> Any:
    """Return the containers with which something happened."""
    return {str(line.get("container")) for line in lines if line.get("event") == event}


def _name(found: Found) -> str:
    return str(found["Name"]).lstrip("/")


def _entry(found: Found) -> Entry:
    labels = found["Config"]["Labels"]
    try:
        settings = json.loads(labels.get("jetship.settings", ""))
    except ValueError:
        settings = None
    return {
        "image": labels.get("jetship.image", found["Image"]),
        "release": labels.get("jetship.release", ""),
        "container": _name(found),
        "settings": settings,
    }

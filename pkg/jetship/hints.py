"""Commands that messages propose: they work when they are copied.

Messages are written with `invoke TASK`; what is shown names the program that the user runs, and
repeats the options of this run without which the proposed task would look elsewhere.
"""

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path

_BUILDING = frozenset({"build", "image", "smoke", "bench"})
_FLEET = frozenset({"deploy", "status", "rollback"})
_TAKEN_BY = {
    "targets_file": _BUILDING | {"check", "matrix", "toolchain", "targets", "pins"} | _FLEET,
    "deploy": _BUILDING | {"matrix", "toolchain"} | _FLEET,
    "dist": _BUILDING | {"deploy"},
}
_carried: dict[str, str] = {}


def carry(given: Mapping[str, object]) -> None:
    """Let hints repeat those of a task's options that the tasks they propose need as well."""
    _carried.clear()
    _carried.update({name: str(given[name]) for name in _TAKEN_BY if given.get(name)})


def program() -> str:
    """Return how the user calls this program: `jetship`, `./run` or `invoke`."""
    called = Path(sys.argv[0])
    if called.name == "jetship":
        return "jetship"
    return shlex.quote(sys.argv[0]) if called.name == "run" else "invoke"


def spoken(text: str) -> str:
    """Return a message with its commands as the user would have to type them."""

    def command(match: re.Match[str]) -> str:
        rest = re.split(r"[`\n]", text[match.end() :])[0]
        words = [
            f" {option} {shlex.quote(value)}"
            for name, value in _carried.items()
            if match[1] in _TAKEN_BY[name] and (option := f"--{name.replace('_', '-')}") not in rest
        ]
        return f"{program()} {match[1]}{''.join(words)}"

    return re.sub(r"\binvoke ([a-z]+)", command, text)

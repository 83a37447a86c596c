"""The task `cache`: what lies in it, and deleting what nobody uses any more."""

import re
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from jetship import console
from jetship.errors import ConfigError
from jetship.store import Store, default_root
from jetship.tasks.command import command
from jetship.tasks.request import JSON_HELP

if TYPE_CHECKING:
    from jetship.toolchain.cache import Tree

DEFAULT_AGE = "30d"
SECONDS = {"h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


@command(
    help={
        "prune": "delete the trees that were not used lately; they are made again when needed",
        "older-than": "how long a tree has not been used: 12h, 30d, 8w (default: 30d); without "
        "--prune, show what would be deleted",
        "all": "list every tree",
        "json": JSON_HELP,
    }
)
def cache(
    _: Context,
    *,
    prune: bool = False,
    older_than: str = "",
    all: bool = False,  # noqa: A002
    json: bool = False,
) -> None:
    """Say what the cache holds and how large it is, and delete old trees.

    A tree is a part of a toolchain, unpacked. Each change of a recipe or lock file makes a new
    one beside the old. One that a running process uses, or that a folder of `toolchain --export`
    links to, is never deleted; nor are downloads, of which trees are made again.

    Work in progress that was broken off a day ago or more is deleted with them.

        invoke cache
        invoke cache --older-than 2w
        invoke cache --prune --older-than 2w
    """
    from jetship.toolchain.cache import delete_unused, kinds, left_behind, trees

    store = Store(default_root())
    length = older_than or DEFAULT_AGE
    age = _seconds(length)
    found, sizes = trees(store), kinds(store)
    now = time.time()
    old = [tree for tree in found if not tree.kept and now - tree.used >= age]
    broken_off = left_behind(store)
    removed = delete_unused(store, age) if prune else []
    if json:
        console.emit_json(
            {
                "cache": str(store.root),
                "bytes": sizes,
                "trees": [_row(tree) for tree in found if tree not in removed],
                "older_than_seconds": age,
                "broken_off_bytes": 0 if prune else broken_off,
                "unused": [tree.name for tree in old if tree not in removed],
                "removed": [_row(tree) for tree in removed],
            }
        )
        return
    if prune:
        for tree in removed:
            console.emit(f"deleted {tree.name} ({_shown(tree.size)})")
        console.note(f"{_counted(removed)} deleted")
        if broken_off:
            console.note(f"{_shown(broken_off)} of work that was broken off deleted")
        return
    _print_kinds(store, found, sizes)
    _print_trees(found if all else old if older_than else [])
    option = "" if length == DEFAULT_AGE else f" --older-than {length}"
    told = [f"{_counted(old)} not used for {length}"] if old else []
    told += [f"{_shown(broken_off)} of work that was broken off"] if broken_off else []
    if told:
        console.note(f"`invoke cache --prune{option}` deletes {' and '.join(told)}")


def _counted(some: "Sequence[Tree]") -> str:
    number = f"{len(some)} tree{'' if len(some) == 1 else 's'}"
    return f"{number} ({_shown(sum(tree.size for tree in some))})"


def _print_kinds(store: Store, found: "Sequence[Tree]", sizes: dict[str, int]) -> None:
    console.emit(f"{store.root}: {_shown(sum(sizes.values()))}")
    for kind, size in sizes.items():
        number = f", {len(found)} of them (--all lists them)" if kind == "trees" else ""
        console.emit(f"{_shown(size):>10}  {kind}{number}")


def _print_trees(some: "Sequence[Tree]") -> None:
    for tree in some:
        day = datetime.fromtimestamp(tree.used, UTC).date()
        kept = f" ({tree.kept})" if tree.kept else ""
        console.emit(f"{_shown(tree.size):>14}  {tree.name}, used {day}{kept}")


def _row(tree: "Tree") -> dict[str, Any]:
    used = datetime.fromtimestamp(tree.used, UTC).isoformat(timespec="seconds")
    return {"name": tree.name, "bytes": tree.size, "used": used, "kept": tree.kept}


def _shown(size: int) -> str:
    return f"{size / 1e9:.1f} GB" if size >= 1e9 else f"{size / 1e6:.1f} MB"


def _seconds(text: str) -> int:
    match = re.fullmatch(r"(\d{1,5})([hdw])", text)
    if match is None:
        raise ConfigError(
            f"--older-than {text!r} is not a length of time",
            fix="write a number with h, d or w behind it, such as 30d",
        )
    return int(match[1]) * SECONDS[match[2]]

"""What lies in the cache, and which of its trees nobody needs any more."""

import contextlib
import hashlib
import json
import os
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from jetship import usage
from jetship.store import Store, disk_errors, is_left_behind, sweep, write_atomically
from jetship.toolchain.export import MARKER

BLOCK_BYTES = 512  # the unit of st_blocks, whatever the disk's own is
_KINDS = {"sha256": "downloads", "tmp": "work in progress"}
_GONE = ".gone-"


@dataclass(frozen=True)
class Tree:
    """A tree of the cache: its size on disk in bytes, and its last use in seconds since 1970.

    `kept` says why it is not to be deleted however old it is, or is "".
    """

    name: str
    size: int
    used: float
    kept: str = ""


def kinds(store: Store) -> dict[str, int]:
    """Return the sizes in bytes of what is in the cache, by kind."""
    if not store.root.is_dir():
        return {}
    folders = sorted(path for path in store.root.iterdir() if path.is_dir())
    return {_KINDS.get(path.name, path.name): _size(path) for path in folders}


def trees(store: Store) -> list[Tree]:
    """Return all trees, the one that was used longest ago first."""
    exported = _exported(store)
    found = [
        Tree(path.name, _size(path), _used(store, path), _kept(store, path, exported))
        for path in _published(store)
    ]
    return sorted(found, key=lambda tree: (tree.used, tree.name))


def delete_unused(store: Store, older_than: float) -> list[Tree]:
    """Delete the trees that were not used for `older_than` seconds; return them.

    One that a running process uses, or that an exported folder links to, stays. Downloads stay:
    trees are made of them again without the network.

    Raises:
        ConfigError: the cache cannot be written to.
    """
    with disk_errors(store.root):
        now = time.time()
        old = [tree for tree in trees(store) if not tree.kept and now - tree.used >= older_than]
        removed = [tree for tree in old if _delete(store, tree)]
        _delete_rubbish(store)
    return removed


def left_behind(store: Store) -> int:
    """Return the bytes of work in progress that was broken off: what `delete_unused` deletes."""
    return sum(_size(folder) for folder in _rubbish(store) if is_left_behind(folder))


def remember_export(store: Store, folder: Path) -> None:
    """Keep what a folder that was exported as links leads to, as long as it is there."""
    name = hashlib.sha256(str(folder).encode()).hexdigest()[:16]
    with disk_errors(store.root):
        write_atomically(store.root / "exports" / name, str(folder).encode())


def _published(store: Store) -> list[Path]:
    folder = store.root / "trees"
    if not folder.is_dir():
        return []
    return [path for path in folder.iterdir() if path.is_dir() and path.name[0] != "."]


def _used(store: Store, tree: Path) -> float:
    """Return when a tree was used last; of one that nobody has marked yet, when it was made."""
    with contextlib.suppress(OSError):
        return store.mark(tree.name).stat().st_mtime
    return tree.stat().st_mtime


def _kept(store: Store, tree: Path, exported: frozenset[str]) -> str:
    if tree.name in exported:
        return "an exported folder links to it"
    if not store.mark(tree.name).exists():
        return ""
    with usage.alone(store.mark(tree.name)) as unused:
        return "" if unused else "a running process uses it"


def _exported(store: Store) -> frozenset[str]:
    """Return the names of the trees that exported folders lead to."""
    roots = []
    for record in sorted((store.root / "exports").glob("*")):
        try:
            about = json.loads((Path(record.read_text()) / MARKER).read_text())
        except (OSError, ValueError):
            continue  # the folder was deleted, or is something else now
        if not about.get("copy"):
            roots.append(store.root / "trees" / Path(about["toolchain"]).name)
    return frozenset(name for root in roots for name in _with_parts(root))


def _with_parts(toolchain: Path) -> Iterator[str]:
    yield toolchain.name
    if toolchain.is_dir():
        for link in toolchain.iterdir():
            if link.is_symlink() and link.readlink().parts[0] == "..":
                yield link.readlink().parts[1]


def _delete(store: Store, tree: Tree) -> bool:
    """Delete a tree if nobody uses it now; it is there as a whole, or not at all."""
    place = store.root / "trees" / tree.name
    gone = place.with_name(f"{_GONE}{tree.name}")
    with usage.alone(store.mark(tree.name)) as unused:
        if not unused:
            return False
        shutil.rmtree(gone, ignore_errors=True)
        place.rename(gone)
    shutil.rmtree(gone, ignore_errors=True)
    return True


def _delete_rubbish(store: Store) -> None:
    """Delete what processes that were killed a day ago or more left behind."""
    sweep(_rubbish(store))


def _rubbish(store: Store) -> list[Path]:
    return [*(store.root / "tmp").glob("*"), *(store.root / "trees").glob(".*")]


def _size(folder: Path) -> int:
    """Return the bytes that a folder takes on the disk, with each file counted once."""
    seen: set[tuple[int, int]] = set()
    total = 0
    for place, folders, files in os.walk(folder):
        for name in (*folders, *files):
            # Another process may make and delete what is looked at here.
            with contextlib.suppress(OSError):
                about = os.lstat(f"{place}/{name}")
                if about.st_nlink == 1 or (about.st_dev, about.st_ino) not in seen:
                    total += about.st_blocks * BLOCK_BYTES
                if about.st_nlink > 1:
                    seen.add((about.st_dev, about.st_ino))
    return total

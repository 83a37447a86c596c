"""A wheel's check for some targets, with the tables of their libraries made anew and cached."""

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetship.check.api import check_facts
from jetship.check.prepared import target_libraries
from jetship.check.wheel import read_wheel
from jetship.store import Store
from jetship.targets.model import Target
from jetship.toolchain.ownparts import OwnSupply


@dataclass(frozen=True)
class CheckTiming:
    """How long the checks for all targets took one way, in seconds of the wall clock."""

    way: str
    targets: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return it as machines read it."""
        return {"way": self.way, "targets": self.targets, "seconds": round(self.seconds, 3)}


def compare(
    wheel: Path, targets: Sequence[Target], store: Store, own: OwnSupply
) -> list[CheckTiming]:
    """Check a wheel for each target three times, having downloaded and unpacked before.

    Args:
        wheel: what is checked; how its checks end does not matter.
        targets: what for.
        store: the cache.
        own: the user's parts.

    Raises:
        CheckError: the file is not a wheel.
        DownloadError, ToolMissingError: the libraries of a target cannot be had.
    """
    _checked(wheel, targets, store, own)
    with tempfile.TemporaryDirectory(dir=store.root) as name:
        bare = _without_tables(store, Path(name))
        made = _checked(wheel, targets, bare, own)
        cached = [_checked(wheel, targets, bare, own) for _ in range(2)]
    rows = {"tables made anew": made, "tables cached": min(cached)}
    return [CheckTiming(way, len(targets), seconds) for way, seconds in rows.items()]


def _checked(wheel: Path, targets: Sequence[Target], store: Store, own: OwnSupply) -> float:
    start = time.monotonic()
    read = read_wheel(wheel)  # once, as the task `check` does
    for target in targets:
        check_facts(read, target, target_libraries(target, store, own.of(target)))
    return time.monotonic() - start


def _without_tables(store: Store, root: Path) -> Store:
    """Return a cache with all trees of another one, except the tables."""
    (root / "trees").mkdir()
    (root / "sha256").symlink_to(store.root / "sha256")
    for tree in (store.root / "trees").iterdir():
        if not tree.name.startswith((".", "symbols-")):
            (root / "trees" / tree.name).symlink_to(tree)
    return Store(root)

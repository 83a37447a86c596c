"""Images of the build machine's engine as layers that can be sent one by one."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class LayerFile:
    """A layer, compressed, in the cache.

    Args:
        diff_id: "sha256:..." of the tar.
        path: the gzip file.
        sha256: 64 digits of the gzip file.
        size: its bytes.
        unpacked: bytes of the tar.
    """

    diff_id: str
    path: Path
    sha256: str
    size: int
    unpacked: int


@dataclass(frozen=True)
class LayeredImage:
    """An image: its config as the engine wrote it, whose digest is `id`, and its layers."""

    id: str
    config: bytes
    layers: tuple[LayerFile, ...]

    @property
    def diff_ids(self) -> tuple[str, ...]:
        """The digests of the layers, from the bottom up."""
        return tuple(layer.diff_id for layer in self.layers)

    def missing(self, chains: tuple[tuple[str, ...], ...]) -> tuple[LayerFile, ...]:
        """Return the layers that an engine lacks which has images of these diff ids.

        An engine knows a layer by all that lies below it, so only a common beginning counts.
        """
        wanted = self.diff_ids
        known = max((_common(wanted, chain) for chain in chains), default=0)
        return self.layers[known:]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count

"""Image archives (what `docker load` reads), made without an engine and without emulation.

`docker import --platform` of older engines records the build machine's architecture whatever
it is told, so the config is written here.
"""

import hashlib
import json
import tarfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import IO, Any

from jetship.engine import OCI_NAMES
from jetship.image.tree import Layer, Sink, entry, epoch, write_tar

SEARCH_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class _Measure(Sink):
    """A sink that keeps only size and digest."""

    def __init__(self) -> None:
        self.size = 0
        self._digest = hashlib.sha256()

    def write(self, data: bytes, /) -> int:
        self._digest.update(data)
        self.size += len(data)
        return len(data)

    @property
    def sha256(self) -> str:
        return self._digest.hexdigest()


@dataclass(frozen=True)
class Archive:
    """An image that can be written: layers with their sizes and digests, and the config."""

    layers: tuple[Layer, ...]
    sizes: tuple[int, ...]
    digests: tuple[str, ...]
    config: bytes

    @property
    def digest(self) -> str:
        """The digest of the config, which names every layer's: it stands for the content."""
        return hashlib.sha256(self.config).hexdigest()

    def write(self, out: IO[bytes], tag: str) -> None:
        """Write the archive; `docker load` gives the image the name `tag`."""
        when = epoch()
        names = [f"{digest}/layer.tar" for digest in self.digests]
        config = f"{self.digest}.json"
        manifest = _json([{"Config": config, "RepoTags": [tag], "Layers": names}])
        for name, data in (("manifest.json", manifest), (config, self.config)):
            out.write(_header(name, when, len(data)) + data + _padding(len(data)))
        # Without tarfile: it reads what it adds, so every layer would have to lie on the disk
        # once more.
        for layer, name, size in zip(self.layers, names, self.sizes, strict=True):
            out.write(_header(name, when, size))
            write_tar(out, layer)
            out.write(_padding(size))
        out.write(bytes(2 * tarfile.BLOCKSIZE))


def plan(layers: Sequence[Layer], machine: str, labels: Mapping[str, str]) -> Archive:
    """Read all layers once and return the image that they make.

    Args:
        layers: from the bottom up.
        machine: what the kernel calls it: "aarch64".
        labels: the image's labels.

    Raises:
        ImageError: a layer holds what an image cannot.
    """
    measures = []
    for layer in layers:
        measure = _Measure()
        write_tar(measure, layer)
        measures.append(measure)
    digests = tuple(measure.sha256 for measure in measures)
    sizes = tuple(measure.size for measure in measures)
    return Archive(tuple(layers), sizes, digests, _config(digests, machine, labels))


def _config(digests: Sequence[str], machine: str, labels: Mapping[str, str]) -> bytes:
    architecture, variant = OCI_NAMES[machine]
    created = datetime.fromtimestamp(epoch(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    document: dict[str, Any] = {
        "architecture": architecture,
        "os": "linux",
        "created": created,
        "config": {
            "Env": [f"PATH={SEARCH_PATH}"],
            "Cmd": ["/usr/bin/python3"],
            "WorkingDir": "/",
            "Labels": dict(labels),
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{digest}" for digest in digests]},
        "history": [{"created": created, "created_by": "jetship"} for _ in digests],
    }
    if variant:
        document["variant"] = variant
    return _json(document)


def _json(document: Any) -> bytes:
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def _header(name: str, when: int, size: int) -> bytes:
    return entry(name, when, size=size).tobuf(format=tarfile.PAX_FORMAT)


def _padding(size: int) -> bytes:
    return bytes(-size % tarfile.BLOCKSIZE)

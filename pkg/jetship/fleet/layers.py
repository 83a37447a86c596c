"""Images of the build machine's engine as layers that can be sent one by one.

The engine is asked once an image (`docker save`); each layer lies in the cache as a gzip file that
has the same bytes whenever it is made, so that a device that has half of it can be given the rest.
"""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Protocol

import docker
import docker.errors
import zstandard

from jetship import console
from jetship.engine import engine_errors
from jetship.errors import ConfigError, DownloadError, ImageError
from jetship.store import CHUNK_BYTES, Store, sha256_of

LEVEL = 6
DOCUMENT_BYTES = 8 << 20
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"


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

    def require_whole(self) -> None:
        """Read the file once.

        Raises:
            DownloadError: it is damaged, or gone.
        """
        if not self.path.is_file() or sha256_of(self.path) != self.sha256:
            shutil.rmtree(self.path.parent, ignore_errors=True)
            raise DownloadError(
                f"the layer {self.diff_id} is damaged in the cache",
                why=f"{self.path} is not what was written; it is deleted",
                fix="run the same command again; the engine gives the layer anew",
            )


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

    def missing(self, chains: Iterable[tuple[str, ...]]) -> tuple[LayerFile, ...]:
        """Return the layers that an engine lacks which has images of these diff ids.

        An engine knows a layer by all that lies below it, so only a common beginning counts.
        """
        known = max((_common(self.diff_ids, chain) for chain in chains), default=0)
        return self.layers[known:]


def layered_image(client: docker.DockerClient, name: str, store: Store) -> LayeredImage:
    """Return an image of the engine, its layers in the cache.

    Args:
        client: the engine.
        name: the image's name or id.
        store: the cache.

    Raises:
        ConfigError: the engine has no such image.
        ImageError: the engine fails, or saves something else than the image.
        DownloadError: the cache's disk is full.
    """
    with engine_errors(f"looking for {name}"):
        try:
            image = client.images.get(name)
        except docker.errors.ImageNotFound as error:
            raise ConfigError(
                f"the engine has no image {name}", fix="make it with `invoke image`"
            ) from error
    wanted = tuple(image.attrs["RootFS"].get("Layers") or ())
    config = ("image-config", _digits(str(image.id)))
    if not store.has_tree(*config) or not all(_has(store, one) for one in wanted):
        console.step(f"reading the layers of {name}")
        with engine_errors(f"saving {name}"):
            _save(client.api.get_image(str(image.id)), wanted, store, config)
    data = (store.tree(*config, _nothing) / "config.json").read_bytes()
    layers = tuple(_layer_file(store, one) for one in wanted)
    return LayeredImage(f"sha256:{hashlib.sha256(data).hexdigest()}", data, layers)


def _save(
    chunks: Iterator[bytes], wanted: tuple[str, ...], store: Store, config: tuple[str, str]
) -> None:
    """Put the layers and the config of a `docker save` into the cache."""
    documents: dict[str, bytes] = {}
    with store.scratch() as scratch, tarfile.open(fileobj=_Chunks(chunks), mode="r|") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isreg() else None
            if content is None:
                continue  # a folder, or a second name of a layer that another image has as well
            spooled = scratch / "layer.tar"
            diff_id = _spool(content, spooled)
            if diff_id not in wanted:
                documents |= _document(member.name, spooled)
            elif not _has(store, diff_id):
                store.tree("layer", _digits(diff_id), partial(_compress, spooled, diff_id))
    lacking = [one for one in wanted if not _has(store, one)]
    if lacking:
        raise ImageError(f"the engine did not save the layer {lacking[0]}")
    data = _config(documents, wanted)
    store.tree(*config, lambda folder: _write(folder / "config.json", data))


def _document(name: str, path: Path) -> dict[str, bytes]:
    """Return what may be a manifest or a config; a layer of another machine's image is none."""
    small = path.stat().st_size <= DOCUMENT_BYTES
    return {name: path.read_bytes()} if small else {}


def _config(documents: dict[str, bytes], wanted: tuple[str, ...]) -> bytes:
    """Return the config that names the layers; an archive may hold those of other machines."""
    rows = json.loads(documents.get("manifest.json", b"[]"))
    for row in rows:
        data = documents.get(row["Config"], b"{}")
        if tuple(json.loads(data).get("rootfs", {}).get("diff_ids") or ()) == wanted:
            return data
    raise ImageError("the engine saved no config that fits the image's layers")


def _spool(content: IO[bytes], path: Path) -> str:
    """Write a layer's tar to the disk, unpacked where the engine keeps it packed; return its id."""
    digest = hashlib.sha256()
    with path.open("wb") as out:
        stream = _unpacked(content)
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
            out.write(chunk)
    return f"sha256:{digest.hexdigest()}"


def _unpacked(content: IO[bytes]) -> "_Readable":
    head = _peek(content)
    if head.startswith(GZIP):
        return gzip.GzipFile(fileobj=content)
    if head.startswith(ZSTD):
        return zstandard.ZstdDecompressor().stream_reader(content)
    return content


def _peek(content: IO[bytes]) -> bytes:
    # tarfile gives a BufferedReader, which its types do not say.
    return content.peek(4) if isinstance(content, io.BufferedReader) else b""


def _compress(spooled: Path, diff_id: str, folder: Path) -> None:
    path = folder / "layer.tar.gz"
    with (
        spooled.open("rb") as source,
        path.open("wb") as out,
        # No name and no time in it: the same layer gives the same bytes.
        gzip.GzipFile("", "wb", LEVEL, out, mtime=0) as packed,
    ):
        shutil.copyfileobj(source, packed, CHUNK_BYTES)
    unpacked = spooled.stat().st_size
    row = LayerFile(diff_id, path, sha256_of(path), path.stat().st_size, unpacked)
    _write(folder / "layer.json", json.dumps(asdict(row) | {"path": path.name}).encode())


def _has(store: Store, diff_id: str) -> bool:
    return store.has_tree("layer", _digits(diff_id))


def _layer_file(store: Store, diff_id: str) -> LayerFile:
    folder = store.tree("layer", _digits(diff_id), _nothing)
    row: dict[str, Any] = json.loads((folder / "layer.json").read_bytes())
    return LayerFile(**row | {"path": folder / row["path"]})


def _nothing(folder: Path) -> None:
    """Stand for the maker of a tree that is there already."""
    raise DownloadError(
        f"{folder.name} was deleted from the cache meanwhile", fix="run the same command again"
    )


def _write(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _digits(digest: str) -> str:
    return digest.partition(":")[2]


def _common(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    count = 0
    for mine, theirs in zip(one, other, strict=False):
        if mine != theirs:
            break
        count += 1
    return count


class _Readable(Protocol):
    """Something that gives bytes."""

    def read(self, size: int, /) -> bytes: ...


class _Chunks(io.RawIOBase):
    """The engine's answer as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._left = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._left = chunk
        size = min(len(buffer), len(self._left))
        buffer[:size] = self._left[:size]
        self._left = self._left[size:]
        return size

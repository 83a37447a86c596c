"""Images on their way into the device's engine: layers that are sent, or a pull."""

import base64
import errno
import hashlib
import json
import os
import subprocess  # noqa: TID251 - jetship.proc is not on the device
import tarfile
import tempfile
import threading
from typing import IO, Any, Dict, List, Set

from jetship.fleet.ondevice.containers import Containers
from jetship.fleet.ondevice.engine import Engine, EngineError
from jetship.fleet.ondevice.facts import free, images, keeps_in_containerd
from jetship.fleet.ondevice.folder import Folder, RefusedError

CHUNK_BYTES = 1 << 18
MARGIN_BYTES = 32 << 20
PULL_SECONDS = 6 * 3600.0
LOAD_SECONDS = 600.0
LOAD_BYTES_A_SECOND = 1 << 20  # slower than any card that a Jetson boots from
FULL_WORDS = ("no space left on device", "disk quota exceeded")
FULL = (errno.ENOSPC, errno.EDQUOT)
NO_ROOM = "free some space: `docker system df` and `df -h` on the device show what takes it"


class Transfer:
    """Brings images to one application's device. Its caller holds the folder's lock."""

    def __init__(self, folder: Folder, engine: Engine) -> None:
        self._folder = folder
        self._engine = engine
        self._containers = Containers(folder.app, engine)
        self._own_name = self._containers.own_name
        self._whole: Set[str] = set()

    def has(self, image: str) -> bool:
        """Return whether the engine has an image; then also under the name that is our own.

        Raises:
            EngineError: the engine does not answer.
        """
        return self._containers.local_image(image) is not None

    def offer(self, image: str, layers: List[Dict[str, Any]]) -> Dict[str, Any]:
        """Say what is to be sent of an image: nothing, or some layers, from which byte on.

        Args:
            image: its id.
            layers: all of them from the bottom up: diff_id, sha256, size, unpacked.

        Raises:
            RefusedError: there is no room for them.
            EngineError: the engine does not answer.
        """
        if self.has(image):
            return {"present": True, "layers": []}
        known = 0
        if not keeps_in_containerd(self._engine.info()):
            wanted = [layer["diff_id"] for layer in layers]
            known = max((_common(wanted, have) for have in images(self._engine).values()),
                        default=0)  # fmt: skip
        missing = layers[known:]
        self._drop_layers(keep={layer["sha256"] for layer in missing})
        have = [self._have(layer) for layer in missing]
        self._require_room(missing, sum(have))
        rows = [{"sha256": layer["sha256"], "at": at} for layer, at in zip(missing, have)]
        return {"present": False, "layers": rows}

    def receive(self, layer: Dict[str, Any], source: IO[bytes]) -> None:
        """Write a layer's bytes to the disk as they come, and check the whole.

        Args:
            layer: sha256, size, and `at`, the first byte that comes.
            source: where they come from.

        Raises:
            RefusedError: the disk is full, or it is another layer than was said.
            EOFError: the link was cut; what came stays.
        """
        path = self._path(layer["sha256"])
        try:
            with open(path, "r+b" if os.path.exists(path) else "w+b") as out:
                digest = _digest_of(out, layer["at"])
                out.truncate()
                self._receive(layer, source, out, digest)
        except OSError as error:
            raise self._full(error) from error
        if digest.hexdigest() != layer["sha256"]:
            os.unlink(path)
            raise RefusedError(
                "digest", "layer %s arrived damaged" % layer["sha256"], "send it again"
            )
        self._whole.add(layer["sha256"])

    @staticmethod
    def _receive(layer: Dict[str, Any], source: Any, out: IO[bytes], digest: Any) -> None:
        left = layer["size"] - layer["at"]
        while left:
            chunk = source.read1(min(CHUNK_BYTES, left))
            if not chunk:
                raise EOFError
            out.write(chunk)
            # At once, so that the next session goes on from here if this one is killed.
            out.flush()
            digest.update(chunk)
            left -= len(chunk)

    def load(self, image: str, config: str, layers: List[Dict[str, Any]]) -> None:
        """Give an image to the engine: the layers that were sent, and those that it has.

        Args:
            image: its id.
            config: its config in base64, whose digest is the id.
            layers: all of them: diff_id, and sha256 where it was sent.

        Raises:
            RefusedError: the engine cannot take it.
        """
        data = base64.b64decode(config)
        if "sha256:" + hashlib.sha256(data).hexdigest() != image:
            raise RefusedError("digest", "the image's config is not the one of %s" % image)
        name = self._own_name(image)
        lacking = {layer["sha256"] for layer in layers if layer.get("sha256")} - self._whole
        if lacking:
            raise RefusedError("digest", "layers were not sent: %s" % ", ".join(sorted(lacking)))
        try:
            self._load(image, data, layers, name)
            self._require_same(name, image, [layer["diff_id"] for layer in layers])
        except EngineError as error:
            refused = _refused("the engine does not take the image", error)
            if refused.kind == "full":
                self._drop_layers(keep=set())
            raise refused from error
        self._drop_layers(keep=set())
        self._folder.note("loaded", image=image)

    def _load(self, image: str, config: bytes, layers: List[Dict[str, Any]], name: str) -> None:
        sent = [layer for layer in layers if layer.get("sha256")]
        total = sum(os.path.getsize(self._path(layer["sha256"])) for layer in sent)
        seconds = LOAD_SECONDS + total / LOAD_BYTES_A_SECOND
        with tempfile.TemporaryFile() as said:
            child = subprocess.Popen(
                ["docker", "load"], stdin=subprocess.PIPE, stdout=said, stderr=said
            )
            timer = threading.Timer(seconds, child.kill)
            timer.start()
            try:
                assert child.stdin is not None
                self._write_archive(child.stdin, image, config, layers, name)
                child.stdin.close()
            except BrokenPipeError:
                pass  # the command has ended early, and says why
            finally:
                status = child.wait()
                timer.cancel()
            said.seek(0)
            text = said.read()[-600:].decode("utf-8", "replace").strip()
        if status:
            raise EngineError("`docker load` failed: " + (text or "exit status %d" % status))

    def _write_archive(
        self, out: IO[bytes], image: str, config: bytes, layers: List[Dict[str, Any]], name: str
    ) -> None:
        """Write what `docker load` reads.

        An engine that has a layer upon the same ones below does not look into the archive for it
        (moby, image/tarexport/load.go), so those are named and left out.
        """
        digest = image.split(":")[1]
        names = [layer["diff_id"].split(":")[1] + "/layer.tar" for layer in layers]
        row = {"Config": digest + ".json", "RepoTags": [name], "Layers": names}
        for member, data in (
            ("manifest.json", json.dumps([row]).encode()),
            (row["Config"], config),
        ):
            out.write(_header(str(member), len(data)) + data + bytes(-len(data) % 512))
        for member, layer in zip(names, layers):
            if not layer.get("sha256"):
                continue
            path = self._path(layer["sha256"])
            size = os.path.getsize(path)
            out.write(_header(member, size))
            with open(path, "rb") as stream:
                for chunk in iter(lambda: stream.read(CHUNK_BYTES), b""):
                    out.write(chunk)
            out.write(bytes(-size % 512))
        out.write(bytes(1024))

    def _require_same(self, name: str, image: str, layers: List[str]) -> None:
        """Refuse an image that is not the one that was meant, and take its name away."""
        found = self._engine.image(name)
        # containerd calls an image by its manifest; then the layers have to do.
        same = found is not None and (
            found["Id"] == image
            or (keeps_in_containerd(self._engine.info()) and found["RootFS"]["Layers"] == layers)
        )
        if not same:
            self._engine.try_call(["image", "rm", name], 120)
            raise RefusedError(
                "image", "the engine has %s where %s is meant" % ((found or {}).get("Id"), image)
            )

    def pull(self, reference: str, image: str) -> None:
        """Have the engine pull an image by its digest.

        Raises:
            RefusedError: it cannot, or it is another image.
        """
        if "@sha256:" not in reference:
            raise RefusedError("image", "%s names no digest" % reference)
        try:
            before = self._engine.image(reference)
            self._engine.call(["pull", reference], PULL_SECONDS)
            found = self._engine.image(reference) or {}
            # containerd's id is another; there the digest of the reference has to do.
            if found.get("Id") != image and not keeps_in_containerd(self._engine.info()):
                raise RefusedError("image", "%s is the image %s, and %s is meant"
                              % (reference, found.get("Id"), image))  # fmt: skip
            name = self._own_name(image)
            self._engine.call(["image", "tag", reference, name])
            if before is None:
                # The image is kept, and deleted one day, under our own name alone.
                self._engine.try_call(["image", "rm", reference], 120)
        except EngineError as error:
            raise _refused("the engine cannot pull %s" % reference, error) from error
        self._folder.note("pulled", image=image, reference=reference)

    # The folder of layers

    def _path(self, sha256: str) -> str:
        if len(sha256) != 64 or not set(sha256) <= set("0123456789abcdef"):
            raise RefusedError("digest", "%r is no SHA-256" % sha256)
        return os.path.join(self._folder.layers, sha256 + ".gz")

    def _have(self, layer: Dict[str, Any]) -> int:
        """Return how many bytes of a layer an earlier session has left here."""
        path = self._path(layer["sha256"])
        size = os.path.getsize(path) if os.path.exists(path) else 0
        if size > layer["size"]:
            os.unlink(path)
            size = 0
        return size

    def drop(self) -> None:
        """Delete what a transfer that was cut has left, once the engine has an image."""
        self._drop_layers(keep=set())

    def _drop_layers(self, keep: Set[str]) -> None:
        for name in os.listdir(self._folder.layers):
            if name.split(".")[0] not in keep:
                os.unlink(os.path.join(self._folder.layers, name))
        self._whole &= keep

    def _require_room(self, missing: List[Dict[str, Any]], have: int) -> None:
        """Refuse layers for which there is no room, in their folder or in the engine's.

        The engine copies what it loads beside its images before it unpacks it, and a layer takes
        more on a disk than in a tar.
        """
        sent = sum(layer["size"] for layer in missing)
        unpacked = 2 * sum(layer["unpacked"] for layer in missing)
        folder, own = free(self._folder.path)
        root, disk = free(self._engine.info().get("DockerRootDir") or self._folder.path)
        wanted = {own: sent - have + MARGIN_BYTES}
        wanted[disk] = wanted.get(disk, MARGIN_BYTES) + unpacked
        for device, there, place in ((own, folder, self._folder.path), (disk, root, "the engine")):
            if there < wanted[device]:
                raise RefusedError(
                    "full", "the disk of %s has %d MiB left, and %d MiB are needed"
                    % (place, there >> 20, wanted[device] >> 20), NO_ROOM,
                )  # fmt: skip

    def _full(self, error: OSError) -> RefusedError:
        """Return what to say of a disk that takes no more; it gets back what it was given."""
        if error.errno in FULL:
            self._drop_layers(keep=set())
            return RefusedError("full", "the device's disk is full", NO_ROOM)
        return RefusedError("disk", "the device's disk cannot be written to: %s" % error)


def _refused(what: str, error: EngineError) -> RefusedError:
    said = "%s: %s" % (what, error)
    if any(words in said.lower() for words in FULL_WORDS):
        return RefusedError("full", said, NO_ROOM)
    return RefusedError("engine", said)


def _digest_of(stream: IO[bytes], size: int) -> Any:
    """Return the digest of a file's beginning, after which the file then stands."""
    digest = hashlib.sha256()
    left = size
    while left:
        chunk = stream.read(min(CHUNK_BYTES, left))
        if not chunk:
            raise RefusedError("digest", "the device has less of a layer than it said")
        digest.update(chunk)
        left -= len(chunk)
    return digest


def _header(name: str, size: int) -> bytes:
    made = tarfile.TarInfo(name)
    made.size, made.mode = size, 0o644
    return made.tobuf(tarfile.GNU_FORMAT)


def _common(one: List[str], other: List[str]) -> int:
    count = 0
    for mine, theirs in zip(one, other):
        if mine != theirs:
            break
        count += 1
    return count

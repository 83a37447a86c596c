"""The target's own libraries and headers out of a local container image, which is never run."""

import difflib
import hashlib
import inspect
import io
import os
import posixpath
import re
import shutil
import sys
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import docker
import docker.errors
from docker.models.containers import Container
from docker.models.images import Image

from jetship import console
from jetship.engine import OCI_NAMES, connect, engine_errors
from jetship.errors import ConfigError
from jetship.store import CHUNK_BYTES, Store
from jetship.targets.model import Platform
from jetship.toolchain import layout

# What a toolchain or a check reads, and the links that lead there.
_KEPT = re.compile(
    r"lib(32|64)?(/.*)?"
    r"|usr/(lib(32|64)?|include)(/.*)?"
    r"|usr/bin/python3[^/]*"
    r"|usr/local/lib/python3[^/]*(/.*)?"
    r"|usr/local/cuda[^/]*(/targets/[^/]+/(lib|include)(/.*)?)?"
)
_LINKS_KEPT = re.compile(r"etc/alternatives/[^/]+|usr/local/cuda[^/]*/(lib64|include)")
_TORCH = "{base}/{python}/{packages}/torch/version.py"


@dataclass(frozen=True)
class ImageTree:
    """What was kept of an image, by where it lies in the cache."""

    name: str
    id: str
    root: Path

    def torch(self, platform: Platform) -> Path:
        """Return the folder of packages that has torch for the platform's Python.

        Raises:
            ConfigError: there is none; says where there is one for another Python.
        """
        version = platform.python.version
        for python in (f"python{version}", "python3"):
            for found in _torch_versions(self.root, python):
                return found.parent.parent
        others = [
            str(found.relative_to(self.root).parent) for found in _torch_versions(self.root, "*")
        ]
        raise ConfigError(
            f"the image {self.name} has no torch for Python {version}",
            why=f"its torch is {', '.join(others)}" if others else "",
            fix=f"name an image of {platform.name}, such as l4t-pytorch, or give torch's wheel "
            "with --torch-wheel beside --image",
        )

    def cuda(self, platform: Platform) -> Path | None:
        """Return the folder of CUDA's libraries, or None where the image has none."""
        found = [
            path
            for target in ("aarch64-linux", "sbsa-linux")
            for path in sorted(self.root.glob(f"usr/local/cuda-*/targets/{target}/lib"))
        ]
        own = [path for path in found if path.parts[-4] == f"cuda-{platform.cuda.version}"]
        return next(iter([*own, *found]), None)

    @property
    def has_headers(self) -> bool:
        """Whether C can be compiled against it."""
        return (self.root / "usr/include/stdio.h").exists()


def export_image(name: str, platform: Platform, store: Store) -> ImageTree:
    """Return what is needed of an image that the engine has, exporting it where it is missing.

    Raises:
        ConfigError: the engine has no such image, or it is for another machine.
        ToolMissingError: no engine answers.
        ImageError: the engine fails.
        DownloadError: the disk is full.
    """
    with closing(connect()) as client:
        image = _find(client, name)
        _require_machine(image, name, platform)
        digest = hashlib.sha256(str(image.id).encode())
        for module in (layout, sys.modules[__name__]):
            digest.update(inspect.getsource(module).encode())

        def make(root: Path) -> None:
            console.step(f"exporting what is needed of {name} (once)")
            store.require_space(int(image.attrs.get("Size", 0)))
            with engine_errors(f"exporting {name}"), _container(client, image) as container:
                # docker's stubs say str; it is what the socket gives.
                unpack(cast("Iterator[bytes]", container.export(CHUNK_BYTES)), root)
            for found in _torch_versions(root, "*"):
                layout.complete_torch(found.parent.parent)

        root = store.tree("image", digest.hexdigest(), make)
    tree = ImageTree(name, str(image.id), root)
    if not tree.has_headers:
        console.warn(
            f"{name} has no C headers (libc6-dev), so it serves for checks, and builds need an "
            "image that has them"
        )
    return tree


def unpack(chunks: Iterable[bytes], root: Path) -> None:
    """Unpack what is kept of a root file system's archive, with relative links only."""
    root = root.resolve()
    source = io.BufferedReader(_Chunks(chunks), CHUNK_BYTES)
    with tarfile.open(fileobj=source, mode="r|", bufsize=CHUNK_BYTES) as archive:
        for member in archive:
            name = posixpath.normpath(member.name)
            kept = _KEPT.fullmatch(name) or (member.issym() and _LINKS_KEPT.fullmatch(name))
            if kept and ".." not in name.split("/"):
                _place(archive, member, name, root)


def _place(archive: tarfile.TarFile, member: tarfile.TarInfo, name: str, root: Path) -> None:
    """Write one member; devices and the like are left out."""
    place = root / name
    if member.isdir():
        _folder(place, root)
        return
    _folder(place.parent, root)
    if member.issym():
        place.symlink_to(inner_link(name, member.linkname))
    elif member.islnk():
        # To a file that came before; one that was not kept has no use here either.
        first = root / posixpath.normpath(member.linkname.lstrip("/"))
        if first.is_file() and first.resolve().is_relative_to(root):
            os.link(first, place)
    elif member.isfile():
        content = archive.extractfile(member)
        if content is not None:
            with content, place.open("xb") as out:
                shutil.copyfileobj(content, out, CHUNK_BYTES)
            place.chmod(0o755 if member.mode & 0o100 else 0o644)


def _folder(folder: Path, root: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    # A file system has no folder below a link to one; an archive that was made up may.
    if folder.resolve() != folder:
        raise ConfigError(f"the image's archive has {folder.relative_to(root)} below a link")


def inner_link(name: str, target: str) -> str:
    """Return a relative link for one that is meant within the image's own root."""
    folder = posixpath.dirname(name)
    if not target.startswith("/") and not posixpath.normpath(f"{folder}/{target}").startswith(".."):
        return target
    inside = posixpath.normpath(posixpath.join("/", folder, target))
    return posixpath.relpath(inside, f"/{folder}")


def _torch_versions(root: Path, python: str) -> Iterator[Path]:
    for base in ("usr/local/lib", "usr/lib"):
        for packages in ("dist-packages", "site-packages"):
            pattern = _TORCH.format(base=base, python=python, packages=packages)
            yield from sorted(root.glob(pattern))


def _find(client: docker.DockerClient, name: str) -> Image:
    with engine_errors(f"looking for {name}"):
        try:
            return client.images.get(name)
        except docker.errors.ImageNotFound as error:
            known = [tag for image in client.images.list() for tag in image.tags]
            close = difflib.get_close_matches(name, known, n=3, cutoff=0.4)
            raise ConfigError(
                f"the engine has no image {name}",
                fix=(f"did you mean {' or '.join(close)}? " if close else "")
                + f"`docker pull {name}` gets it, where a registry has it",
            ) from error


def _require_machine(image: Image, name: str, platform: Platform) -> None:
    wanted = OCI_NAMES[platform.machine][0]
    found = image.attrs.get("Architecture")
    if found != wanted:
        raise ConfigError(
            f"the image {name} is for {found}, and {platform.name} is {wanted}",
            fix=f"pull it with `docker pull --platform linux/{wanted} {name}`",
        )


@contextmanager
def _container(client: docker.DockerClient, image: Image) -> Iterator[Container]:
    """Yield a container of the image that is never started; it is gone afterwards."""
    # Of the command there is only the name: a container has to have one.
    container = client.containers.create(image, ["true"], network_disabled=True)
    try:
        yield container
    finally:
        container.remove(force=True, v=True)


class _Chunks(io.RawIOBase):
    """A file out of the chunks in which the engine sends it."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._rest = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: "memoryview | bytearray", /) -> int:  # type: ignore[override]
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = memoryview(chunk)
        taken = min(len(buffer), len(self._rest))
        buffer[:taken] = self._rest[:taken]
        self._rest = self._rest[taken:]
        return taken

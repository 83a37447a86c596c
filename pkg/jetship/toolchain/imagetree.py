"""The target's own libraries and headers out of a local container image, which is never run."""

import hashlib
import inspect
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import docker
from docker.models.containers import Container
from docker.models.images import Image

from jetship import console
from jetship.engine import connect, engine_errors, named_image
from jetship.errors import ConfigError, ImageError
from jetship.store import CHUNK_BYTES, Store
from jetship.targets.model import Platform
from jetship.toolchain import layout, rootfs

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
        image = named_image(client, name, platform.machine)
        digest = hashlib.sha256(str(image.id).encode())
        for module in (layout, rootfs, sys.modules[__name__]):
            digest.update(inspect.getsource(module).encode())

        def make(root: Path) -> None:
            console.step(f"exporting what is needed of {name} (once)")
            store.require_space(int(image.attrs.get("Size", 0)))
            with engine_errors(f"exporting {name}"), _container(client, image) as container:
                # docker's stubs say str; it is what the socket gives.
                chunks = cast("Iterator[bytes]", container.export(CHUNK_BYTES))
                try:
                    rootfs.unpack(chunks, root)
                except tarfile.TarError as error:
                    raise ImageError(
                        f"the engine's archive of {name} is damaged",
                        why=str(error),
                        fix="look at the engine's log (`journalctl -u docker`) and try again",
                    ) from error
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


def look_at_image(name: str, platform: Platform) -> None:
    """Make sure that an image can be exported.

    Raises:
        ConfigError, ToolMissingError, ImageError: as `export_image`.
    """
    with closing(connect()) as client:
        named_image(client, name, platform.machine)


def _torch_versions(root: Path, python: str) -> Iterator[Path]:
    for base in ("usr/local/lib", "usr/lib"):
        for packages in ("dist-packages", "site-packages"):
            pattern = _TORCH.format(base=base, python=python, packages=packages)
            yield from sorted(root.glob(pattern))


@contextmanager
def _container(client: docker.DockerClient, image: Image) -> Iterator[Container]:
    """Yield a container of the image that is never started; it is gone afterwards."""
    # Of the command there is only the name: a container has to have one.
    container = client.containers.create(image, ["true"], network_disabled=True)
    try:
        yield container
    finally:
        container.remove(force=True, v=True)

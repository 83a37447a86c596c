"""The base image of an open platform: Debian packages, torch, nothing installed by running it."""

import re
from pathlib import Path

import docker
import docker.errors
from docker.models.containers import Container

from jetship import console
from jetship.engine import (
    OCI_NAMES,
    architecture_of,
    engine_errors,
    named_image,
    require_architecture,
)
from jetship.errors import ConfigError
from jetship.image.archive import plan
from jetship.image.tree import Layer
from jetship.store import Store
from jetship.targets.model import Platform

DIGEST_DIGITS = 12


def packages_folder(platform: Platform) -> str:
    """Return the folder in which a Debian-like Python of the platform finds added packages."""
    return f"usr/local/lib/python{platform.python.version}/dist-packages"


def base_image(
    *,
    platform: Platform,
    content: Path,
    store: Store,
    client: docker.DockerClient,
    name: str = "base",
) -> str:
    """Return the tag of the platform's base image, giving it to the engine where it lacks it.

    Args:
        platform: names the image, and says for which machine and Python it is.
        content: the part's folder: `rootfs/`, the target's packages, and `site-packages/`, torch
            and what it needs, unpacked.
        store: has the scratch space for the archive.
        client: the engine.
        name: what the image is for.

    Raises:
        ImageError: the engine refuses the image or records another architecture for it.
    """
    layers = (
        Layer(content / "rootfs"),
        Layer(content / "site-packages", prefix=packages_folder(platform), plain_modes=True),
    )
    labels = {"org.opencontainers.image.title": f"jetship {name} of {platform.title}"}
    archive = plan(layers, platform.machine, labels)
    tag = f"jetship/{name}-{platform.name}:{archive.digest[:DIGEST_DIGITS]}"
    if architecture_of(client, tag) == OCI_NAMES[platform.machine][0]:
        console.note(f"the engine has {tag} already")
        return tag
    console.step(f"making the image {tag} ({sum(archive.sizes) / 1e6:.0f} MB)")
    with store.scratch() as scratch:
        path = scratch / "image.tar"
        with path.open("wb") as out:
            archive.write(out, tag)
        with path.open("rb") as stream, engine_errors(f"loading {tag}"):
            client.images.load(stream)
    fix = "update the engine (Docker 20.10.24 is known to work)"
    require_architecture(client, tag, platform.machine, fix=fix)
    return tag


def require_base(client: docker.DockerClient, base: str, platform: Platform) -> None:
    """Refuse a base image of the user's on which the platform's wheels cannot run.

    Raises:
        ConfigError: the engine lacks it, or it is for another machine, is of another L4T, or has
            no glibc or not the platform's Python.
        ImageError: the engine fails.
    """
    _require_l4t(base, platform)
    named_image(client, base, platform.machine)
    triplet, version = f"{platform.machine}-linux-gnu", platform.python.version
    wanted = {
        "glibc": [f"lib/{triplet}/libc.so.6", f"usr/lib/{triplet}/libc.so.6"],
        f"Python {version}": [f"usr/bin/python{version}", f"usr/local/bin/python{version}"],
    }
    with engine_errors(f"looking into {base}"):
        # It is never started; of the command there is only the name.
        container = client.containers.create(base, ["true"], network_disabled=True)
        try:
            lacking = [
                what
                for what, paths in wanted.items()
                if not any(_has(container, path) for path in paths)
            ]
        finally:
            container.remove(force=True, v=True)
    if lacking:
        raise ConfigError(
            f"the base image {base} has no {' and no '.join(lacking)}",
            fix=f"name an image of {platform.title} with --base",
        )
    if base not in platform.base_images:
        known = ", ".join(platform.base_images) or "none"
        console.warn(f"no image {base} is known for {platform.name}; known ones: {known}")


def _require_l4t(base: str, platform: Platform) -> None:
    """Refuse a tag such as r32.7.1 where the platform is of another L4T than 32."""
    found = re.search(r":(?:[^/]*[^0-9a-z/])?r(\d\d)\.\d[^/]*$", base)
    majors = sorted({release.partition(".")[0] for release in platform.l4t})
    if found and majors and f"r{found[1]}" not in majors:
        raise ConfigError(
            f"the base image {base} is of L4T r{found[1]}, and {platform.name} is "
            f"{' or '.join(majors)}",
            fix=f"known ones: {', '.join(platform.base_images) or 'none'}",
        )


def _has(container: Container, path: str) -> bool:
    try:
        stream, _ = container.get_archive(path)
    except docker.errors.NotFound:
        return False
    stream.close()  # type: ignore[attr-defined] # a generator of the socket's chunks
    return True

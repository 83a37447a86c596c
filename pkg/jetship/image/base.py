"""The base image of an open platform: Debian packages, torch, nothing installed by running it."""

from pathlib import Path

import docker

from jetship import console
from jetship.engine import OCI_NAMES, architecture_of, engine_errors, require_architecture
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
    rootfs: Path,
    site_packages: Path,
    store: Store,
    client: docker.DockerClient,
    name: str = "base",
) -> str:
    """Return the tag of the platform's base image, giving it to the engine where it lacks it.

    Args:
        platform: names the image, and says for which machine and Python it is.
        rootfs: the target's packages, unpacked.
        site_packages: torch and what it needs, unpacked.
        store: has the scratch space for the archive.
        client: the engine.
        name: what the image is for.

    Raises:
        ImageError: the engine refuses the image or records another architecture for it.
    """
    layers = (
        Layer(rootfs),
        Layer(site_packages, prefix=packages_folder(platform), plain_modes=True),
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

"""The images of a rollout: which one a target gets, by its id, and how a registry names it."""

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import docker
from docker.models.images import Image

from jetship import console
from jetship.engine import engine_errors
from jetship.errors import CheckError, ConfigError, ImageError, NothingSelectedError
from jetship.fleet.plan import PinnedImage, shortened
from jetship.image.index import ImageIndex
from jetship.pin import Pin
from jetship.store import sha256_of
from jetship.targets.imageplan import INDEX_FILE, ImagePlan
from jetship.targets.model import Target

TARGET_LABEL = "jetship.target"
PIN_LABEL = "jetship.pin"
WHEEL_LABEL = "jetship.wheel.sha256"
VERSION_LABEL = "org.opencontainers.image.version"
SHOWN_TAGS = 20
_DIGITS = re.compile(r"([0-9]+)")


def pin_image(
    client: docker.DockerClient, named: ImagePlan, target: Target, *, wanted: str, dist: Path
) -> PinnedImage:
    """Return the image that a target's devices get, by its id.

    Where the engine has several of a target, it is the one that is wanted, else the one of the
    index in `dist`, else the one that holds a wheel which lies there.

    Args:
        client: the engine.
        named: how images are called.
        target: what the image was built for.
        wanted: its tag, or the version of its wheel; "": any.
        dist: the folder of the finished wheels.

    Raises:
        NothingSelectedError: the engine has none.
        ConfigError: there are several, and nothing says which; the index is damaged.
        CheckError: it has no pin record, or one for another target.
        ImageError: the engine fails.
    """
    found = {str(image.id): image for image in _images_of(client, named, target)}
    chosen = [image for image in found.values() if not wanted or _is_wanted(image, wanted)]
    if not chosen:
        tags = _tags(found.values())
        make = f"invoke image --arch '{target.arch_list}' --platform {target.platform.name}"
        raise NothingSelectedError(
            f"the engine has no image {wanted or named.name} for {target.id}",
            why=f"for that target it has {tags}" if tags else "",
            fix=f"name one of these with --image, or make it: {make}" if tags else make,
        )
    if len(chosen) > 1:
        chosen = [_latest(chosen, target, dist)]
    return _pinned(chosen[0], target)


def _latest(found: Sequence[Image], target: Target, dist: Path) -> Image:
    """Return the one of several images that was made last, as far as `dist` knows.

    Raises:
        ConfigError: it does not know.
    """
    index = dist / INDEX_FILE
    rows = ImageIndex.read(index).images if index.is_file() else ()
    indexed = {row.id for row in rows if row.target == target.id}
    wheels = {sha256_of(wheel) for wheel in dist.glob("*.whl")}
    ours = [image for image in found if image.id in indexed] or [
        image for image in found if image.labels.get(WHEEL_LABEL) in wheels
    ]
    if len(ours) != 1:
        raise ConfigError(
            f"the engine has {len(found)} images for {target.id}: {_tags(found)}",
            why=f"{len(ours) or 'none'} of them hold a wheel of {dist}/",
            fix="say which with --image, by its tag or the version of its wheel",
        )
    return ours[0]


def _tags(found: Iterable[Image]) -> str:
    """Return the tags of some images, the highest version first."""
    tags = {tag for image in found for tag in image.tags}
    return shortened(sorted(tags, key=_by_numbers, reverse=True), SHOWN_TAGS)


def _by_numbers(tag: str) -> list[tuple[int, str]]:
    """Return what sorts 1.10 behind 1.9."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in _DIGITS.split(tag)]


def _images_of(client: docker.DockerClient, named: ImagePlan, target: Target) -> Iterator[Image]:
    for name in dict.fromkeys((named.name, named.repository)):
        with engine_errors(f"looking for images of {target.id}"):
            yield from client.images.list(
                name=name, filters={"label": f"{TARGET_LABEL}={target.id}"}
            )


def _is_wanted(image: Image, wanted: str) -> bool:
    version = image.labels.get(VERSION_LABEL, "")
    tags = {tag.rpartition(":")[2] for tag in image.tags}
    return wanted in {version, version.partition("+")[0], *tags, *image.tags}


def _pinned(image: Image, target: Target) -> PinnedImage:
    name = next(iter(image.tags), str(image.id))
    record = image.labels.get(PIN_LABEL)
    if record is None or WHEEL_LABEL not in image.labels:
        raise CheckError(
            f"{name} does not say which wheel it holds",
            why=f"it has no label {PIN_LABEL if record is None else WHEEL_LABEL}",
            fix="make it with `invoke image`",
        )
    pin = Pin.from_json(record.encode())
    if pin.target != target.id:
        raise CheckError(
            f"{name} is labelled for {target.id}, and its wheel is for {pin.target}",
            fix="make it with `invoke image`",
        )
    return PinnedImage(
        target=target.id,
        name=name,
        id=str(image.id),
        version=image.labels.get(VERSION_LABEL, ""),
        diff_ids=tuple(image.attrs["RootFS"]["Layers"]),
        size_bytes=int(image.attrs["Size"]),
    )


def pushed(client: docker.DockerClient, image: PinnedImage, named: ImagePlan) -> str:
    """Push an image, and return the name by which a device pulls these very bytes.

    Raises:
        ImageError: the engine or the registry refuses it.
    """
    tag = image.name.rpartition(":")[2]
    console.step(f"pushing {image.name} to {named.registry}")
    with engine_errors(f"pushing {image.name}"):
        client.images.get(image.id).tag(named.name, tag)
        answers: Sequence[Any] = list(client.api.push(named.name, tag, stream=True, decode=True))
    digests = [row["aux"]["Digest"] for row in answers if "Digest" in row.get("aux", {})]
    errors = [str(row["error"]) for row in answers if "error" in row]
    if errors or not digests:
        raise ImageError(
            f"{named.name}:{tag} could not be pushed",
            why="; ".join(errors) or "the registry told no digest",
            fix=f"`docker login {named.registry}`, and see that it may be pushed to",
        )
    return f"{named.name}@{digests[-1]}"

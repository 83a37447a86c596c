"""The last stages: a checked wheel becomes an image, and that image is tried out."""

from pathlib import Path
from typing import Any

import docker

from jetship import console, pipeline
from jetship.check.text import render
from jetship.engine import architecture_of, label_of
from jetship.errors import CheckError, ImageError, NothingSelectedError
from jetship.image.base import base_image, require_base
from jetship.image.build import build_image, image_tag
from jetship.image.runline import run_lines
from jetship.image.smoke import smoke
from jetship.image.stubs import emulation_stubs
from jetship.image.wheelfile import libraries, read_wheel
from jetship.store import Store, default_root, sha256_of
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import ImagePlan
from jetship.targets.model import Target
from jetship.toolchain.ownparts import OwnParts, OwnSupply
from jetship.toolchain.prepare import prepare, prepare_base


def assemble(
    catalog: Catalog,
    target: Target,
    wheel: Path,
    named: ImagePlan,
    *,
    client: docker.DockerClient,
    base: str,
    own: OwnSupply,
) -> dict[str, Any]:
    """Check a wheel and put it into an image; return what that is and how it is run.

    Args:
        catalog: the known boards.
        target: what the wheel is for.
        wheel: the wheel.
        named: what deploy.yaml says of the image.
        client: the Docker engine.
        base: an image that the engine has, in place of the platform's own base.
        own: the user's parts.

    Raises:
        CheckError: the wheel did not pass its check.
        ConfigError: there is no such base, or it is of another system.
        ImageError: the engine fails.
        DownloadError, ToolMissingError: a part cannot be had.
    """
    store = Store(default_root())
    own_parts = own.of(target)
    report = pipeline.check(wheel, target, store, own_parts)
    if report.outcome != "pass":
        console.text(render(report))
        raise CheckError(
            f"{wheel.name} is refused: its check for {target.id} says {report.outcome}",
            fix="see the findings above",
        )
    platform = target.platform
    if base:
        require_base(client, base, platform)
    else:
        content = prepare_base(platform, store)
        base = base_image(
            platform=platform,
            content=content,
            store=store,
            client=client,
        )
    made = build_image(
        wheel=wheel,
        target=target,
        base=base,
        repository=named.repository,
        report=report,
        client=client,
    )
    lines = run_lines(
        target=target,
        image=made.tag,
        catalog=catalog,
        command=named.smoke,
        stubs=_emulation_stubs(target, wheel, store, own_parts),
    )
    return {
        "target": target.id,
        "wheel": str(wheel),
        "image": made.tag,
        "id": made.id,
        "architecture": made.architecture,
        "run": [{"title": row.title, "line": row.line, "note": row.note} for row in lines],
    }


def _emulation_stubs(target: Target, wheel: Path, store: Store, own_parts: OwnParts) -> Path | None:
    """Return the stand-in libraries without which an emulated run cannot load the wheel."""
    if target.platform.kind != "emulation":
        return None
    return emulation_stubs(dict(libraries(wheel)), prepare(target, store, own_parts), store)


def try_out(
    target: Target,
    wheel: Path,
    named: ImagePlan,
    *,
    client: docker.DockerClient,
    own_parts: OwnParts,
) -> dict[str, Any]:
    """Return what the smoke command answers in the wheel's image, under emulation.

    Raises:
        NothingSelectedError: there is no such image.
        ImageError: it holds another wheel, or the command fails.
        DownloadError, ToolMissingError: the toolchain cannot be had.
    """
    store = Store(default_root())
    return smoke(
        target=target,
        image=_image_of(wheel, target, named, client),
        wheel=wheel,
        command=named.smoke,
        client=client,
        toolchain=prepare(target, store, own_parts),
        store=store,
    )


def _image_of(wheel: Path, target: Target, named: ImagePlan, client: docker.DockerClient) -> str:
    """Return the name of the wheel's image, which must have been made."""
    tag = image_tag(named.repository, read_wheel(wheel), target)
    if architecture_of(client, tag) is None:
        raise NothingSelectedError(
            f"the engine has no image {tag}",
            fix=f"invoke image --arch '{target.arch_list}' --platform {target.platform.name}",
        )
    if label_of(client, tag, "jetship.wheel.sha256") != sha256_of(wheel):
        raise ImageError(
            f"{tag} holds another wheel than {wheel}",
            why="the wheel was built or changed after the image was made",
            fix=f"invoke image --arch '{target.arch_list}' --platform {target.platform.name}",
        )
    return tag

"""The tasks `image`, `smoke` and `matrix`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import docker
from invoke.context import Context

from jetship import console, pipeline
from jetship.check.text import render
from jetship.engine import architecture_of, connect, label_of
from jetship.errors import CheckError, ConfigError, ImageError, NothingSelectedError
from jetship.image.base import base_image, require_base
from jetship.image.build import build_image, image_tag
from jetship.image.runline import run_lines
from jetship.image.smoke import smoke as run_smoke
from jetship.image.stubs import emulation_stubs
from jetship.image.wheelfile import libraries, read_wheel
from jetship.store import Store, default_root, sha256_of
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import matrix as github_matrix
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Target
from jetship.tasks.command import Reported, command
from jetship.tasks.request import (
    DEPLOY_FILE,
    DEPLOY_HELP,
    DIST_HELP,
    JSON_HELP,
    Asked,
    Given,
    Known,
    deployment_of,
    targets_of,
    targets_of_file,
    wheel_for,
)
from jetship.toolchain.own import OwnParts, OwnSupply
from jetship.toolchain.prepare import prepare, prepare_base

OPTIONS_HELP = {
    "wheel": "the wheel (default: the one in dist/ that was built for the target)",
    "deploy": DEPLOY_HELP,
    "dist": DIST_HELP,
    "fat": "take the wheel that has the device code of all archs, instead of a wheel each",
    "json": JSON_HELP,
}
BASE_HELP = "the base image, which the engine must have (default: the platform's own)"


@command(
    records={"asked": Asked, "given": Given, "known": Known},
    help={**OPTIONS_HELP, "base": BASE_HELP},
)
def image(
    _: Context,
    *,
    asked: Asked,
    given: Given,
    known: Known,
    wheel: str = "",
    deploy: str = str(DEPLOY_FILE),
    dist: str = "dist",
    base: str = "",
    json: bool = False,
) -> None:
    """Put a checked wheel into a container image for its board.

    On the platform's base image come only files and labels, so nothing is run under emulation.
    A wheel whose check is not all pass is refused. Prints the `docker run` line for each board
    of the arch, with the device nodes of its L4T.

        invoke image --arch 6.2
    """
    catalog = known.catalog(deploy)
    targets = targets_of(catalog, asked, deploy=deploy)
    own = given.supply(catalog, deploy)
    chosen = [
        (target, wheel_for(target, given=wheel, dist=dist, own=own.of(target)))
        for target in targets
    ]
    named = _image_plan(catalog, deploy)
    client = connect()
    settings: dict[str, Any] = {"client": client, "base": base, "own": own}
    rows = [_assemble(catalog, target, path, named, **settings) for target, path in chosen]
    if json:
        console.emit_json({"images": rows})
        return
    for row in rows:
        console.note(f"{row['image']} ({row['architecture']})")
        for line in row["run"]:
            console.note(f"{line['title']}:" + (f" {line['note']}" if line["note"] else ""))
            console.emit(line["line"])


def _assemble(
    catalog: Catalog,
    target: Target,
    wheel: Path,
    named: ImagePlan,
    *,
    client: docker.DockerClient,
    base: str,
    own: OwnSupply,
) -> dict[str, Any]:
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


def _image_plan(catalog: Catalog, deploy: str) -> ImagePlan:
    found = deployment_of(catalog, deploy)
    if found is None or found.image is None:
        lacks = "does not exist" if found is None else "has no `image`"
        raise ConfigError(
            f"{deploy} {lacks}, which says the image's name and smoke command",
            fix="add `image: {repository: my/ops, smoke: [python3, -c, pass]}` to it; jetship's "
            "own deploy.yaml is an example with comments",
        )
    return found.image


@command(records={"asked": Asked, "known": Known}, help=OPTIONS_HELP)
def smoke(
    _: Context,
    *,
    asked: Asked,
    known: Known,
    wheel: str = "",
    deploy: str = str(DEPLOY_FILE),
    dist: str = "dist",
    json: bool = False,
) -> None:
    """Run the image under emulation and compare its operators with their reference.

    Runs the `smoke` command of deploy.yaml in the image, on this machine, and prints the JSON
    that it answers. Exit status 0 only if it says that all agree.

        invoke image --arch 6.2 && invoke smoke --arch 6.2
    """
    catalog = known.catalog(deploy)
    store = Store(default_root())
    targets = targets_of(catalog, asked, deploy=deploy)
    named = _image_plan(catalog, deploy)
    client = connect()
    own = Given().supply(catalog, deploy)
    answers = {}
    for target in targets:
        path = wheel_for(target, given=wheel, dist=dist, own=own.of(target))
        answers[target.id] = run_smoke(
            target=target,
            image=_image_of(path, target, named, client),
            wheel=path,
            command=named.smoke,
            client=client,
            toolchain=prepare(target, store, own.of(target)),
            store=store,
        )
    console.emit_json(answers if json or len(answers) > 1 else next(iter(answers.values())))
    wrong = [name for name, answer in answers.items() if answer.get("ok") is not True]
    if wrong:
        raise Reported(
            ImageError(
                f"the smoke run of {', '.join(wrong)} does not say that all agrees",
                why="; ".join(_disagreements(answers[name]) for name in wrong),
                fix="see its JSON above: `ok` must be true",
            )
        )


def _disagreements(answer: Mapping[str, Any]) -> str:
    """Return the checks that a smoke run says are not ok, where it lists any."""
    checks = answer.get("checks")
    rows = [row for row in checks if isinstance(row, dict)] if isinstance(checks, list) else []
    bad = [row for row in rows if row.get("ok") is not True]
    return ", ".join(
        " ".join(str(row[key]) for key in ("op", "device", "dtype", "case") if key in row)
        for row in bad
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


@command(
    records={"known": Known},
    help={
        "format": "github: the JSON that `strategy.matrix: ${{ fromJSON(...) }}` takes",
        "deploy": DEPLOY_HELP,
    },
)
def matrix(
    _: Context,
    *,
    known: Known,
    format: str = "github",  # noqa: A002
    deploy: str = str(DEPLOY_FILE),
) -> None:
    """Print the targets of deploy.yaml as a CI matrix, one entry a target.

    invoke matrix --format github
    """
    if format != "github":
        raise ConfigError(f"matrix format {format!r} is not known", fix="--format github")
    catalog = known.catalog(deploy)
    targets = targets_of_file(catalog, deploy)
    console.emit(json.dumps(github_matrix(targets)))

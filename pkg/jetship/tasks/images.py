"""The tasks `image`, `smoke` and `matrix`."""

import json
from collections.abc import Mapping
from typing import Any

from invoke.context import Context

from jetship import console
from jetship.errors import ConfigError, ImageError
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import ImagePlan
from jetship.targets.deployment import matrix as github_matrix
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
    from jetship import assembly
    from jetship.engine import connect

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
    rows = [assembly.assemble(catalog, target, path, named, **settings) for target, path in chosen]
    if json:
        console.emit_json({"images": rows})
        return
    for row in rows:
        console.note(f"{row['image']} ({row['architecture']})")
        for line in row["run"]:
            console.note(f"{line['title']}:" + (f" {line['note']}" if line["note"] else ""))
            console.emit(line["line"])


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
    from jetship import assembly
    from jetship.engine import connect

    catalog = known.catalog(deploy)
    targets = targets_of(catalog, asked, deploy=deploy)
    named = _image_plan(catalog, deploy)
    client = connect()
    own = Given().supply(catalog, deploy)
    answers = {}
    for target in targets:
        parts = own.of(target)
        path = wheel_for(target, given=wheel, dist=dist, own=parts)
        answers[target.id] = assembly.try_out(target, path, named, client=client, own_parts=parts)
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

"""The tasks `image`, `smoke` and `matrix`."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from invoke.context import Context

from jetship import console
from jetship.errors import ConfigError, ImageError
from jetship.targets.deployment import matrix as github_matrix
from jetship.targets.imageplan import INDEX_FILE
from jetship.tasks.command import Reported, command
from jetship.tasks.request import (
    DEPLOY_FILE,
    DEPLOY_HELP,
    DIST_HELP,
    JSON_HELP,
    Asked,
    Given,
    Known,
    image_plan_of,
    targets_of,
    targets_of_file,
    wheel_for,
    wheels_for,
)

OPTIONS_HELP = {
    "wheel": "the wheel (default: the one in dist/ that was built for the target)",
    "deploy": DEPLOY_HELP,
    "dist": DIST_HELP,
    "fat": "take the wheel that has the device code of all archs, instead of a wheel each",
    "json": JSON_HELP,
}
BASE_HELP = "the base image, which the engine must have (default: the platform's own)"
IMAGE_HELP = {
    **OPTIONS_HELP,
    "base": BASE_HELP,
    "all": "every target of deploy.yaml, and an index of their images",
    "index": f"with --all: the index's file (default: {INDEX_FILE} in the folder of the wheels)",
    "compose": "write compose.yaml and the engine's settings for each board into this folder",
}


@command(records={"asked": Asked, "given": Given, "known": Known}, help=IMAGE_HELP)
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
    all: bool = False,  # noqa: A002
    index: str = "",
    compose: str = "",
    json: bool = False,
) -> None:
    """Put a checked wheel into a container image for its board.

    On the platform's base image come only files and labels, so nothing is run under emulation.
    A wheel whose check is not all pass is refused. Prints the `docker run` line for each board
    of the arch, with the device nodes of its L4T.

        invoke image --arch 6.2
        invoke image --all --compose out
    """
    from jetship.assembly import Maker
    from jetship.engine import connect
    from jetship.image.index import ImageIndex

    catalog = known.catalog(deploy)
    _refuse_contradictions(asked, all=all, index=index, wheel=wheel, base=base)
    targets = targets_of_file(catalog, deploy) if all else targets_of(catalog, asked, deploy=deploy)
    own = given.supply(catalog, deploy)
    chosen = wheels_for(targets, given=wheel, dist=dist, own=own)
    deployment, plan = image_plan_of(catalog, deploy)
    maker = Maker(catalog, plan, connect(), base, own)
    made = maker.make_all(chosen)
    rows = [maker.described(one) for one in made]
    if all:
        path = Path(index or Path(dist) / INDEX_FILE)
        ImageIndex.of(made, catalog).write(path)
        console.note(f"{path} says which image each target has")
    if compose:
        maker.write_compose(Path(compose), made, deployment.health)
    if json:
        console.emit_json({"images": rows})
        return
    for row in rows:
        console.note(f"{row['image']} ({row['architecture']})")
        for line in row["run"]:
            console.note(f"{line['title']}:" + (f" {line['note']}" if line["note"] else ""))
            console.emit(line["line"])


def _refuse_contradictions(asked: Asked, *, all: bool, index: str, wheel: str, base: str) -> None:  # noqa: A002
    """Refuse options that do not go together with --all, or only with it."""
    if index and not all:
        raise ConfigError("--index goes with --all", why="an index has every target of deploy.yaml")
    if all and (not asked.nothing or wheel or base):
        raise ConfigError(
            "--all takes targets, wheels and base images from deploy.yaml and the folder of wheels",
            fix="leave --all out, or the options that name a target, --wheel and --base",
        )


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
    named = image_plan_of(catalog, deploy)[1]
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

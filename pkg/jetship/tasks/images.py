"""The tasks `image`, `smoke` and `matrix`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
from invoke.context import Context

from jetship import console, pipeline
from jetship.check.findings import Report
from jetship.check.text import render
from jetship.engine import architecture_of, connect, label_of
from jetship.errors import CheckError, ConfigError, ImageError, NothingSelectedError
from jetship.image.base import base_image, require_base
from jetship.image.build import build_image, image_name
from jetship.image.compose import compose_files
from jetship.image.index import INDEX_FILE, ImageIndex, Made
from jetship.image.runline import boards_of, run_lines
from jetship.image.smoke import smoke as run_smoke
from jetship.image.stubs import emulation_stubs
from jetship.image.wheelfile import libraries, read_wheel
from jetship.store import Store, default_root, sha256_of, write_atomically
from jetship.targets.catalog import Catalog
from jetship.targets.deployment import matrix as github_matrix
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Target
from jetship.targets.strategy import Health
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
    catalog = known.catalog(deploy)
    _refuse_contradictions(asked, all=all, index=index, wheel=wheel, base=base)
    targets = targets_of_file(catalog, deploy) if all else targets_of(catalog, asked, deploy=deploy)
    own = given.supply(catalog, deploy)
    chosen = wheels_for(targets, given=wheel, dist=dist, own=own)
    deployment, plan = image_plan_of(catalog, deploy)
    maker = _Maker(catalog, plan, connect(), base, own, Store(default_root()))
    reports = maker.checked(chosen)
    made = [maker.make(target, path, reports[target.id]) for target, path in chosen]
    rows = [maker.described(one) for one in made]
    if all:
        path = Path(index or Path(dist) / INDEX_FILE)
        ImageIndex.of(made, catalog).write(path)
        console.note(f"{path} says which image each target has")
    if compose:
        _write_compose(Path(compose), made, catalog, plan, deployment.health)
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


@dataclass(frozen=True)
class _Maker:
    """Makes images of checked wheels, with one engine and one deploy.yaml."""

    catalog: Catalog
    plan: ImagePlan
    client: docker.DockerClient
    base: str
    own: OwnSupply
    store: Store

    def checked(self, chosen: Sequence[tuple[Target, Path]]) -> dict[str, Report]:
        """Return the report of each wheel by target, before any image is made.

        Raises:
            CheckError: some are not all pass; names all of these.
        """
        reports = {
            target.id: pipeline.check(wheel, target, self.store, self.own.of(target))
            for target, wheel in chosen
        }
        refused = []
        for target, wheel in chosen:
            report = reports[target.id]
            if report.outcome != "pass":
                console.text(render(report))
                refused.append(
                    f"{wheel.name} is refused: its check for {target.id} says {report.outcome}"
                )
        if refused:
            raise CheckError("; ".join(refused), fix="see the findings above")
        return reports

    def make(self, target: Target, wheel: Path, report: Report) -> Made:
        base = self.base or self.plan.base.get(target.platform.name, "")
        if base:
            require_base(self.client, base, target.platform)
        else:
            base = base_image(
                platform=target.platform,
                content=prepare_base(target.platform, self.store),
                store=self.store,
                client=self.client,
            )
        made = build_image(
            wheel=wheel,
            target=target,
            base=base,
            repository=self.plan.name,
            report=report,
            client=self.client,
            tag=self.plan.tag,
        )
        return Made(target, wheel, made)

    def described(self, one: Made) -> dict[str, Any]:
        """Return what the task prints of an image."""
        lines = run_lines(
            target=one.target,
            image=one.image.tag,
            catalog=self.catalog,
            plan=self.plan,
            command=self.plan.smoke,
            stubs=_emulation_stubs(one.target, one.wheel, self.store, self.own.of(one.target)),
        )
        return {
            "target": one.target.id,
            "wheel": str(one.wheel),
            "image": one.image.tag,
            "id": one.image.id,
            "architecture": one.image.architecture,
            "run": [{"title": row.title, "line": row.line, "note": row.note} for row in lines],
        }


def _write_compose(
    folder: Path, made: Sequence[Made], catalog: Catalog, plan: ImagePlan, health: Health
) -> None:
    for one in made:
        for board in boards_of(one.target, catalog):
            files = compose_files(
                target=one.target,
                board=board,
                image=one.image.tag,
                catalog=catalog,
                plan=plan,
                health=health,
            )
            own = folder / f"{board.name}-{one.target.platform.name}"
            own.mkdir(parents=True, exist_ok=True)
            for name, text in files.items():
                write_atomically(own / name, text.encode())
            console.note(f"{own}/ has {', '.join(sorted(files))} for a {board.title}")


def _emulation_stubs(target: Target, wheel: Path, store: Store, own_parts: OwnParts) -> Path | None:
    """Return the stand-in libraries without which an emulated run cannot load the wheel."""
    if target.platform.kind != "emulation":
        return None
    return emulation_stubs(dict(libraries(wheel)), prepare(target, store, own_parts), store)


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
    named = image_plan_of(catalog, deploy)[1]
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
    tag = image_name(named.name, read_wheel(wheel), target, named.tag)
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

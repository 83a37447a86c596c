"""The last stages: a checked wheel becomes an image, and that image is tried out."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import docker

from jetship import console, pipeline
from jetship.check.findings import Report
from jetship.check.text import render
from jetship.engine import architecture_of, label_of
from jetship.errors import CheckError, ImageError, NothingSelectedError
from jetship.image.base import base_image, require_base
from jetship.image.build import build_image, image_name
from jetship.image.compose import compose_files
from jetship.image.index import Made
from jetship.image.runline import boards_of, run_lines
from jetship.image.smoke import smoke
from jetship.image.stubs import emulation_stubs
from jetship.image.wheelfile import libraries, read_wheel
from jetship.store import Store, default_root, sha256_of, write_atomically
from jetship.targets.catalog import Catalog
from jetship.targets.imageplan import ImagePlan
from jetship.targets.model import Target
from jetship.targets.strategy import Health
from jetship.toolchain.ownparts import OwnParts, OwnSupply
from jetship.toolchain.prepare import prepare, prepare_base


@dataclass(frozen=True)
class Maker:
    """Makes images of wheels, with one engine and one deploy.yaml.

    Args:
        catalog: the known boards.
        plan: what deploy.yaml says of images.
        client: the Docker engine.
        base: an image that the engine has, in place of the platforms' own bases; or "".
        own: the user's parts.
    """

    catalog: Catalog
    plan: ImagePlan
    client: docker.DockerClient
    base: str
    own: OwnSupply
    store: Store = field(default_factory=lambda: Store(default_root()))

    def make_all(self, chosen: Sequence[tuple[Target, Path]]) -> list[Made]:
        """Check each target's wheel, and when all have passed, make an image of each.

        Raises:
            CheckError: some wheels did not pass their check; names all of these.
            ConfigError: there is no such base, or it is of another system.
            ImageError: the engine fails.
            DownloadError, ToolMissingError: a part cannot be had.
        """
        reports = self._checked(chosen)
        return [self._make(target, wheel, reports[target.id]) for target, wheel in chosen]

    def _checked(self, chosen: Sequence[tuple[Target, Path]]) -> dict[str, Report]:
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

    def _make(self, target: Target, wheel: Path, report: Report) -> Made:
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
        """Return what an image is and how it is run on each board, as JSON has it."""
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

    def write_compose(self, folder: Path, made: Sequence[Made], health: Health) -> None:
        """Write compose.yaml and the engine's settings, a folder for each board of each target."""
        for one in made:
            for board in boards_of(one.target, self.catalog):
                files = compose_files(
                    target=one.target,
                    board=board,
                    image=one.image.tag,
                    catalog=self.catalog,
                    plan=self.plan,
                    health=health,
                )
                own = folder / f"{board.name}-{one.target.platform.name}"
                for name, text in files.items():
                    write_atomically(own / name, text.encode())
                console.note(f"{own}/ has {', '.join(sorted(files))} for a {board.title}")


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

"""The index of images: one JSON file that says which image each target of deploy.yaml has."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from jetship import yamlfile
from jetship.errors import NothingSelectedError
from jetship.image.build import ImageResult
from jetship.image.runline import boards_of
from jetship.image.wheelfile import read_wheel
from jetship.store import write_atomically
from jetship.targets.catalog import Catalog, runs_on
from jetship.targets.model import Target
from jetship.yamlfile import Strict


@dataclass(frozen=True)
class Made:
    """An image, and the wheel and target that it was made of."""

    target: Target
    wheel: Path
    image: ImageResult


class IndexRow(Strict):
    """What is known of one target's image."""

    target: str
    platform: str
    machine: str
    archs: tuple[str, ...]
    l4t: tuple[str, ...]
    """The releases that it is for; none: no Jetson runs it."""
    boards: tuple[str, ...]
    """The boards that may run it."""
    image: str
    """Its name and tag."""
    id: str
    digest: str | None
    """The registry's, or null where the engine knows of none."""
    architecture: str
    version: str
    """The wheel's."""
    wheel: str
    wheel_sha256: str

    @property
    def reference(self) -> str:
        """By what the image is pulled: its digest, else its tag."""
        name = self.image.rpartition(":")[0]
        return f"{name}@{self.digest}" if self.digest else self.image


class ImageIndex(Strict):
    """The images of all targets of a deploy.yaml, which were made together."""

    schema_version: Literal[1] = 1
    images: tuple[IndexRow, ...]

    @classmethod
    def of(cls, images: Sequence[Made], catalog: Catalog) -> Self:
        """Return the index of images that were just made.

        Raises:
            CheckError, ImageError: a wheel cannot be read any more.
        """
        return cls(images=tuple(_row(one, catalog) for one in images))

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read an index.

        Raises:
            NothingSelectedError: there is none.
            ConfigError: the file is no index; says where.
        """
        if not path.is_file():
            raise NothingSelectedError(
                f"there is no index of images {path}", fix="invoke image --all writes it"
            )
        return yamlfile.load(path, cls)

    def write(self, path: Path) -> None:
        """Write it as JSON; the file is whole or stays as it was."""
        write_atomically(path, f"{self.model_dump_json(indent=2)}\n".encode())

    def require(self, target: Target) -> IndexRow:
        """Return the image of a target.

        Raises:
            NothingSelectedError: the index has none.
        """
        for row in self.images:
            if row.target == target.id:
                return row
        raise NothingSelectedError(
            f"the index of images has none for {target.id}",
            why="deploy.yaml names other targets than when it was written",
            fix="invoke image --all",
        )


def _row(made: Made, catalog: Catalog) -> IndexRow:
    facts, platform = read_wheel(made.wheel), made.target.platform
    return IndexRow(
        target=made.target.id,
        platform=platform.name,
        machine=platform.machine,
        archs=tuple(str(code) for code in made.target.code),
        l4t=platform.l4t,
        boards=tuple(
            board.name for board in boards_of(made.target, catalog) if runs_on(platform, board)
        ),
        image=made.image.tag,
        id=made.image.id,
        digest=made.image.digest or None,
        architecture=made.image.architecture,
        version=facts.version,
        wheel=facts.file,
        wheel_sha256=facts.sha256,
    )

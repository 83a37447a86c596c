"""The index of images: one JSON file that says which image each target of deploy.yaml has."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jetship.errors import ConfigError
from jetship.image.build import ImageResult
from jetship.image.runline import boards_of
from jetship.image.wheelfile import read_wheel
from jetship.store import write_atomically
from jetship.targets.catalog import Catalog, runs_on
from jetship.targets.model import Target

INDEX_FILE = "images.json"
SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Indexed:
    """An image, and the wheel and target that it was made of."""

    target: Target
    wheel: Path
    image: ImageResult

    def to_json(self, catalog: Catalog) -> dict[str, Any]:
        """Return the row of the index.

        `l4t` are the releases that the image is for (none: no Jetson), `boards` those that may
        run it, and `digest` is the registry's, or null where the engine knows of none.
        """
        facts, platform = read_wheel(self.wheel), self.target.platform
        boards = [one.name for one in boards_of(self.target, catalog) if runs_on(platform, one)]
        return {
            "target": self.target.id,
            "platform": platform.name,
            "machine": platform.machine,
            "archs": [str(code) for code in self.target.code],
            "l4t": list(platform.l4t),
            "boards": boards,
            "image": self.image.tag,
            "id": self.image.id,
            "digest": self.image.digest or None,
            "architecture": self.image.architecture,
            "version": facts.version,
            "wheel": facts.file,
            "wheel_sha256": facts.sha256,
        }


def write_index(path: Path, rows: Sequence[Indexed], catalog: Catalog) -> None:
    """Write the index of all images that were made together; the file is whole or stays as it was.

    Raises:
        CheckError, ImageError: a wheel cannot be read any more.
    """
    document = {
        "schema_version": SCHEMA_VERSION,
        "images": [row.to_json(catalog) for row in rows],
    }
    write_atomically(path, f"{json.dumps(document, indent=2)}\n".encode())


def indexed_image(path: Path, target: Target) -> str:
    """Return the id of a target's image in an index, or "" where there is no index or row.

    Raises:
        ConfigError: the file is no index.
    """
    try:
        rows = json.loads(path.read_bytes())["images"]
        return next((str(row["id"]) for row in rows if row["target"] == target.id), "")
    except FileNotFoundError:
        return ""
    except (ValueError, LookupError, TypeError) as error:
        raise ConfigError(
            f"{path} is no index of images",
            why=str(error),
            fix="`invoke image --all` writes it anew",
        ) from error

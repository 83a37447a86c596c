"""Whether what is installed in an image was proved to load and run on its target."""

import hashlib
import shlex
from collections.abc import Iterator
from pathlib import Path

from jetship import check, console
from jetship.check import text
from jetship.check.inputs import inputs_of
from jetship.check.matrix import Matrix
from jetship.errors import CheckError
from jetship.fleet.plan import PinnedImage
from jetship.store import Store, write_atomically
from jetship.survey import Asked, Survey
from jetship.targets.catalog import Catalog
from jetship.targets.model import Target
from jetship.toolchain.ownparts import OwnSupply

_REPORT = "report.txt"


def require_proved(
    image: PinnedImage, target: Target, catalog: Catalog, store: Store, own: OwnSupply
) -> None:
    """Make sure that what is installed in an image passed its check, which is done once an image.

    The image's own libraries are asked, so the evidence is exact.

    Raises:
        CheckError: something in it did not pass, or cannot be told.
        JetshipError: what the check says that it needs.
    """

    def make(folder: Path) -> None:
        console.step(f"checking what is installed in {image.name} (once)")
        survey = Survey(catalog, store, own)
        matrix = survey.run(
            inputs_of([image.id], catalog, store), lambda _: Asked("named", (target,))
        )
        if matrix.rejected:
            raise _refused(image, target, matrix)
        write_atomically(folder / _REPORT, "".join(_lines(matrix)).encode())

    store.tree("image-check", _digest(image, target), make)


def _digest(image: PinnedImage, target: Target) -> str:
    """Name all that decides the answer of a check: image, target, facts and rules."""
    digest = hashlib.sha256("\n".join((image.id, target.id)).encode())
    digest.update(target.platform.model_dump_json().encode())
    for module in sorted(Path(str(check.__file__)).parent.glob("*.py")):
        digest.update(module.read_bytes())
    return digest.hexdigest()


def _refused(image: PinnedImage, target: Target, matrix: Matrix) -> CheckError:
    for number in matrix.rejected:
        for _, report in matrix.of(number):
            console.text(text.render(report))
    errors = [one.error.what for one in matrix.subjects if one.error is not None]
    return CheckError(
        f"{image.name} is refused: what is installed in it did not pass its check for {target.id}",
        why="; ".join(errors),
        fix="see the findings above; "
        f"`invoke check {shlex.quote(image.name)} --target {target.id}` shows all",
    )


def _lines(matrix: Matrix) -> Iterator[str]:
    for number in range(len(matrix.subjects)):
        for _, report in matrix.of(number):
            yield f"{report.wheel} {report.target} {report.outcome} {report.sha256}\n"

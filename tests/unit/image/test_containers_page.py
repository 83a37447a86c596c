"""docs/containers.md shows what is printed and written."""

import re
import shlex
from pathlib import Path

import pytest
import yaml
from jetship.image.compose import COMPOSE, COMPOSE_CDI, DAEMON, compose_files
from jetship.image.container import container_for
from jetship.image.runline import board_line
from jetship.targets.catalog import Catalog
from jetship.targets.imageplan import ImagePlan
from jetship.targets.resolve import resolve
from jetship.targets.strategy import Health

CATALOG = Catalog.load()
PAGE = (Path(__file__).parents[3] / "docs/containers.md").read_text()
PLAN = ImagePlan.model_validate(
    yaml.safe_load(re.search(r"```yaml\n(.*?)```", PAGE, re.DOTALL)[1])["image"]
)


@pytest.mark.parametrize(("board", "jetpack"), [("tx2", "4.6"), ("xavier", "5.1"), ("orin", "6.2")])
def test_the_page_shows_the_line_and_the_files_of_each_family(board, jetpack):
    (target,) = resolve(CATALOG, board=board, jetpack=jetpack)
    image = f"acme/ops:1.0-{target.id}"
    found = CATALOG.board(board)
    line = board_line(target, found, image, CATALOG, plan=PLAN, command=PLAN.smoke).line
    assert f"```console\n$ {line}\n```" in PAGE
    files = compose_files(
        target=target, board=found, image=image, catalog=CATALOG, plan=PLAN, health=Health()
    )
    assert f"```json\n{files[DAEMON]}```" in PAGE
    cdi = container_for(target.platform, found, CATALOG, PLAN, cdi=True)
    words = ["docker", "run", "--rm", *cdi.words(), image, *PLAN.smoke]
    assert f"```console\n$ {shlex.join(words)}\n```" in PAGE
    for name in {COMPOSE, COMPOSE_CDI} & set(files):
        assert f"`{name}`:\n\n```yaml\n{files[name]}```" in PAGE

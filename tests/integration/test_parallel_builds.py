"""How many compilers of a real project run at once, and that its wheel does not depend on it."""

import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pytest
from jetship.build import environment, isolated
from jetship.build.isolated import Limits
from jetship.build.project import open_project
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve
from jetship.toolchain.layout import write_program
from product import PROJECTS

MANY = PROJECTS / "many"

# Stands where the compiler cache stands, before each compiler. Lets none end until two have begun.
NOTING = """\
#!{python}
import fcntl, os, subprocess, sys, time
from pathlib import Path

events = Path(r"{events}")

def note(word):
    with events.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        stream.write(word + "\\n")

if "-c" not in sys.argv:
    os.execv(sys.argv[1], sys.argv[1:])
note("begin")
end = time.monotonic() + 60
while events.read_text().count("begin") < {wait_for} and time.monotonic() < end:
    time.sleep(0.05)
status = subprocess.run(sys.argv[1:]).returncode
note("end")
sys.exit(status)
"""


@dataclass(frozen=True)
class Built:
    """A wheel, and when compilers began and ended."""

    wheel: Path
    events: list[str]

    @property
    def most_at_once(self) -> int:
        running, counts = 0, []
        for event in self.events:
            running += 1 if event == "begin" else -1
            counts.append(running)
        return max(counts)

    @property
    def members(self) -> list[tuple[str, bytes]]:
        with zipfile.ZipFile(self.wheel) as archive:
            return [(name, archive.read(name)) for name in archive.namelist()]


@pytest.fixture
def build(toolchain, tmp_path):
    """Build the project, without a compiler cache."""

    def build(jobs: int) -> Built:
        folder = tmp_path / f"{jobs}-jobs"
        sources = folder / "sources"
        folder.mkdir()
        open_project(MANY).copy_sources(sources)
        events, noting = folder / "events", folder / "noting"
        wait_for = min(jobs, 2)
        text = NOTING.format(python=sys.executable, events=events, wait_for=wait_for)
        write_program(noting, text)
        cross = environment.create(
            toolchain, resolve(Catalog.load(), arch="6.2")[0], folder / "cross", jobs=jobs,
            extra={"JETSHIP_CCACHE": str(noting)},
        )  # fmt: skip
        wheel = isolated.build_wheel(
            sources, cross, folder / "wheel", folder / "log", store=Store(default_root()),
            limits=Limits(toolchain.platform),
        )  # fmt: skip
        return Built(wheel, events.read_text().splitlines())

    return build


def test_extensions_of_one_file_are_compiled_at_once_into_the_same_wheel(build):
    alone = build(jobs=1)
    assert (alone.most_at_once, len(alone.events)) == (1, 10)
    together = build(jobs=3)
    assert len(together.events) == 10
    assert 2 <= together.most_at_once <= 3
    assert [name for name, _ in together.members] == [name for name, _ in alone.members]
    assert sum(name.endswith(".so") for name, _ in together.members) == 5
    assert together.members == alone.members

import sys
from pathlib import Path

import pytest
from jetship.check.api import check_wheel
from jetship.check.findings import Finding, Report
from jetship.check.libraries import Library, TargetLibraries
from jetship.elf import read_elf
from jetship.targets.catalog import Catalog
from jetship.targets.model import Target
from jetship.targets.resolve import resolve

sys.path.insert(0, str(Path(__file__).parents[2] / "data/check"))
import make_corpus
from wheelspec import EXT, WheelSpec


@pytest.fixture(scope="session")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    make_corpus.make(folder)
    return folder


@pytest.fixture(scope="session")
def member(corpus):
    return lambda name: (corpus / "members" / name).read_bytes()


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return Catalog.load()


@pytest.fixture(scope="session")
def target(catalog) -> Target:
    return resolve(catalog, arch="6.2", platform="debian-12")[0]


@pytest.fixture(scope="session")
def libraries(corpus) -> TargetLibraries:
    made = [read_elf(corpus / "target" / source.file) for source in make_corpus.TARGET]
    return TargetLibraries(
        libraries={elf.soname: Library(elf.soname, elf) for elf in made},
        stubs=frozenset({"libc10_cuda.so", "libtorch_cuda.so"}),
        interpreter="libpython3.11.so.1.0",
        demangler=Path("c++filt"),
    )


@pytest.fixture
def check(tmp_path, target, libraries, member):
    """Check a wheel that holds one file of the corpus, or any WheelSpec."""

    def run(source, *, target=target, libraries=libraries, file=f"pkg/_C{EXT}", **bent) -> Report:
        if not isinstance(source, WheelSpec):
            source = WheelSpec(
                {file: source if isinstance(source, bytes) else member(source)}, **bent
            )
        return check_wheel(source.write(tmp_path), target, libraries)

    return run


@pytest.fixture
def of():
    """Return the findings of one rule."""

    def pick(report: Report, rule: str) -> list[Finding]:
        return [finding for finding in report.findings if finding.rule == rule]

    return pick

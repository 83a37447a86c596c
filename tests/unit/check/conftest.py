import base64
import hashlib
import sys
import zipfile
from dataclasses import dataclass, field
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

TAG = "cp311-cp311-linux_aarch64"
EXT = ".cpython-311-aarch64-linux-gnu.so"


@dataclass(frozen=True)
class WheelSpec:
    """A wheel to write; each field can be bent to make one rule fail."""

    members: dict[str, bytes] = field(default_factory=dict)
    name: str = "pkg"
    version: str = "1.0"
    tag: str = TAG
    metadata_version: str = "1.0"
    wheel_tag: str | None = None
    headers: tuple[str, ...] = ("Requires-Dist: torch==2.7.1",)
    extra: dict[str, bytes] = field(default_factory=dict)  # into .dist-info
    edited: dict[str, bytes] = field(default_factory=dict)  # written instead, after RECORD
    unrecorded: dict[str, bytes] = field(default_factory=dict)

    def write(self, folder: Path) -> Path:
        info = f"{self.name}-{self.version}.dist-info"
        metadata = ["Metadata-Version: 2.1", f"Name: {self.name}"]
        metadata += [f"Version: {self.metadata_version}", *self.headers]
        tag = self.wheel_tag or self.tag
        files = dict(self.members)
        files[f"{info}/METADATA"] = ("\n".join(metadata) + "\n").encode()
        files[f"{info}/WHEEL"] = f"Wheel-Version: 1.0\nTag: {tag}\n".encode()
        files |= {f"{info}/{name}": data for name, data in self.extra.items()}
        record = "".join(_row(name, data) for name, data in files.items())
        files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
        path = folder / f"{self.name}-{self.version}-{self.tag}.whl"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for name, data in (files | self.edited | self.unrecorded).items():
                archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)
        return path


def _row(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
    return f"{name},sha256={digest},{len(data)}\n"


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

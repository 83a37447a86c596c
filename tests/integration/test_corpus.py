"""One wheel for each kind of fault, made by real compilers: what the check finds in each."""

import sys
import zipfile
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jetship.build.wheelfile import Wheel
from jetship.check.api import check_wheel
from jetship.check.findings import Finding, Report
from jetship.check.libraries import TargetLibraries
from jetship.errors import CheckError
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve

CORPUS = Path(__file__).parents[1] / "data/corpus"
sys.path.insert(0, str(CORPUS))
from faulty_wheels import FAULTS, make  # noqa: E402

DATA = yaml.safe_load((CORPUS / "expected.yaml").read_text())
EXPECTED, WAITING = DATA["wheels"], DATA["waiting"]


@pytest.fixture(scope="module")
def wheels(toolchain, tmp_path_factory) -> dict[str, Path]:
    return make(toolchain, tmp_path_factory.mktemp("corpus") / "wheels")


@pytest.fixture(scope="module")
def libraries(toolchain) -> TargetLibraries:
    return TargetLibraries.of(toolchain)


@pytest.fixture(scope="module")
def reports(wheels, libraries) -> dict[str, Report]:
    target = resolve(Catalog.load(), arch="6.2", platform="debian-12")[0]
    return {name: check_wheel(path, target, libraries) for name, path in wheels.items()}


@pytest.fixture(scope="module", autouse=True)
def table(reports):
    """Print the table of all wheels; pytest shows it with -s."""
    print()
    for name in EXPECTED:
        found = notable(reports[name]) or ["nothing, as it should be"]
        print(f"{name:<24} {reports[name].outcome:<8}", end="")
        print(
            ("\n" + " " * 34).join(
                f"{row.rule}: {kind(row)}: {row.reason}" if isinstance(row, Finding) else row
                for row in found
            )
        )


def notable(report: Report) -> list[Finding]:
    return [finding for finding in report.findings if finding.outcome != "pass"]


def kind(finding: Finding) -> str:
    return "noted" if finding.outcome == "unknown" and finding.accepted else finding.outcome


def test_every_wheel_has_an_expectation():
    assert EXPECTED.keys() | WAITING.keys() == FAULTS.keys()
    assert len(FAULTS) >= 25


@pytest.mark.parametrize("name", EXPECTED)
def test_exactly_the_faults_are_found(reports, name):
    found = notable(reports[name])
    rows = {(finding.rule, kind(finding)) for finding in found}
    assert rows == {(row["rule"], row["outcome"]) for row in EXPECTED[name]}
    for row in EXPECTED[name]:
        texts = [
            "\n".join((finding.reason, *finding.evidence))
            for finding in found
            if finding.rule == row["rule"]
        ]
        assert any(row["says"] in text for text in texts), texts


def test_a_finding_that_stops_a_wheel_says_what_to_do(reports):
    for report in reports.values():
        for finding in notable(report):
            assert finding.fix or finding.accepted, finding
            assert not finding.reason.endswith("."), finding


class Damage:
    """A wheel in memory, and what the check says of it after it was damaged."""

    def __init__(self, path: Path, folder: Path, libraries: TargetLibraries) -> None:
        self.data, self.name = path.read_bytes(), path.name
        self.wheel = Wheel.read(path)
        (self.library, *_) = sorted(name for name in self.wheel.members if ".so" in name)
        self.folder, self.libraries = folder, libraries
        self.target = resolve(Catalog.load(), arch="6.2", platform="debian-12")[0]

    def outside(self, data: bytes) -> str:
        """Return the outcome for other bytes of the archive; "refused" where it is no wheel."""
        path = self.folder / self.name
        path.write_bytes(data)
        outcome = self._outcome(path)
        if outcome == "pass":
            assert self._content(path) == self._members()
        return outcome

    def inside(self, data: bytes) -> str:
        """Return the outcome for other bytes of the library, of which RECORD has the digest."""
        return self._outcome(self.wheel.with_member(self.library, data).write(self.folder))

    def _outcome(self, path: Path) -> str:
        try:
            return check_wheel(path, self.target, self.libraries).outcome
        except CheckError:
            return "refused"

    def _members(self) -> dict[str, bytes]:
        return {name: member.data for name, member in self.wheel.members.items()}

    @staticmethod
    def _content(path: Path) -> dict[str, bytes]:
        with zipfile.ZipFile(path) as archive:
            names = [name for name in archive.namelist() if not name.endswith("/RECORD")]
            return {name: archive.read(name) for name in names}


FAULTY = ("other-arch", "missing-symbol", "wrong-machine", "other-cxx-abi", "vendored-torch")
FLIPS = st.lists(
    st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 7)), min_size=1, max_size=3
)
# How long an example takes says more about the machine than about the code.
EXAMPLES = settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


@pytest.fixture(params=["good", "vendored-libstdc++", *FAULTY])
def damage(request, wheels, libraries, tmp_path) -> Damage:
    return Damage(wheels[request.param], tmp_path, libraries)


def flipped(data: bytes, flips: list[tuple[float, int]], end: float = 1) -> bytes:
    changed = bytearray(data)
    for share, bit in flips:
        changed[int(share * end * len(data))] ^= 1 << bit
    return bytes(changed)


@given(share=st.floats(0, 1, exclude_max=True))
@EXAMPLES
def test_a_wheel_that_is_cut_off_is_refused(damage, share):
    assert damage.outside(damage.data[: int(share * len(damage.data))]) == "refused"


@given(flips=FLIPS)
@EXAMPLES
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_flipped_bits_of_a_wheel_are_seen(damage, flips, request):
    outcome = damage.outside(flipped(damage.data, flips))
    if not request.node.callspec.params["damage"].startswith(("good", "vendored-libstdc++")):
        assert outcome in ("fail", "refused")


@given(share=st.floats(0, 1, exclude_max=True))
@EXAMPLES
def test_a_library_that_is_cut_off_fails_although_record_is_right(damage, share):
    data = damage.wheel.members[damage.library].data
    assert damage.inside(data[: int(share * len(data))]) == "fail"


# The tables of the loader lie at both ends of a file, and most of the rest is code.
@given(flips=FLIPS, end=st.sampled_from([0.01, 0.1, 1.0]))
@EXAMPLES
def test_flipped_bits_of_a_library_mend_no_wheel(damage, flips, end, request):
    data = damage.wheel.members[damage.library].data
    outcome = damage.inside(flipped(data, flips, end))
    assert outcome in ("pass", "unknown", "fail")
    if request.node.callspec.params["damage"] in FAULTY:
        assert outcome != "pass"

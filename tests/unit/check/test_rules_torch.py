"""The rule about the code of the target's own torch."""

import dataclasses

import pytest
from jetship.check.facts import Facts
from jetship.check.findings import Report
from jetship.check.libraries import Library, TargetLibraries
from jetship.check.matrix import Column, Matrix, Subject
from jetship.check.rules_torch import torch_code
from jetship.check.text import platform_rows
from jetship.check.wheel import Member
from jetship.elf import ElfFile
from jetship.targets.resolve import resolve_id


@dataclasses.dataclass(frozen=True)
class _Wheel:
    needed: tuple[str, ...]
    file: str = "pkg.whl"

    @property
    def readable(self):
        elf = ElfFile.tabled("aarch64", soname="", needed=self.needed, version_definitions=(),
                             exports={})  # fmt: skip
        yield Member("pkg/_C.so", elf), elf


@pytest.fixture
def find(catalog):
    """Return the rule's answers about a wheel with a library that needs these."""

    def run(target, *needed, grade="derived"):
        elf = ElfFile.tabled("aarch64", soname="libtorch_cpu.so", needed=(),
                             version_definitions=(), exports={})  # fmt: skip
        torch = Library("libtorch_cpu.so", elf, grade)
        libraries = TargetLibraries({"libtorch_cpu.so": torch})
        return [*torch_code(Facts(_Wheel(needed), resolve_id(catalog, target), libraries))]

    return run


def test_pypis_torch_has_no_code_for_orin_which_is_noted(find, catalog):
    (finding,) = find("8.7/jetpack-7.2", "libc10.so")
    assert (finding.outcome, finding.blocks) == ("unknown", False)
    assert "torch 2.11.0 of jetpack-7.2 has no code for 8.7" in finding.reason
    assert finding.evidence == ("torch 2.11.0: 8.0, 9.0, 10.0, 11.0, 12.0",)
    report = Report("pkg.whl", "", "sm87-jetpack-7.2", (finding,))
    column = Column(resolve_id(catalog, "8.7/jetpack-7.2"), ("orin",))
    subject = Subject("pkg.whl", "pkg.whl", "wheel", "platforms")
    ((outcome, _, _, said),) = platform_rows(Matrix((subject,), (column,), {(0, 0): report}), 0)
    assert (outcome, said) == ("pass", finding.reason)


def test_one_of_two_gpus_is_named(find):
    (finding,) = find("8.7,11.0/jetpack-7.2", "libtorch_cuda.so")
    assert "no code for 8.7:" in finding.reason


def test_it_has_code_for_thor(find):
    for platform in ("jetpack-7.0", "jetpack-7.2"):
        (finding,) = find(f"11.0/{platform}", "libtorch.so")
        assert (finding.outcome, finding.grade) == ("pass", "derived")


def test_nothing_is_said_of_a_torch_that_nobody_looked_into(find):
    assert not find("8.7/jetpack-7.2", "libc10.so", grade="exact")
    assert not find("8.7/jetpack-6.2", "libc10.so")


def test_a_wheel_that_needs_no_torch_does_not_care(find):
    assert not find("8.7/jetpack-7.2", "libc.so.6")

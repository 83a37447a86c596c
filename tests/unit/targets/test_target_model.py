import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.errors import ConfigError
from jetship.targets.arch import Arch, DeviceCode
from jetship.targets.model import Target, parse_target_id
from packaging.markers import Marker
from packaging.version import Version
from pydantic import ValidationError

ARCHS = st.builds(Arch, st.integers(1, 99), st.integers(0, 9))
CODE = st.builds(DeviceCode, ARCHS, st.booleans())
KNOWN = [Arch.parse(text) for text in ("5.3", "6.2", "7.2", "8.7", "11.0")]
NAMES = ["debian-12", "jetpack-6.2", "l4t-r32.7", "sm62-like", "x"]


@given(ARCHS)
def test_an_arch_is_read_back_in_both_spellings(arch):
    assert Arch.parse(str(arch)) == arch
    assert Arch.parse(f"sm_{arch.number}") == arch


@given(ARCHS, ARCHS)
def test_archs_are_ordered_as_numbers(one, other):
    assert (one < other) == ((one.major, one.minor) < (other.major, other.minor))
    assert max(Arch(9, 0), Arch(11, 0), Arch(8, 7)) == Arch(11, 0)


@pytest.mark.parametrize(
    "text", ["", "6", "62", "6.", ".2", "6.22", "sm62", "sm_6", "sm_6.2", "compute_62", "6,2",
             " 6.2", "6.2\n", "-6.2", "6.2+PTX", "100.0", "\u0666.\u0662", "\u0416.2"]
)  # fmt: skip
def test_what_is_not_an_arch_is_refused(text):
    with pytest.raises(ValueError, match="is not a compute capability such as"):
        Arch.parse(text)


@given(CODE)
def test_device_code_is_read_back(code):
    assert DeviceCode.parse(str(code)) == code


@pytest.mark.parametrize("text", ["6.2+ptx", "6.2PTX", "6.2+PTX+PTX", "+PTX", "6.2+SASS"])
def test_what_is_not_device_code_is_refused(text):
    with pytest.raises(ValueError, match="is not a compute capability"):
        DeviceCode.parse(text)


def test_a_target_id_is_read_back_over_all_archs_with_and_without_ptx(debian_12):
    singles = [DeviceCode(arch, ptx) for arch, ptx in itertools.product(KNOWN, (False, True))]
    chosen = [code for size in (1, 2, 3) for code in itertools.permutations(singles, size)]
    ids = set()
    for code, name in itertools.product(chosen, NAMES):
        target = Target(code, debian_12.model_copy(update={"name": name}))
        assert parse_target_id(str(target)) == (code, name)
        ids.add(target.id)
    assert len(ids) == len(chosen) * len(NAMES)


@given(st.lists(CODE, max_size=4), st.sampled_from(NAMES))
def test_any_target_id_is_read_back(debian_12, code, name):
    target = Target(tuple(code), debian_12.model_copy(update={"name": name}))
    assert parse_target_id(target.id) == (tuple(code), name)


@pytest.mark.parametrize(
    "text", ["", "sm62", "sm62-", "debian-12", "6.2-debian-12", "sm6-debian-12", "sm62.-debian-12",
             "sm62.72-debian-12", "sm62PTX-debian-12", "ptx-debian-12", "cpu", "cpu-",
             "CPU-debian-12", "cpu.sm62-debian-12"]
)  # fmt: skip
def test_what_is_not_a_target_id_is_refused(text):
    with pytest.raises(ConfigError, match="is not a target id") as caught:
        parse_target_id(text)
    assert "sm62-debian-12" in caught.value.fix


def test_a_target_says_how_torch_writes_its_archs(debian_12):
    code = (DeviceCode(Arch(6, 2)), DeviceCode(Arch(7, 2), ptx=True))
    target = Target(code, debian_12)
    assert str(target) == "sm62.sm72ptx-debian-12"
    assert target.arch_list == "6.2;7.2+PTX"
    assert target.local_version == "debian12.torch271.cxx11abi.cu118.sm62.sm72ptx"


def test_a_target_without_device_code_says_so(debian_12):
    target = Target((), debian_12)
    assert str(target) == "cpu-debian-12"
    assert target.arch_list == ""
    assert target.local_version == "debian12.torch271.cxx11abi.cu118.cpu"


def test_a_torch_is_required_exactly_or_as_the_platform_says(catalog, debian_12):
    assert debian_12.torch.pinned == "torch==2.7.1"
    assert catalog.platform("jetpack-5.1").torch.pinned == "torch>=2.1.0a0,<2.2"


def test_markers_are_those_of_the_target(catalog):
    markers = catalog.platform("jetpack-6.2").markers
    assert (markers["platform_machine"], markers["python_version"]) == ("aarch64", "3.10")
    assert Marker("python_version >= '3.9' and sys_platform == 'linux'").evaluate(markers)
    assert not Marker("python_version < '3.9'").evaluate(markers)


@pytest.mark.parametrize("release", ["2.7.1", "2.1.0a0+41361538.nv23.06", "1.10.0a0+git36449ea"])
@pytest.mark.parametrize("new_abi", [True, False])
def test_the_label_of_any_torch_release_is_a_local_version(debian_12, release, new_abi):
    torch = debian_12.torch.model_copy(update={"version": release, "cxx11_abi": new_abi})
    target = Target((DeviceCode(Arch(6, 2)),), debian_12.model_copy(update={"torch": torch}))
    labelled = Version(f"1.0+{target.local_version}")
    assert str(labelled) == f"1.0+{target.local_version}"
    assert ("precxx11abi" in target.local_version) != new_abi


def test_a_platform_cannot_hold_a_wrong_arch_or_an_unknown_word(debian_12):
    rows = debian_12.model_dump()
    with pytest.raises(ValidationError, match="compute capability"):
        type(debian_12).model_validate(rows | {"cuda": {"version": "11.8", "archs": ["62"]}})
    with pytest.raises(ValidationError, match="kind"):
        type(debian_12).model_validate(rows | {"kind": "toaster"})
    with pytest.raises(ValidationError, match="colour"):
        type(debian_12).model_validate(rows | {"colour": "red"})


def test_a_platform_says_why_a_library_may_stay_unproven(debian_12):
    assert "CPU build" in debian_12.accepts_unknown("libc10_cuda.so")
    assert debian_12.accepts_unknown("libc10.so") is None

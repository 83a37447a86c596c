"""The device-code rule over libraries whose containers differ, GPU by GPU."""

import dataclasses
import sys
from pathlib import Path

import pytest
from jetship.check.facts import Facts
from jetship.check.findings import Finding
from jetship.check.rules_device import device_code
from jetship.check.wheel import Member
from jetship.fatbin import parse_fatbins
from jetship.targets.resolve import resolve, resolve_id

sys.path.insert(0, str(Path(__file__).parents[2] / "data/check"))
from make_corpus import PTX, SASS, container, image

ARCH_ONLY, FAMILY = 0x100011, 0x200011


@dataclasses.dataclass(frozen=True)
class _Wheel:
    members: tuple[Member, ...]
    pin: None = None
    file: str = "pkg.whl"


@pytest.fixture
def find(catalog):
    """Return the rule's answer about a library of these containers, by another tool than ours."""

    def run(*files: bytes, arch: str = "8.7", platform: str = "jetpack-6.2") -> Finding:
        target = resolve_id(catalog, f"{arch}/{platform}")
        member = Member("pkg/_C.so", None, images=parse_fatbins(b"".join(files)))
        (finding,) = device_code(Facts(_Wheel((member,)), target, None))
        return finding

    return run


def kind(finding: Finding) -> str:
    return finding.outcome if finding.accepted is None else "noted"


def sass(number: int, **more: object) -> bytes:
    return image(SASS, number, **more)


def ptx(number: int, **more: object) -> bytes:
    return image(PTX, number, **more)


def test_one_file_without_the_arch_is_seen_though_others_have_it(find):
    finding = find(
        container(sass(87), sass(72)),
        container(sass(72, kernels=("_Z6forgotPf", "_Z4alsoi"))),
        container(sass(87)),
    )
    assert finding.outcome == "fail"
    assert "1 of its 3 .cu files has no code for 8.7" in finding.reason
    assert finding.evidence == ("only sm_72: _Z6forgotPf, _Z4alsoi",)
    assert finding.fix.startswith("compile every .cu file for 8.7")


def test_many_kernels_are_counted(find):
    names = tuple(f"k{number}" for number in range(9))
    finding = find(container(sass(87)), container(sass(72, kernels=names)))
    assert finding.evidence == ("only sm_72: k0, k1, k2, k3 and 5 more",)


def test_a_library_without_kernels_depends_on_no_gpu(find):
    finding = find(container(sass(52, kernels=()), ptx(52, kernels=())))
    assert finding.outcome == "pass"
    assert finding.reason.startswith("its .cu files have no kernel")


def test_a_target_without_gpu_has_no_use_for_device_code(find):
    finding = find(container(sass(72), ptx(87)), arch="cpu", platform="debian-12")
    assert finding.outcome == "pass"
    assert finding.reason == "it has device code for 7.2, 8.7, which this target has no use for"


def test_a_file_without_kernels_needs_no_code(find):
    assert find(container(sass(87)), container(sass(72, kernels=()))).outcome == "pass"


@pytest.mark.parametrize("flags", [ARCH_ONLY, 0x11])
def test_files_for_other_gpus_alone_prove_nothing(find, flags):
    finding = find(container(sass(87)), container(sass(90, flags=flags, kernels=("hopper",))))
    assert finding.outcome == "unknown"
    assert "1 of its 2 .cu files has only code that is made for other GPUs" in finding.reason
    assert "hopper" in finding.evidence[0]


def test_nothing_but_code_for_other_gpus_is_a_fail(find):
    finding = find(container(sass(90, flags=ARCH_ONLY)))
    assert finding.outcome == "fail"
    assert "no kernel would start" in finding.reason


@pytest.mark.parametrize(
    ("gpu", "number", "flags", "outcome"),
    [
        (("8.7", "jetpack-6.2"), 80, 0x11, "fail"),  # a desktop's code on a Jetson
        (("8.7", "jetpack-6.2"), 86, 0x11, "fail"),
        (("8.9", "debian-13"), 87, 0x11, "fail"),  # a Jetson's on a desktop
        (("8.9", "debian-13"), 86, 0x11, "pass"),
        (("8.6", "debian-13"), 89, 0x11, "fail"),
        (("9.0", "debian-13"), 86, 0x11, "fail"),
        (("9.0", "debian-13"), 90, ARCH_ONLY, "pass"),
        (("10.3", "debian-13"), 100, 0x11, "pass"),
        (("10.3", "debian-13"), 100, FAMILY, "pass"),
        (("10.3", "debian-13"), 100, ARCH_ONLY, "fail"),
        (("11.0", "jetpack-7.0"), 101, 0x11, "fail"),  # CUDA 12's name of that GPU
        (("11.0", "jetpack-7.0"), 110, FAMILY, "pass"),
    ],
)
def test_which_machine_code_runs(find, gpu, number, flags, outcome):
    code = container(sass(number, flags=flags))
    assert find(code, arch=gpu[0], platform=gpu[1]).outcome == outcome


@pytest.mark.parametrize(
    ("code", "outcome", "words"),
    [
        ((80, "8.5", 0x11), "noted", "the driver compiles it at the first start"),
        ((87, "7.0", 0x11), "noted", "the driver compiles it"),
        ((80, "8.6", 0x11), "fail", "ISA 8.6 of CUDA 12.7, and the driver of CUDA 12.6 compiles"),
        ((80, "8.5", ARCH_ONLY), "fail", "its PTX compute_80a is for other GPUs"),
        ((87, "8.5", ARCH_ONLY), "noted", "first start"),
        ((80, "8.5", FAMILY), "noted", "first start"),
        ((72, "8.5", FAMILY), "fail", "compute_72f is for other GPUs"),
        ((90, "8.5", 0x11), "fail", "compute_90 is for other GPUs"),
        ((80, "0.0", 0x11), "unknown", "cannot be told"),
    ],
)  # fmt: skip
def test_which_ptx_the_driver_compiles(find, code, outcome, words):
    number, isa, flags = code
    finding = find(container(ptx(number, isa=isa, flags=flags)))
    assert kind(finding) == outcome
    assert words in finding.reason


def test_ptx_that_many_files_have_is_named_once(find):
    assert "(its PTX compute_90 is for other GPUs)" in find(*[container(ptx(90))] * 3).reason


def test_ptx_for_one_file_of_two(find):
    finding = find(container(sass(87)), container(sass(72), ptx(72)))
    assert kind(finding) == "noted"
    assert "1 of its 2 .cu files has no machine code for 8.7, but PTX" in finding.reason


@pytest.mark.parametrize(
    ("codes", "outcome"),
    [
        ((sass(72), sass(87)), "pass"),
        ((sass(72), ptx(72)), "noted"),
        ((sass(72), sass(87, release=130)), "unknown"),
        ((ptx(72, isa="0.0"),), "unknown"),
        ((sass(72),), "fail"),
    ],
)
def test_of_several_gpus_the_worst_counts(find, codes, outcome):
    assert kind(find(container(*codes), arch="7.2,8.7", platform="debian-12")) == outcome


def test_machine_code_of_a_later_major_release_proves_nothing(find):
    finding = find(container(sass(87, release=130)))
    assert finding.outcome == "unknown"
    assert "made by CUDA 13.0, and the driver of jetpack-6.2 is of CUDA 12.6" in finding.reason
    assert find(container(sass(87, release=128))).outcome == "pass"
    assert kind(find(container(sass(87, release=130), ptx(80)))) == "noted"


def test_names_that_were_not_read_are_said_to_be(find, catalog):
    images = parse_fatbins(container(sass(87)) + container(sass(72)))
    images = tuple(dataclasses.replace(one, kernels=None) for one in images)
    (target,) = resolve(catalog, arch="8.7", platform="jetpack-6.2")
    facts = Facts(_Wheel((Member("pkg/_C.so", None, images=images),)), target, None)
    (finding,) = device_code(facts)
    assert finding.evidence == ("only sm_72: its kernels' names were not read",)


def test_a_release_that_is_not_in_the_table_proves_no_ptx(find, catalog):
    (target,) = resolve(catalog, arch="8.7", platform="jetpack-6.2")
    cuda = target.platform.cuda.model_copy(update={"version": "99.0"})
    platform = target.platform.model_copy(update={"cuda": cuda})
    member = Member("pkg/_C.so", None, images=parse_fatbins(container(ptx(80))))
    facts = Facts(_Wheel((member,)), dataclasses.replace(target, platform=platform), None)
    (finding,) = device_code(facts)
    assert finding.outcome == "unknown"

import dataclasses
import json
from pathlib import Path

import jetship
import pytest
from jetship.build import finish as finish_module
from jetship.build.finish import GUARD, CompiledWith, finish, labelled, target_tags
from jetship.build.project import Project
from jetship.build.wheelfile import Wheel
from jetship.elf import ElfFile
from jetship.errors import BuildError
from jetship.fatbin import DeviceImage
from jetship.pin import Pin
from jetship.targets.arch import Arch
from jetship.targets.model import Target
from jetship.targets.resolve import resolve
from jetship.wheelarchive import pin_of
from packaging.specifiers import SpecifierSet
from packaging.tags import parse_tag

WITH = CompiledWith(nvcc="11.8", torch_headers="2.7.1+cpu")
PLAIN = Project(Path(), "plain")
LABEL = "debian12.torch271.cxx11abi.cu118.sm62"


def metadata(*requirements: str) -> bytes:
    lines = ["Metadata-Version: 2.1", "Name: ops", "Version: 1.0"]
    return "\n".join([*lines, *(f"Requires-Dist: {text}" for text in requirements), ""]).encode()


@pytest.mark.parametrize(
    ("built", "finished"),
    [
        ("cp312-cp312-linux_x86_64", "cp311-cp311-linux_aarch64"),
        ("cp311-cp311-linux_x86_64", "cp311-cp311-linux_aarch64"),
        ("cp39-abi3-linux_x86_64", "cp39-abi3-linux_aarch64"),
        ("py3-none-linux_x86_64", "py3-none-linux_aarch64"),
        ("py3-none-any", "py3-none-any"),
        ("py2.py3-none-any", "py2.py3-none-any"),
        ("cp312-cp312-manylinux_2_17_x86_64.manylinux2014_x86_64", "cp311-cp311-linux_aarch64"),
    ],
)
def test_tags_are_the_targets_but_abi3_and_none_are_the_projects_own(target, built, finished):
    assert target_tags(parse_tag(built), target) == parse_tag(finished)


@pytest.mark.parametrize("name", ["unknown", "UNKNOWN"])
def test_a_project_without_a_name_is_told(make_wheel, target, name):
    built = dataclasses.replace(make_wheel(), name=name)
    with pytest.raises(BuildError, match="the project has no name") as caught:
        finish(built, target, PLAIN, WITH)
    assert "[project]" in caught.value.fix


@pytest.mark.parametrize(
    ("version", "label"),
    [
        ("1.0", f"1.0+{LABEL}"),
        ("1.0.dev3", f"1.0.dev3+{LABEL}"),
        ("1.0+git.abc", f"1.0+git.abc.{LABEL}"),
        ("2!1.0rc1.post2", f"2!1.0rc1.post2+{LABEL}"),
    ],
)
def test_the_version_carries_the_targets_label(target, version, label):
    assert labelled(version, target) == label


def test_a_finished_wheel_has_its_targets_name_and_can_be_read_back(make_wheel, target, tmp_path):
    path = finish(make_wheel(), target, PLAIN, WITH).write(tmp_path)
    assert path.name == f"ops-1.0+{LABEL}-cp311-cp311-linux_aarch64.whl"
    wheel = Wheel.read(path)
    assert wheel.metadata.all("Version") == [f"1.0+{LABEL}"]
    assert pin_of(path) is not None


def test_two_targets_on_the_same_platform_are_two_files(make_wheel, target, fat_target):
    names = {finish(make_wheel(), one, PLAIN, WITH).filename for one in (target, fat_target)}
    assert len(names) == 2


@pytest.mark.parametrize(
    ("required", "finished"),
    [
        ((), ["torch==2.7.1"]),
        (("torch",), ["torch==2.7.1"]),
        (("torch>=2",), ["torch==2.7.1"]),
        (("Torch (>=2,<3)",), ["torch==2.7.1"]),
        (("torch==2.7.1",), ["torch==2.7.1"]),
        (("torch==2.7.*", "numpy>=1.20"), ["numpy>=1.20", "torch==2.7.1"]),
        (("torchvision", "torch-scatter>=2"), ["torchvision", "torch-scatter>=2", "torch==2.7.1"]),
        (("torch>=2; python_version>'3.8'",), ["torch==2.7.1"]),
        (("pytest; extra == 'test'",), ["pytest; extra == 'test'", "torch==2.7.1"]),
    ],
)
def test_the_torch_of_the_target_is_required_exactly(make_wheel, target, required, finished):
    wheel = finish(make_wheel(metadata=metadata(*required)), target, PLAIN, WITH)
    assert wheel.metadata.all("Requires-Dist") == finished


@pytest.mark.parametrize("required", ["torch>=99", "torch<2", "torch==2.6.0", "torch!=2.7.1"])
def test_a_project_that_needs_another_torch_is_refused(make_wheel, target, required):
    with pytest.raises(BuildError) as caught:
        finish(make_wheel(metadata=metadata(required)), target, PLAIN, WITH)
    assert f"the project requires {required}, and debian-12 has torch 2.7.1" in caught.value.what
    assert "invoke targets" in caught.value.fix


@pytest.mark.parametrize(
    "required",
    [
        'torch>=99; platform_machine == "x86_64"',
        'torch>=99; sys_platform == "win32"',
        'torch>=99; python_version < "3.9"',
        'torch>=99; platform_python_implementation == "PyPy"',
        'torch>=99; extra == "newest"',
    ],
)
def test_what_a_project_needs_elsewhere_does_not_matter_here(make_wheel, target, required):
    wheel = finish(make_wheel(metadata=metadata(required)), target, PLAIN, WITH)
    assert wheel.metadata.all("Requires-Dist") == [required, "torch==2.7.1"]


@pytest.mark.parametrize(
    "required", ['torch>=99; platform_machine == "aarch64"', 'torch>=99; python_version == "3.11"']
)
def test_what_a_project_needs_on_the_target_does(make_wheel, target, required):
    with pytest.raises(BuildError, match="debian-12 has torch"):
        finish(make_wheel(metadata=metadata(required)), target, PLAIN, WITH)


@pytest.fixture
def xavier(catalog) -> Target:
    """A target whose torch is NVIDIA's snapshot of 2.1.0."""
    return resolve(catalog, arch="7.2", platform="jetpack-5.1")[0]


@pytest.mark.parametrize(
    "required", ["torch", "torch>=2", "torch==2.1.0", "torch>=2.1", "torch~=2.1.0", "torch<2.2"]
)
def test_a_snapshot_serves_who_asks_for_its_release_and_any_build_of_that_is_required(
    make_wheel, xavier, required
):
    wheel = finish(make_wheel(metadata=metadata(required)), xavier, PLAIN, WITH)
    assert wheel.metadata.all("Requires-Dist") == ["torch>=2.1.0a0,<2.2"]
    assert SpecifierSet(">=2.1.0a0,<2.2").contains(xavier.platform.torch.version, prereleases=True)


@pytest.mark.parametrize("required", ["torch>=2.1.1", "torch==2.0.*", "torch<2.1", "torch>2.1"])
def test_a_snapshot_serves_nobody_who_asks_for_another_release(make_wheel, xavier, required):
    with pytest.raises(BuildError, match=r"jetpack-5\.1 has torch 2\.1\.0a0"):
        finish(make_wheel(metadata=metadata(required)), xavier, PLAIN, WITH)


def test_the_guard_is_in_the_wheel_of_a_project_that_asks_for_it(make_wheel, target):
    wheel = finish(make_wheel(), target, Project(Path(), "plain", "ops"), WITH)
    assert wheel.members["ops/_jetship_guard.py"].data == GUARD.read_bytes()
    assert not any("guard" in name for name in finish(make_wheel(), target, PLAIN, WITH).members)


@pytest.mark.parametrize("name", ["op", "other", "ops_1"])
def test_the_guard_of_a_package_that_is_not_there_is_refused(make_wheel, target, name):
    with pytest.raises(BuildError, match="the wheel has no such package") as caught:
        finish(make_wheel(), target, Project(Path(), "plain", name), WITH)
    assert repr(name) in caught.value.what
    assert caught.value.fix


def record(wheel: Wheel) -> dict:
    return json.loads(wheel.members[f"{wheel.dist_info}/jetship.json"].data)


def test_the_record_says_what_the_wheel_was_made_for(make_wheel, target):
    assert record(finish(make_wheel(), target, PLAIN, WITH)) == {
        "schema_version": 1,
        "tool": {"name": "jetship", "version": jetship.__version__},
        "target": "sm62-debian-12",
        "platform": "debian-12",
        "platform_kind": "emulation",
        "machine": "aarch64",
        "torch": {
            "version": "2.7.1",
            "cuda": None,
            "cxx11_abi": True,
            "headers": "2.7.1+cpu",
        },
        "cuda": {"version": "11.8", "code": [], "nvcc": "11.8"},
        "python": {"interpreter": "cp311", "abi": "cp311"},
        "glibc_floor": None,
    }


def test_the_record_of_an_abi3_wheel_says_so(make_wheel, target):
    wheel = finish(make_wheel(tags="cp39-abi3-linux_x86_64"), target, PLAIN, WITH)
    assert record(wheel)["python"] == {"interpreter": "cp39", "abi": "abi3"}


def image(kind: str, arch: Arch) -> DeviceImage:
    return DeviceImage(kind=kind, arch=arch, variant="", compressed=False, size=1, linked=True)


def test_the_record_says_what_device_code_and_glibc_the_files_really_have(
    make_wheel, fat_target, monkeypatch
):
    libraries = {
        b"\x7fELF one": (("GLIBC_2.9", "GLIBC_2.17"), (image("sass", Arch(6, 2)),)),
        b"\x7fELF two": (("GLIBC_2.4",), (image("sass", Arch(7, 2)), image("ptx", Arch(7, 2)),
                                          image("other", Arch(8, 7)))),
        b"\x7fELF none": ((), ()),
    }  # fmt: skip

    def parse(data: bytes) -> ElfFile:
        needs = {"libc.so.6": libraries[data][0]}
        return ElfFile(
            machine="aarch64", bits=64, little_endian=True, type="shared", version_needs=needs
        )

    monkeypatch.setattr(finish_module, "parse_elf", parse)
    monkeypatch.setattr(finish_module, "images_in", lambda data, _: libraries[data][1])
    files = {f"ops/{number}.so": data for number, data in enumerate(libraries)}
    wheel = finish(make_wheel({**files, "ops/text.so": b"no ELF"}), fat_target, PLAIN, WITH)
    assert record(wheel)["glibc_floor"] == "2.17"
    assert record(wheel)["cuda"]["code"] == [
        {"arch": "6.2", "sass": True, "ptx": False},
        {"arch": "7.2", "sass": True, "ptx": True},
    ]
    data = wheel.members[f"{wheel.dist_info}/jetship.json"].data
    assert Pin.from_json(data).to_json() == data


def test_the_same_wheel_is_finished_to_the_same_bytes(make_wheel, target, tmp_path):
    once = finish(make_wheel(), target, PLAIN, WITH).write(tmp_path / "a").read_bytes()
    again = finish(dataclasses.replace(make_wheel()), target, PLAIN, WITH).write(tmp_path / "b")
    assert again.read_bytes() == once

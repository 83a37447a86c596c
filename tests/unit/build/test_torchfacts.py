from dataclasses import replace

import pytest
from jetship.build.torchfacts import torch_facts
from jetship.errors import ConfigError


def test_the_facts_are_the_target_torchs_own(toolchain, target):
    assert torch_facts(toolchain, target) == {
        "target": "sm62-debian-12",
        "site_packages": str(toolchain.site_packages),
        "version": "2.7.1",
        "git_version": "abc",
        "cuda": "11.8",
        "cxx11_abi": True,
        "code": [[6, 2]],
        "pybind11": {
            "compiler_type": "_gcc", "stdlib": "_libstdcpp", "build_abi": "_cxxabi1014"
        },
        "distributed": True,
        "mkl": False,
        "mkldnn": True,
        "openmp": True,
        "cudnn": False,
        "nccl": False,
    }  # fmt: skip


def test_what_no_file_says_is_none(jetpack_5, xavier):
    (jetpack_5.torch / "include/ATen/Config.h").unlink()
    facts = torch_facts(jetpack_5, xavier)
    unknown = ("mkl", "mkldnn", "openmp", "cudnn", "nccl")
    assert {name: facts[name] for name in unknown} == dict.fromkeys(unknown)


def test_nvidias_build_has_its_own_version_and_not_upstreams_commit(jetpack_5, xavier):
    facts = torch_facts(jetpack_5, xavier)
    assert (facts["version"], facts["git_version"]) == ("2.1.0a0+41361538.nv23.06", None)


def test_the_label_of_the_targets_own_wheel_stays(toolchain, target):
    (toolchain.torch / "version.py").write_text("__version__ = '2.7.1+cpu'\ncuda = None\n")
    assert torch_facts(toolchain, target)["version"] == "2.7.1+cpu"


@pytest.mark.parametrize(
    ("pin", "number"), [("9.19.0.56", 91900), ("8.9.2.26", 8902), ("9.1.0.70", 90100)]
)
def test_packages_that_torch_is_pinned_to_give_their_versions(cuda_torch, pin, number):
    toolchain, target = cuda_torch
    facts = _facts_with_requirements(
        toolchain, target,
        f'nvidia-cudnn-cu13=={pin}; platform_system == "Linux"',
        'nvidia-nccl-cu12==2.1.1; platform_machine == "riscv64"',
        'nvidia-nccl-cu13==2.28.9; platform_system == "Linux"',
    )  # fmt: skip
    assert (facts["cudnn"], facts["nccl"]) == (number, [2, 28, 9])


def test_packages_that_are_not_pinned_say_nothing(cuda_torch):
    facts = _facts_with_requirements(*cuda_torch, "nvidia-cudnn-cu13>=9", "nvidia-nccl-cu13")
    assert (facts["cudnn"], facts["nccl"]) == (None, None)


@pytest.fixture
def cuda_torch(toolchain, debian_12, target):
    """A toolchain and target whose torch is a CUDA build."""
    torch = debian_12.torch.model_copy(update={"cuda": "13.0"})
    platform = debian_12.model_copy(update={"torch": torch})
    return replace(toolchain, platform=platform), replace(target, platform=platform)


def _facts_with_requirements(toolchain, target, *requirements):
    lines = ["Name: torch", *(f"Requires-Dist: {text}" for text in requirements)]
    metadata = toolchain.site_packages / "torch-2.7.1.dist-info/METADATA"
    metadata.parent.mkdir()
    metadata.write_text("\n".join(lines) + "\n\nRequires-Dist: nvidia-cudnn-cu13==1.0.0\n")
    return torch_facts(toolchain, target)


def test_a_torch_without_pybind11_tags_gives_none(toolchain, target):
    (toolchain.torch / "lib/libtorch_python.so").write_bytes(b"\x7fELF")
    assert set(torch_facts(toolchain, target)["pybind11"].values()) == {None}


def test_a_torch_of_another_release_is_refused(toolchain, target):
    (toolchain.torch / "version.py").write_text("__version__ = '2.6.0+cpu'\ncuda = None\n")
    with pytest.raises(
        ConfigError, match=r"holds torch 2\.6\.0\+cpu, and the platform says 2\.7\.1"
    ) as caught:
        torch_facts(toolchain, target)
    assert "--torch-wheel" in caught.value.fix


def test_the_local_label_of_a_torch_is_no_other_release(toolchain, target):
    (toolchain.torch / "version.py").write_text("__version__ = '2.7.1+cpu'\ncuda = '12.6'\n")
    assert torch_facts(toolchain, target)["cuda"] == "12.6"


@pytest.mark.parametrize(
    ("version", "fits"),
    [
        ("2.1.0", True),
        ("2.1.2+cpu", True),
        ("2.1.0a0+41361538.nv23.06", True),
        ("2.2.0", False),
        ("2.0.1", False),
        ("1.1.0", False),
    ],
)
def test_upstreams_release_stands_for_nvidias_snapshot_of_it(jetpack_5, xavier, version, fits):
    (jetpack_5.torch / "version.py").write_text(f"__version__ = '{version}'\ncuda = None\n")
    if fits:
        assert torch_facts(jetpack_5, xavier)["cuda"] == "11.2"
    else:
        with pytest.raises(ConfigError, match=r"the platform says 2\.1\.0a0\+41361538"):
            torch_facts(jetpack_5, xavier)

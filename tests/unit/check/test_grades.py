"""What is the target's own is exact, whatever the platform's evidence is."""

import dataclasses
import shutil

import pytest
from jetship.check.libraries import TargetLibraries
from jetship.toolchain.model import CUDA_TARGET, SITE_PACKAGES, SYSROOT, Toolchain

LIBRARIES = {
    SYSROOT: ("usr/lib/aarch64-linux-gnu", "libc.so.6"),
    SITE_PACKAGES: ("torch/lib", "libc10.so"),
    CUDA_TARGET: (".", "libcudart.so.11.0"),
}


@pytest.fixture
def toolchain(tmp_path, corpus, target) -> Toolchain:
    """A toolchain of a platform that is known from other builds only."""
    root = tmp_path / "toolchain"
    for link, (folder, name) in LIBRARIES.items():
        (root / link / folder).mkdir(parents=True)
        shutil.copy(corpus / "target" / name, root / link / folder)
    (root / "stubs").mkdir()
    shutil.copy(corpus / "elsewhere/libc10_cuda.so", root / "stubs")
    (root / SITE_PACKAGES / "torch/version.py").write_text("__version__ = '2.1.0'\n")
    platform = target.platform.model_copy(update={"evidence": "derived"})
    return Toolchain(platform, root, "11.8")


def grades(toolchain: Toolchain) -> dict[str, str]:
    libraries = TargetLibraries.of(toolchain).libraries
    return {link: libraries[name].grade for link, (_, name) in LIBRARIES.items()}


@pytest.mark.parametrize("own", LIBRARIES)
def test_only_what_is_the_targets_own_is_exact(toolchain, own):
    found = grades(dataclasses.replace(toolchain, own=frozenset({own})))
    assert found == dict.fromkeys(LIBRARIES, "derived") | {own: "exact"}


def test_on_an_exact_platform_all_is_exact(toolchain, target):
    found = grades(dataclasses.replace(toolchain, platform=target.platform))
    assert set(found.values()) == {"exact"}


def test_no_other_build_speaks_for_a_torch_that_is_the_targets_own(toolchain):
    assert "libc10_cuda.so" in TargetLibraries.of(toolchain).libraries
    own = dataclasses.replace(toolchain, own=frozenset({SITE_PACKAGES}))
    assert "libc10_cuda.so" not in TargetLibraries.of(own).libraries


def test_the_targets_own_cuda_comes_before_the_toolkits(toolchain):
    (toolchain.cuda_home / "targets/aarch64-linux/lib").mkdir(parents=True)
    assert [str(path.relative_to(toolchain.root)) for path in toolchain.cuda_libraries] == [
        "cuda-target", "cuda/targets/aarch64-linux/lib", "cuda/lib64"
    ]  # fmt: skip

"""Parts of the user's own, and what is said of those that are not what they should be."""

from pathlib import Path

import pytest
from jetship.errors import ConfigError, ToolMissingError
from jetship.toolchain import layout
from jetship.toolchain.own import own_cuda, own_python, own_sysroot, own_torch

NVCC = "#!/bin/sh\necho 'Cuda compilation tools, release 10.2, V10.2.300'\n"
LIBC = "lib/aarch64-linux-gnu/libc.so.6"


@pytest.fixture
def tx2_platform(catalog):
    return catalog.platform("jetpack-4.6")


@pytest.mark.parametrize(
    ("release", "name"), [("13.0", "jetpack-6.2"), ("11.4", "jetpack-4.6"), ("10.0", "jetpack-4.6")]
)
def test_a_toolkit_whose_runtime_the_platform_lacks_is_refused(
    tmp_path, grow, catalog, release, name
):
    nvcc = NVCC.replace("10.2", release)
    with pytest.raises(ConfigError, match=f"--cuda-home is CUDA {release}") as caught:
        own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": nvcc}), catalog.platform(name))
    assert catalog.platform(name).cuda.version in caught.value.fix


def test_a_newer_toolkit_of_the_same_cuda_is_taken_with_a_warning(tmp_path, grow, catalog, capsys):
    nvcc = NVCC.replace("10.2", "12.9")
    given = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": nvcc}), catalog.platform("jetpack-6.2"))
    assert given.cuda_version == "12.9"
    assert "newer than 12.6" in capsys.readouterr().err


def test_a_cuda_toolkit_says_its_release(tmp_path, grow, tx2_platform):
    given = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": NVCC}), tx2_platform)
    assert (given.path, given.cuda_version) == (tmp_path / "cuda", "10.2")
    assert not given.exact


def test_a_cuda_toolkit_that_was_updated_in_place_is_another_one(tmp_path, grow, tx2_platform):
    before = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": NVCC}), tx2_platform)
    assert own_cuda(tmp_path / "cuda", tx2_platform).identity == before.identity
    after = own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": NVCC.replace("300", "89")}), tx2_platform)
    assert after.identity != before.identity


def test_a_folder_that_is_no_cuda_toolkit_is_told(tmp_path, tx2_platform):
    with pytest.raises(ConfigError, match="has no bin/nvcc") as caught:
        own_cuda(tmp_path, tx2_platform)
    assert str(tmp_path) in caught.value.what
    assert "/usr/local/cuda-10.2" in caught.value.fix


@pytest.mark.parametrize("text", ["#!/bin/sh\necho hello\n", "#!/bin/sh\nexit 1\n"])
def test_an_nvcc_that_does_not_say_its_release_is_told(tmp_path, grow, text, tx2_platform):
    with pytest.raises(ConfigError, match="does not say its release") as caught:
        own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": text}), tx2_platform)
    assert caught.value.fix


def test_an_nvcc_that_cannot_be_run_is_told(tmp_path, grow, tx2_platform):
    with pytest.raises(ToolMissingError, match="cannot be run"):
        own_cuda(grow(tmp_path / "cuda", {"bin/nvcc": "\x7fELF"}), tx2_platform)


@pytest.mark.parametrize("base", ["", "usr/"])
def test_a_sysroot_has_the_targets_c_library(tmp_path, grow, debian_12, base):
    given = own_sysroot(grow(tmp_path / "root", {f"{base}{LIBC}": "libc"}), debian_12)
    assert given.path == tmp_path / "root"
    assert given.exact
    grow(tmp_path / "root", {f"{base}{LIBC}": "another libc"})
    assert own_sysroot(tmp_path / "root", debian_12).identity != given.identity


def test_a_sysroot_of_this_machine_is_told(tmp_path, grow, debian_12):
    root = grow(tmp_path / "root", {"usr/lib/x86_64-linux-gnu/libc.so.6": "libc"})
    with pytest.raises(
        ConfigError, match=r"has no usr/lib/aarch64-linux-gnu/libc\.so\.6"
    ) as caught:
        own_sysroot(root, debian_12)
    assert str(root) in caught.value.what
    assert "aarch64" in caught.value.fix


def test_a_torch_wheel_is_unpacked_into_the_cache_once(store, make_wheel_file):
    wheel = make_wheel_file("torch", {"torch/version.py": "__version__ = '1.10.0'\n"})
    given = own_torch(wheel, store)
    assert given.path.is_relative_to(store.root)
    assert (given.path / "torch/version.py").is_file()
    assert (given.path / layout.CUDA_CMAKE_MACROS).is_file()
    assert given.exact
    assert own_torch(wheel, store) == given
    other = make_wheel_file("torch", {"torch/version.py": "__version__ = '1.10.1'\n"})
    assert own_torch(other, store).identity != given.identity


def test_another_wheel_is_no_torch_and_leaves_nothing(store, make_wheel_file):
    with pytest.raises(ConfigError, match="holds no torch") as caught:
        own_torch(make_wheel_file("numpy", {"numpy/version.py": ""}), store)
    assert caught.value.fix
    assert list((store.root / "trees").iterdir()) == []


@pytest.mark.parametrize("text", [None, "not a wheel"])
def test_what_is_no_wheel_is_told(store, tmp_path, text):
    path = tmp_path / "torch.whl"
    if text:
        path.write_text(text)
    with pytest.raises(ConfigError, match="is not a wheel") as caught:
        own_torch(path, store)
    assert "torch-*.whl" in caught.value.fix


def test_python_headers_are_those_of_the_platforms_python(tmp_path, grow, catalog):
    root = grow(tmp_path / "python", {"include/python3.8/patchlevel.h": "3.8.10"})
    given = own_python(root, catalog.platform("jetpack-5.1"))
    assert given.path == root
    with pytest.raises(ConfigError, match=r"has no include/python3\.10/patchlevel\.h") as caught:
        own_python(root, catalog.platform("jetpack-6.2"))
    assert "Python 3.10 for aarch64" in caught.value.fix


def test_paths_are_made_absolute(tmp_path, grow, monkeypatch, tx2_platform):
    grow(tmp_path / "cuda", {"bin/nvcc": NVCC})
    monkeypatch.chdir(tmp_path)
    assert own_cuda(Path("cuda"), tx2_platform) == own_cuda(tmp_path / "cuda", tx2_platform)

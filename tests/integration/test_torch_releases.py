"""Every minor release of torch from 1.10 to 2.15: its own cpp_extension builds with the stand-in.

Each wheel is downloaded (3.6 GB in all, one at a time), and of it only what a build looks at is
kept. The rest of the toolchain is that of debian-12 or debian-13.
"""

import os
import re
import zipfile
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path

import pytest
from independent import device_code, needed_libraries
from jetship.build import environment, isolated
from jetship.store import Store, default_root
from jetship.targets.arch import DeviceCode
from jetship.targets.catalog import Catalog
from jetship.targets.model import Platform, Target
from jetship.targets.parts import WheelSource
from jetship.targets.resolve import resolve
from jetship.toolchain import pypi
from jetship.toolchain.model import SITE_PACKAGES, Toolchain
from jetship.toolchain.prepare import prepare
from product import copy_of

pytestmark = pytest.mark.long

KEPT = ("torch/*.py", "torch/lib/lib*.so", "torch/include/ATen/Config.h", "*.dist-info/METADATA")
# What cpp_extension of a release imports and its wheel's users have: see docs/standin.md.
OLD, MIDDLE, NEW = ({"constraints": ["setuptools<70"]}, {}, {"requirements": ["typing-extensions"]})
# Up to 2.10 they are CPU builds; releases before 2.1 do not know 8.7.
CUDA_11, CUDA_13 = ("debian-12", "6.2,8.7+PTX"), ("debian-13", "8.7,11.0+PTX")
RELEASES = {
    "1.10.2": ("3.9", OLD, CUDA_11),
    "1.11.0": ("3.9", OLD, CUDA_11),
    "1.12.1": ("3.9", OLD, CUDA_11),
    "1.13.1": ("3.9", OLD, CUDA_11),
    "2.0.1": ("3.9", OLD, CUDA_11),
    "2.1.2": ("3.9", OLD, CUDA_11),
    "2.2.2": ("3.9", MIDDLE, CUDA_11),
    "2.3.1": ("3.9", MIDDLE, CUDA_11),
    "2.4.1": ("3.9", MIDDLE, CUDA_11),
    "2.5.1": ("3.9", MIDDLE, CUDA_11),
    "2.6.0": ("3.11", MIDDLE, CUDA_11),
    "2.7.1": ("3.11", MIDDLE, CUDA_11),
    "2.8.0": ("3.11", MIDDLE, CUDA_11),
    "2.9.1": ("3.11", NEW, CUDA_11),
    "2.10.0": ("3.11", NEW, CUDA_11),
    "2.11.0": ("3.12", NEW, CUDA_13),
    "2.12.0": ("3.12", NEW, CUDA_13),
    "2.13.0": ("3.12", NEW, CUDA_13),
    "2.14.1": ("3.12", NEW, CUDA_13),
    "2.15.0": ("3.12", NEW, CUDA_13),
}


@dataclass(frozen=True)
class Release:
    """A release, a toolchain that holds it, a target, and what the build environment needs."""

    toolchain: Toolchain
    target: Target
    needs: dict[str, list[str]]


@pytest.fixture(params=RELEASES)
def release(request, monkeypatch, large_folder) -> Release:
    python, needs, (platform, archs) = RELEASES[request.param]
    monkeypatch.setenv("PIP_CONSTRAINT", os.devnull)  # it is for what is installed
    folder = large_folder / SITE_PACKAGES
    _unpack_release(request.param, python, large_folder, folder)
    whole = prepare(
        resolve(Catalog.load(), arch="8.0", platform=platform)[0], Store(default_root())
    )
    own = _platform_with(whole, request.param, folder)
    code = tuple(DeviceCode.parse(arch) for arch in archs.split(","))
    root = _root_with(whole, folder, large_folder / "toolchain")
    return Release(replace(whole, platform=own, root=root), Target(code, own), needs)


def _unpack_release(version: str, python: str, scratch: Path, into: Path) -> None:
    source = WheelSource(
        machine="aarch64", python=python, abi=f"cp{python.replace('.', '')}",
        requirements=(f"torch=={version}",),
    )  # fmt: skip
    pypi._download(source, list(source.requirements), scratch)
    (wheel,) = (scratch / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if any(fnmatch(name, kept) for kept in KEPT)]
        archive.extractall(into, names)
    wheel.unlink()


def _platform_with(toolchain: Toolchain, version: str, folder: Path) -> Platform:
    text = (folder / "torch/version.py").read_text()
    cuda = re.search(r"^cuda.* = '([\d.]+)'$", text, re.MULTILINE)
    platform = toolchain.platform
    torch = platform.torch.model_copy(
        update={"version": version, "cuda": cuda and cuda[1], "requirement": ""}
    )
    return platform.model_copy(update={"torch": torch})


def _root_with(toolchain: Toolchain, site_packages: Path, root: Path) -> Path:
    """Return the toolchain's folder with another torch in it."""
    root.mkdir()
    for entry in toolchain.root.iterdir():
        if entry.name != SITE_PACKAGES:
            (root / entry.name).symlink_to(entry.resolve())
    (root / SITE_PACKAGES).symlink_to(site_packages)
    return root


def test_its_cpp_extension_builds(release, tmp_path):
    toolchain = release.toolchain
    cross = environment.create(toolchain, release.target, tmp_path / "cross")
    log, out = tmp_path / "log", tmp_path / "out"
    log.touch()
    out.mkdir()
    wheel = isolated.build_wheel(copy_of("kernel", tmp_path), cross, out, log, **release.needs)
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".so")]
        library = Path(archive.extract(name, tmp_path))

    numbers = {code.arch.number for code in release.target.code}
    assert device_code(toolchain.cuda_home / "bin/cuobjdump", library) == (
        numbers,
        {code.arch.number for code in release.target.code if code.ptx},
    )
    assert {
        "libc10.so",
        "libtorch.so",
        "libtorch_cpu.so",
        "libc10_cuda.so",
        "libtorch_cuda.so",
    } <= (set(needed_libraries(library.read_bytes())))
    text = log.read_text()
    assert (
        f" -I{toolchain.torch}/include " in text or f" -isystem {toolchain.torch}/include " in text
    )
    assert "was told that there is no" not in text, "cpp_extension asks what is not answered"

"""Parts that the user provides in place of the pinned ones."""

import hashlib
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from jetship import console, proc
from jetship.errors import ConfigError
from jetship.store import Store, sha256_of
from jetship.targets.model import Platform
from jetship.toolchain import layout
from jetship.toolchain.imagetree import ImageTree
from jetship.toolchain.model import CUDA_TARGET, SITE_PACKAGES, SYSROOT
from jetship.toolchain.sources import unpack_wheels


@dataclass(frozen=True)
class OwnParts:
    """Paths that the user gave: each takes the place of the platform's own part.

    Args:
        cuda_home: a CUDA toolkit with bin/nvcc.
        sysroot: a root folder of the target: its libc, libstdc++, headers.
        image: a container image of the target that the engine has: sysroot, torch and CUDA
            libraries in one.
        torch_wheel: a wheel of the target's torch.
        python_dev: a folder with include/pythonX.Y of the target's Python.
    """

    cuda_home: Path | None = None
    sysroot: Path | None = None
    image: str | None = None
    torch_wheel: Path | None = None
    python_dev: Path | None = None


@dataclass(frozen=True)
class Given:
    """A folder to link into a toolchain, and what tells it from another one.

    `exact` says that it is the target's own, and not another build of the same release.
    """

    path: Path
    identity: str
    cuda_version: str = ""
    exact: bool = False


def own_cuda(path: Path, platform: Platform) -> Given:
    """Return a CUDA toolkit of the user's.

    Raises:
        ConfigError: it has no nvcc that says its release, or is of another CUDA than the
            platform's.
    """
    nvcc = path / "bin/nvcc"
    if not nvcc.is_file():
        raise ConfigError(
            f"--cuda-home {path} has no bin/nvcc",
            fix="name the folder of a CUDA toolkit for x86-64, such as /usr/local/cuda-10.2",
        )
    said = proc.run([nvcc, "--version"]).stdout
    release = re.search(r"release (\d+\.\d+)", said)
    if release is None:
        raise ConfigError(
            f"{nvcc} does not say its release",
            why=said.strip()[-200:],
            fix=f"{nvcc} --version has to work here: --cuda-home takes a toolkit for x86-64",
        )
    _require_same_cuda(release[1], platform)
    return Given(path.resolve(), f"{path.resolve()} {said}", release[1])


def _require_same_cuda(found: str, platform: Platform) -> None:
    """Refuse a toolkit whose runtime the platform does not have; warn of a newer one.

    Releases of one major version share libcudart's soname, from CUDA 11 on.
    """
    have = platform.cuda
    if have.model_copy(update={"version": found}).runtime_soname != have.runtime_soname:
        raise ConfigError(
            f"--cuda-home is CUDA {found}, and {platform.name} has CUDA {have.version}",
            why=f"{platform.name} has {have.runtime_soname}, which a wheel of another CUDA "
            "does not look for",
            fix=f"name a toolkit of CUDA {have.version}",
        )
    if Version(found) > Version(have.version):
        console.warn(
            f"CUDA {found} of --cuda-home is newer than {have.version} of {platform.name}: "
            "its PTX is not understood there"
        )


def own_sysroot(path: Path, platform: Platform, *, option: str = "") -> Given:
    """Return a sysroot of the user's.

    Raises:
        ConfigError: it has no C library of the target's machine.
    """
    names = [f"{base}/{platform.machine}-linux-gnu/libc.so.6" for base in ("usr/lib", "lib")]
    found = next((path / name for name in names if (path / name).exists()), None)
    if found is None:
        raise ConfigError(
            f"{option or f'--sysroot {path}'} has no {names[0]}",
            fix=f"name the root folder of a {platform.machine} system with Debian's layout",
        )
    return Given(path.resolve(), f"{path.resolve()} {sha256_of(found)}", exact=True)


def own_image(tree: ImageTree, platform: Platform, *, with_torch: bool) -> dict[str, Given]:
    """Return what an image of the target gives, by the name of its link.

    Raises:
        ConfigError: it lacks the C library of the target's machine, or torch.
    """
    given = own_sysroot(tree.root, platform, option=f"the image {tree.name}")
    folders = {SYSROOT: given.path, CUDA_TARGET: tree.cuda(platform)}
    if with_torch:
        folders[SITE_PACKAGES] = tree.torch(platform)
    return {
        name: Given(path, f"{tree.id} {path.relative_to(tree.root)}", exact=True)
        for name, path in folders.items()
        if path is not None
    }


def own_torch(wheel: Path, store: Store) -> Given:
    """Return the user's torch wheel, unpacked into the cache.

    Raises:
        ConfigError: it is no torch wheel.
        DownloadError: it is damaged, or the disk is full.
    """
    if not wheel.is_file() or not zipfile.is_zipfile(wheel):
        raise ConfigError(f"--torch-wheel {wheel} is not a wheel", fix="name a torch-*.whl file")
    digest = sha256_of(wheel)

    def make(root: Path) -> None:
        with store.scratch() as scratch:
            unpack_wheels([wheel], scratch / "wheels-own")
            if not (scratch / "wheels-own/torch/version.py").is_file():
                raise ConfigError(
                    f"--torch-wheel {wheel} holds no torch", fix="name a torch-*.whl file"
                )
            layout.lay_out_torch(scratch, root)

    return Given(store.tree("torch-own", digest, make), digest, exact=True)


def own_python(path: Path, platform: Platform) -> Given:
    """Return the user's Python headers.

    Raises:
        ConfigError: they are not of the platform's Python.
    """
    version = platform.python.version
    header = path / f"include/python{version}/patchlevel.h"
    if not header.is_file():
        raise ConfigError(
            f"--python-dev {path} has no include/python{version}/patchlevel.h",
            fix=f"name the prefix of a Python {version} for {platform.machine}, as "
            f"libpython{version}-dev or python-build-standalone have it",
        )
    return Given(
        path.resolve(), f"{path.resolve()} {hashlib.sha256(header.read_bytes()).hexdigest()}"
    )

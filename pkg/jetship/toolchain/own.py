"""Parts that the user provides in place of the pinned ones."""

import hashlib
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path

from jetship import proc
from jetship.errors import ConfigError
from jetship.store import Store, sha256_of
from jetship.targets.model import Platform
from jetship.toolchain import layout
from jetship.toolchain.sources import unpack_wheels


@dataclass(frozen=True)
class OwnParts:
    """Paths that the user gave: each takes the place of the platform's own part.

    Args:
        cuda_home: a CUDA toolkit with bin/nvcc.
        sysroot: a root folder of the target: its libc, libstdc++, headers.
        torch_wheel: a wheel of the target's torch.
        python_dev: a folder with include/pythonX.Y of the target's Python.
    """

    cuda_home: Path | None = None
    sysroot: Path | None = None
    torch_wheel: Path | None = None
    python_dev: Path | None = None


@dataclass(frozen=True)
class Given:
    """A folder to link into a toolchain, and what tells it from another one."""

    path: Path
    identity: str
    cuda_version: str = ""


def own_cuda(path: Path) -> Given:
    """Return a CUDA toolkit of the user's.

    Raises:
        ConfigError: it has no nvcc that says its release.
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
        raise ConfigError(f"{nvcc} does not say its release", why=said.strip()[-200:])
    return Given(path.resolve(), f"{path.resolve()} {said}", release[1])


def own_sysroot(path: Path, platform: Platform) -> Given:
    """Return a sysroot of the user's.

    Raises:
        ConfigError: it has no C library of the target's machine.
    """
    names = [f"{base}/{platform.machine}-linux-gnu/libc.so.6" for base in ("usr/lib", "lib")]
    found = next((path / name for name in names if (path / name).exists()), None)
    if found is None:
        raise ConfigError(
            f"--sysroot {path} has no {names[0]}",
            fix=f"name the root folder of a {platform.machine} system with Debian's layout",
        )
    return Given(path.resolve(), f"{path.resolve()} {sha256_of(found)}")


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
                raise ConfigError(f"--torch-wheel {wheel} holds no torch")
            layout.lay_out_torch(scratch, root)

    return Given(store.tree("torch-own", digest, make), digest)


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

"""From a platform to its toolchain: fetch by digest, unpack, lay out, try out, publish."""

import hashlib
import inspect
import re
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path

from jetship import console, proc
from jetship.errors import ConfigError, DownloadError, ToolMissingError
from jetship.store import Store
from jetship.targets.model import Platform
from jetship.toolchain import assemble, debian, pypi
from jetship.toolchain.lock import Lock, Locked, read_lock
from jetship.toolchain.model import Toolchain

TOOLCHAIN_PACKAGES = ("buildroot", "nvcc", "sysroot")
TOOLCHAIN_WHEELS = ("cuda_headers", "torch")


def prepare(platform: Platform, store: Store) -> Toolchain:
    """Return the platform's toolchain, downloading and assembling it where it is missing.

    Two processes may call this at once: one works, the other waits and takes the result.

    Raises:
        DownloadError: something cannot be fetched, verified or stored.
        ToolMissingError: the build machine lacks apt, dpkg-deb or pip, or cannot run the
            cross compiler.
    """
    lock = read_lock(platform)
    digest = _digest(platform, lock, TOOLCHAIN_PACKAGES + TOOLCHAIN_WHEELS)

    def make(root: Path) -> None:
        console.step(f"preparing the toolchain of {platform.name} (once)")
        packages = {name: _packages(store, platform, lock, name) for name in TOOLCHAIN_PACKAGES}
        wheels = {name: _wheels(store, platform, lock, name) for name in TOOLCHAIN_WHEELS}
        toolchain = Toolchain(platform, root)
        console.note("unpacking")
        debian.unpack(packages["buildroot"], root / "buildroot")
        debian.unpack(packages["sysroot"], toolchain.sysroot)
        unpack_wheels(wheels["torch"], toolchain.site_packages)
        assemble.link_target_runtimes(toolchain)
        assemble.write_wrappers(toolchain)
        with store.scratch() as scratch:
            debian.unpack(packages["nvcc"], scratch / "nvcc")
            unpack_wheels(wheels["cuda_headers"], scratch / "headers")
            assemble.lay_out_cuda(toolchain, scratch / "nvcc", scratch / "headers")
        assemble.complete_torch(toolchain)
        assemble.make_import_stubs(toolchain)
        verify(toolchain)

    return Toolchain(platform, store.tree(f"toolchain-{platform.name}", digest, make))


def is_prepared(platform: Platform, store: Store) -> bool:
    """Return whether `prepare` would find its work done."""
    digest = _digest(platform, read_lock(platform), TOOLCHAIN_PACKAGES + TOOLCHAIN_WHEELS)
    return store.has_tree(f"toolchain-{platform.name}", digest)


def prepare_runtime(platform: Platform, store: Store) -> Path:
    """Return a folder with what the platform's base image holds, making it where it is missing.

    It has `rootfs/`, Debian packages unpacked for the target, and `site-packages/`, torch
    with its dependencies.

    Raises:
        DownloadError, ToolMissingError: as `prepare`.
    """
    lock = read_lock(platform)
    wheel_parts = ("torch", "torch_dependencies")
    digest = _digest(platform, lock, ("runtime", *wheel_parts))

    def make(root: Path) -> None:
        console.step(f"preparing the base system of {platform.name} (once)")
        debian.unpack(_packages(store, platform, lock, "runtime"), root / "rootfs")
        assemble.complete_rootfs(root / "rootfs")
        for part in wheel_parts:
            unpack_wheels(_wheels(store, platform, lock, part), root / "site-packages")

    return store.tree(f"runtime-{platform.name}", digest, make)


def write_new_lock(platform: Platform, store: Store) -> Lock:
    """Resolve every part of a platform anew, and return the lock of what was found.

    Raises:
        DownloadError: a package or wheel cannot be resolved or fetched.
    """
    parts: dict[str, tuple[Locked, ...]] = {}
    for name, package_part in platform.toolchain.packages.items():
        console.step(f"locking {name}")
        parts[name] = debian.lock_part(store, platform.toolchain.debian, package_part)
    for name, wheel_part in platform.toolchain.wheels.items():
        console.step(f"locking {name}")
        parts[name] = pypi.lock_part(store, platform, wheel_part)
    return Lock(parts=parts)


def unpack_wheels(wheels: Sequence[Path], folder: Path) -> None:
    """Unpack wheels side by side; nothing of them is run.

    Raises:
        DownloadError: a wheel is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                archive.extractall(folder)
        except zipfile.BadZipFile as error:
            raise DownloadError(f"{wheel.name} cannot be unpacked", why=str(error)) from error


def verify(toolchain: Toolchain) -> None:
    """Ask the compilers who they are, before anything is built with them.

    Raises:
        ToolMissingError: a compiler does not run here, or is not what the platform names.
    """
    expected = f"{toolchain.platform.machine}-linux-gnu"
    _expect(toolchain.bin / "aarch64-linux-gnu-g++", "-dumpmachine", expected)
    _expect(
        toolchain.cuda_home / "bin/nvcc", "--version", f"release {toolchain.platform.cuda.version}"
    )


def _expect(program: Path, option: str, text: str) -> None:
    done = proc.run([program, option])
    if not done.ok or text not in done.stdout:
        raise ToolMissingError(
            f"{program.name} of the toolchain does not work on this machine",
            why=(done.stderr or done.stdout).strip()[-300:] or f"it does not say {text!r}",
            fix="the toolchain's programs need an x86-64 machine with glibc 2.36 or newer "
            "(Debian 12, Ubuntu 24.04)",
        )


def _packages(store: Store, platform: Platform, lock: Lock, name: str) -> list[Path]:
    part = platform.toolchain.packages[name]
    files = _locked(platform, lock, name)
    return debian.fetch(store, platform.toolchain.debian, part.architecture, files)


def _wheels(store: Store, platform: Platform, lock: Lock, name: str) -> list[Path]:
    part = platform.toolchain.wheels[name]
    files = _locked(platform, lock, name)
    locked = {f"{item.name}=={item.version}" for item in files}
    asked = {_normal(requirement) for requirement in part.requirements}
    if locked != asked:
        raise ConfigError(
            f"the lock file of {platform.name} does not fit its platform file: part {name}",
            why=f"asked for {', '.join(sorted(asked - locked)) or 'less'}",
            fix=f"renew it with `invoke lock --platform {platform.name}`",
        )
    return pypi.fetch(store, platform, part, files)


def _normal(requirement: str) -> str:
    name, _, version = requirement.partition("==")
    return re.sub(r"[-_.]+", "-", name).lower() + f"=={version}"


def _locked(platform: Platform, lock: Lock, name: str) -> tuple[Locked, ...]:
    if name not in lock.parts:
        raise ConfigError(
            f"the lock file of {platform.name} has no part {name!r}",
            fix=f"renew it with `invoke lock --platform {platform.name}`",
        )
    return lock.parts[name]


def _digest(platform: Platform, lock: Lock, parts: Sequence[str]) -> str:
    """Name a tree by all that decides its content: the files, the recipe, the platform."""
    digest = hashlib.sha256()
    for name in sorted(parts):
        for item in _locked(platform, lock, name):
            digest.update(f"{name} {item.sha256}\n".encode())
    for module in (assemble, debian, sys.modules[__name__]):
        digest.update(inspect.getsource(module).encode())
    digest.update(platform.toolchain.compiler.encode())
    return digest.hexdigest()

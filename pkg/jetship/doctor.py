"""What each task needs of the build machine, looked up and tried out."""

import os
import platform
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from jetship import proc
from jetship.engine import connect
from jetship.errors import JetshipError, ToolMissingError
from jetship.store import Store
from jetship.toolchain.debian import find_mirror

NEEDED_GLIBC = (2, 36)
BINFMT_AARCH64 = Path("/proc/sys/fs/binfmt_misc/qemu-aarch64")


@dataclass(frozen=True)
class Examined:
    """One thing that a task needs, and what was found."""

    name: str
    needed_for: str
    ok: bool
    found: str
    fix: str = ""
    packages: tuple[str, ...] = ()
    """Debian packages that mend it."""

    def to_json(self) -> dict[str, Any]:
        """Return the row as JSON."""
        return asdict(self)


def examine(store: Store) -> list[Examined]:
    """Look at everything that jetship's tasks need."""
    return [
        _machine(),
        _glibc(),
        _python(),
        _program("dpkg-deb", "build", ("dpkg",)),
        _answer("Debian archive", "build", find_mirror, "set JETSHIP_DEBIAN_MIRROR"),
        _space(store),
        _answer("Docker engine", "image and smoke", _engine, "apt-get install docker.io",
                () if proc.find("dockerd") else ("docker.io",)),
        _emulation(),
    ]  # fmt: skip


def mend(lacking: Sequence[Examined]) -> None:
    """Install the Debian packages that mend what is lacking.

    Raises:
        ToolMissingError: not root and no sudo, or apt fails; says the command.
    """
    install([package for one in lacking for package in one.packages])


def install(packages: Sequence[str]) -> None:
    """Install Debian packages, as root or with sudo.

    Raises:
        ToolMissingError: not root and no sudo, or apt fails; says the command.
    """
    if not packages:
        return
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *packages]
    prefix = _privilege()
    if prefix is None or proc.find("apt-get") is None:
        raise ToolMissingError(
            f"{', '.join(packages)} must be installed, and that needs root",
            fix=f"sudo {' '.join(command)}",
        )
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    proc.run([*prefix, "apt-get", "update"], env=env, capture=True)
    done = proc.run([*prefix, *command], env=env)
    if not done.ok:
        raise ToolMissingError(
            f"apt-get could not install {', '.join(packages)}",
            why=done.stderr.strip()[-300:],
            fix=f"mend that, then: {' '.join(command)}",
        )


def _privilege() -> list[str] | None:
    if os.geteuid() == 0:
        return []
    if proc.find("sudo") and proc.run(["sudo", "--non-interactive", "true"]).ok:
        return ["sudo", "--non-interactive"]
    return None


def _machine() -> Examined:
    machine = platform.machine()
    return Examined(
        "x86-64 machine", "build", machine == "x86_64", machine, "build on an x86-64 machine"
    )


def _glibc() -> Examined:
    found = os.confstr("CS_GNU_LIBC_VERSION") or "unknown"
    version = tuple(int(part) for part in found.split()[-1].split(".") if part.isdigit())
    fix = "the toolchain's programs need Debian 12, Ubuntu 24.04 or newer"
    return Examined("glibc 2.36 or newer", "build", version >= NEEDED_GLIBC, found, fix)


def _python() -> Examined:
    done = proc.run([sys.executable, "-m", "pip", "--version"])
    found = f"{platform.python_version()}, {done.stdout.strip() or 'without pip'}"
    fix = f"{sys.executable} -m ensurepip"
    return Examined("Python with pip", "build", done.ok, found, fix)


def _program(name: str, needed_for: str, packages: tuple[str, ...]) -> Examined:
    path = proc.find(name)
    fix = f"apt-get install {' '.join(packages)}"
    return Examined(name, needed_for, path is not None, str(path or "not on PATH"), fix, packages)


def _answer(
    name: str,
    needed_for: str,
    ask: Callable[[], str],
    fix: str,
    packages: tuple[str, ...] = (),
) -> Examined:
    try:
        return Examined(name, needed_for, True, ask())  # noqa: FBT003
    except JetshipError as error:
        found = error.what + (f" ({error.why})" if error.why else "")
        return Examined(name, needed_for, False, found, error.fix or fix, packages)  # noqa: FBT003


def _engine() -> str:
    version = connect().version()
    return f"{version['Version']} ({version['Os']}/{version['Arch']})"


def _space(store: Store) -> Examined:
    folder = store.root
    while not os.path.lexists(folder):
        folder = folder.parent
    if not os.access(folder, os.W_OK):
        found = f"{store.root} cannot be written to"
        fix = "set JETSHIP_CACHE to a folder that is yours"
        return Examined("3 GB for the cache", "build", False, found, fix)  # noqa: FBT003
    stat = os.statvfs(folder)
    free = stat.f_bavail * stat.f_frsize / 1e9
    fix = "free some space, or set JETSHIP_CACHE to a folder on a larger disk"
    found = f"{free:.0f} GB free at {store.root}"
    return Examined("3 GB for the cache", "build", free >= 3, found, fix)


def _emulation() -> Examined:
    enabled = BINFMT_AARCH64.exists() and BINFMT_AARCH64.read_text().startswith("enabled")
    found = "qemu-aarch64 is registered" if enabled else "the kernel has no interpreter for arm64"
    fix = (
        "apt-get install qemu-user-static binfmt-support; in a container or virtual machine "
        "`mount -t binfmt_misc binfmt_misc /proc/sys/fs/binfmt_misc` first, then "
        "`update-binfmts --enable qemu-aarch64`"
    )
    packages = ("qemu-user-static", "binfmt-support")
    return Examined("arm64 emulation", "smoke", enabled, found, fix, packages)

"""The tasks of this repository: jetship's own, and those of its development."""

import contextlib
import os
import sys
import tempfile
from pathlib import Path

from invoke.context import Context
from jetship import proc
from jetship.errors import ConfigError, JetshipError
from jetship.tasks.command import command
from jetship.tasks.main import namespace
from jetship.tasks.wheels import build

ROOT = Path(__file__).resolve().parent
TEST_PACKAGES = {
    # program that shows the package is there -> package
    "git": "git",
    "gcc": "gcc",
    "g++": "g++",
    "dockerd": "docker.io",
    "qemu-aarch64-static": "qemu-user-static",
    "update-binfmts": "binfmt-support",
    "dpkg-scanpackages": "dpkg-dev",
    "ssh": "openssh-client",
    "/usr/sbin/sshd": "openssh-server",
    "openssl": "openssl",
    "gpg": "gpg",
    "gpg-agent": "gpg-agent",
    "chromium": "chromium",
    "ip": "iproute2",
    "/usr/bin/python3": "python3-minimal",
    "faketime": "faketime",
    "docker-registry": "docker-registry",
}

PTX_ARCHS = "5.3+PTX,6.2+PTX,7.0+PTX,7.2+PTX"
PTX_PLATFORMS = ("debian-12", "debian-11")  # nvcc 11.8 and 11.2


class ChecksFailedError(JetshipError):
    """The repository's own checks did not pass."""


def _python(*words: str) -> bool:
    return proc.run([sys.executable, "-m", *words], cwd=ROOT, capture=False).ok


@command()
def lint(_: Context) -> None:
    """Check the formatting, the rules and the types of this repository."""
    passed = [
        _python("ruff", "format", "--check", "pkg", "tests", "tasks.py"),
        _python("ruff", "check", "pkg", "tests", "tasks.py"),
        _python("mypy"),
    ]
    if not all(passed):
        raise ChecksFailedError(
            "lint failed", fix="see above; `ruff format` and `ruff check --fix` help"
        )


@command(
    help={
        "select": "pytest's -k: run only tests with this in their name",
        "long": "also those that take long",
    }
)
def test(_: Context, *, select: str = "", long: bool = False) -> None:
    """Run all tests: unit tests, and real builds, images and emulated runs.

    Installs what they need (a compiler, Docker Engine, qemu, GnuPG) through apt.
    """
    from jetship import doctor

    doctor.install([package for name, package in TEST_PACKAGES.items() if proc.find(name) is None])
    words = ["pytest"]
    if select:
        words += ["-k", select]
    words += ["-m", ""] if long else []
    if not _python(*words):
        raise ChecksFailedError("tests failed", fix="see above")


@command(help={"out": "folder of the libraries"})
def ptx(_: Context, *, out: str = "dist-ptx") -> None:
    """Make what csrc/tests/test_wheel_ptx.py runs on a GPU: the PTX of wheels for older GPUs.

    Builds wheels of the op pack with PTX for 5.3, 6.2, 7.0 and 7.2, with CUDA 11.8 and 11.2, and
    from each a library for x86-64 that has the wheel's device code in it.
    """
    from jetship.store import Store, default_root
    from jetship.targets.catalog import Catalog
    from jetship.targets.resolve import resolve
    from jetship.toolchain.prepare import prepare

    folder = ROOT / out
    _require_folder(folder)
    (target,) = resolve(Catalog.load(), arch="6.2", platform=PTX_PLATFORMS[0])
    cuda = prepare(target, Store(default_root())).cuda_home / "bin"
    with tempfile.TemporaryDirectory() as dist:
        for platform in PTX_PLATFORMS:
            _build_op_pack(platform, dist)
        script = ROOT / "csrc/tools/wheel_ptx.py"
        tools = ("--nvcc", cuda / "nvcc", "--cuobjdump", cuda / "cuobjdump")
        wheels = sorted(Path(dist).glob("*.whl"))
        argv = (sys.executable, script, "--out", folder, *tools, *wheels)
        if not proc.run(argv, cwd=ROOT, capture=False).ok:
            raise ChecksFailedError("no libraries were made of the wheels", fix="see above")


def _build_op_pack(platform: str, dist: str) -> None:
    """Build the wheels of one platform in this process, so that an interrupt is told once."""
    with contextlib.redirect_stdout(sys.stderr):  # the wheels are gone when `ptx` ends
        build(
            Context(),
            arch=PTX_ARCHS,
            platform=platform,
            project=str(ROOT / "csrc"),
            deploy=str(ROOT / "deploy.yaml"),
            dist=dist,
        )


def _require_folder(folder: Path) -> None:
    """See that files can be put into a folder, or that it can be made, and leave nothing.

    Raises:
        ConfigError: neither.
    """
    there = next(one for one in (folder, *folder.parents) if os.path.lexists(one))
    try:
        tempfile.TemporaryDirectory(dir=there, prefix=".").cleanup()
    except OSError as error:
        raise ConfigError(
            f"--out {folder} cannot be used",
            why=f"{there}: {error.strerror}",
            fix="name another folder, or change its permissions",
        ) from error


ns = namespace()
ns.add_task(lint)
ns.add_task(test)
ns.add_task(ptx)

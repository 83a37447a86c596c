"""The tasks of this repository: jetship's own, and those of its development."""

import sys
from pathlib import Path

from invoke.context import Context
from jetship import proc
from jetship.errors import JetshipError
from jetship.tasks.command import command
from jetship.tasks.main import namespace

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


ns = namespace()
ns.add_task(lint)
ns.add_task(test)

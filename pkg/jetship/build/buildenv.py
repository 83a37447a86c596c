"""Build requirements, installed once for all builds that ask for the same."""

import hashlib
import os
import sys
from collections.abc import Collection
from dataclasses import dataclass
from importlib.metadata import distributions
from pathlib import Path

from jetship import console, proc
from jetship.errors import ConfigError, DownloadError
from jetship.store import Store, write_atomically
from jetship.toolchain.pypi import NO_ANSWER, pip_reason


@dataclass(frozen=True)
class BuildEnv:
    """A virtual environment of the build machine's Python, shared and never changed.

    It is what `build` calls an isolated environment.
    """

    root: Path

    @property
    def python_executable(self) -> str:
        """The environment's Python."""
        return str(self.root / "bin/python")

    def make_extra_environ(self) -> dict[str, str]:
        """Return the variables under which a hook finds the environment's programs."""
        return {"PATH": os.pathsep.join([str(self.root / "bin"), os.environ.get("PATH", "")])}

    @property
    def installed(self) -> tuple[str, ...]:
        """What is installed, as "name==version", in order."""
        found = distributions(path=[str(path) for path in self.root.glob("lib/python*/*-packages")])
        return tuple(sorted(f"{one.name}=={one.version}" for one in found))


def build_env(
    store: Store, requirements: Collection[str], constraints: Collection[str], log: Path
) -> BuildEnv:
    """Return an environment with these requirements, installing them where none has them yet.

    What pip chose for a requirement such as "setuptools>=61" stays chosen as long as the
    environment is in the cache, so that a build that is run again sees the same.

    Args:
        store: the environment is a tree in it.
        requirements: as pip takes them.
        constraints: versions that pip may choose from.
        log: pip's output goes here where it fails.

    Raises:
        ConfigError: no versions of them fit the constraints.
        DownloadError: pip cannot install them.
    """
    wanted = sorted(requirements)
    limits = [*sorted(constraints), *users_constraints()]
    asked = "\n".join([sys.version, sys.prefix, *wanted, "", *limits])

    def make(root: Path) -> None:
        if wanted:
            console.note(f"build requirements: {', '.join(wanted)} (once)")
        _make_venv(root)
        _install(root, wanted, limits, log)
        _name_final_place(root)

    return BuildEnv(store.tree("buildenv", hashlib.sha256(asked.encode()).hexdigest(), make))


def users_constraints() -> list[str]:
    """Return the lines of the constraints file that the user's pip is set to."""
    named = os.environ.get("PIP_CONSTRAINT", "").split()
    return [
        line
        for name in named
        if Path(name).is_file()
        for line in Path(name).read_text().split("\n")
    ]


def _make_venv(root: Path) -> None:
    done = proc.run([sys.executable, "-m", "venv", "--without-pip", "--clear", root])
    if not done.ok:
        raise DownloadError(
            f"{sys.executable} cannot make a virtual environment",
            why=(done.stderr or done.stdout).strip()[-300:],
            fix="on Debian: apt-get install python3-venv",
        )


def _install(root: Path, wanted: list[str], limits: list[str], log: Path) -> None:
    if not wanted:
        return
    write_atomically(root / "constraints.txt", "\n".join(limits).encode())
    python = str(root / "bin/python")
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "--quiet"]
    options = ["--disable-pip-version-check", "--no-warn-script-location", "--retries", "2"]
    done = proc.run([*pip, *options, "--constraint", str(root / "constraints.txt"), *wanted])
    if not done.ok:
        with log.open("a") as stream:
            stream.write(done.stdout + done.stderr)
        raise _not_installed(wanted, limits, pip_reason(done.stderr), log)


def _not_installed(
    wanted: list[str], limits: list[str], reason: str, log: Path
) -> DownloadError | ConfigError:
    what = f"build requirements cannot be installed: {', '.join(wanted)}"
    given = [line for line in limits if line]
    held = any(f"found for {line}" in reason for line in given)
    if (held or "ResolutionImpossible" in reason) and NO_ANSWER not in reason:
        return ConfigError(
            what + (f", with the constraints {', '.join(given)}" if given else ""),
            why=f"the package index has no versions that fit all of them; pip's output is in {log}",
            fix="correct `constraints` under `build:` in deploy.yaml, PIP_CONSTRAINT, or the "
            "project's [build-system] requires",
        )
    return DownloadError(
        what,
        why=reason or f"pip's output is in {log}",
        fix="check the network and pip's settings, or the project's [build-system] requires",
    )


def _name_final_place(root: Path) -> None:
    """Let scripts start the Python at the place where the tree will be published."""
    made, final = str(root).encode(), str(root.with_name(root.name.removeprefix("."))).encode()
    for script in (root / "bin").iterdir():
        if not script.is_symlink() and (text := script.read_bytes()).startswith(b"#!"):
            script.write_bytes(text.replace(made, final))

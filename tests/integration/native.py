"""jetops built for this machine, and an interpreter that has it, with a torch for CPUs."""

import shutil
import sys
import tempfile
from pathlib import Path

from jetship import proc
from jetship.store import default_root
from product import ROOT

TORCH = "2.13.0"
PACKAGES = ("numpy", "setuptools", "wheel", "ninja", "pytest", "hypothesis", "expecttest",
            "matplotlib")  # fmt: skip
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


def packages() -> Path:
    """Return a folder with torch and what builds and tests jetops; it is made once and kept."""
    folder = default_root() / "tests" / f"native-torch-{TORCH}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as name:
            made = Path(name) / "packages"
            _install_torch(made)
            made.rename(folder)
    return folder


def _install_torch(into: Path) -> None:
    """Take the CPU build where an index has one: the other brings gigabytes of CUDA along."""
    for version in (f"{TORCH}+cpu", TORCH):
        done = proc.run([*PIP, "install", "--target", into, f"torch=={version}", *PACKAGES])
        if done.ok:
            return
        shutil.rmtree(into, ignore_errors=True)
    raise AssertionError(done.stderr)


def interpreter(folder: Path, *, jetops: bool = True) -> Path:
    """Make an environment with torch, and with jetops built from csrc/, and return its python."""
    venv = folder / "venv"
    done = proc.run([sys.executable, "-m", "venv", "--without-pip", venv])
    assert done.ok, done.stderr
    (site,) = venv.glob("lib/python*/site-packages")
    (site / "packages.pth").write_text(f"{packages()}\n")
    python = venv / "bin/python"
    if jetops:
        # A copy, as setuptools leaves its own folders beside the sources.
        sources = Path(shutil.copytree(ROOT / "csrc", folder / "csrc"))
        words = ("install", "--no-deps", "--no-build-isolation", "--no-index", sources)
        done = proc.run([*PIP, "--python", python, *words])
        assert done.ok, done.stderr
    return python

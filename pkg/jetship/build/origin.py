"""Where a project comes from: a folder, an sdist file, or a requirement that the index has."""

import os
import re
import sys
import tarfile
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    parse_sdist_filename,
    parse_wheel_filename,
)
from setuptools.archive_util import unpack_archive
from setuptools.errors import BaseError

from jetship import console, proc
from jetship.build.project import ONLY_SETUPTOOLS, Project, open_project
from jetship.errors import ConfigError, DownloadError
from jetship.store import FULL, Store, sha256_of
from jetship.toolchain.pypi import pip_reason
from jetship.wheelarchive import DAMAGED

SDIST_BACKEND = Path(__file__).parent / "sdist_backend"
SDIST_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")


def find_project(text: str, store: Store) -> Project:
    """Return the project that `--project` names.

    Args:
        text: a folder, an sdist file, or a requirement with a version ("torch-scatter==2.1.2").
            A bare name is not taken for a requirement: it may as well be a folder that is
            mistyped, and whoever owns that name on the index would run code here.
        store: sdists are downloaded and unpacked into it.

    Raises:
        ConfigError: it is none of them, or what it names cannot be built.
        DownloadError: the index has no such sdist, or does not answer.
    """
    path = Path(text)
    if path.is_dir():
        return open_project(path)
    if path.is_file():
        return _open_sdist(path, store)
    requirement = _requirement(text)
    if requirement is None:
        raise ConfigError(
            f"--project {text} does not exist",
            fix="name a folder, an sdist file, or a requirement with its version, such as "
            "torch-scatter==2.1.2",
        )
    with store.scratch() as scratch:
        return _open_sdist(_download(requirement, scratch), store)


def _requirement(text: str) -> Requirement | None:
    """Return the requirement, or None where the text reads as a path.

    Raises:
        ConfigError: it is a requirement that names no version, or says more than a version.
    """
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return None
    if requirement.url or requirement.extras or requirement.marker:
        raise ConfigError(
            f"--project {text} says more than a name and a version",
            fix="download the sdist and name the file, or leave extras, markers and addresses out",
        )
    if requirement.specifier:
        return requirement
    if text.endswith(SDIST_SUFFIXES) or PurePosixPath(text).suffix == ".whl":
        return None
    raise ConfigError(
        f"--project {text} does not exist",
        fix=f"name a folder or an sdist file; for a project of the package index add the version: "
        f"{text}==VERSION",
    )


def _download(requirement: Requirement, scratch: Path) -> Path:
    """Download an sdist without running anything of it."""
    console.step(f"fetching the sdist of {requirement}")
    into = scratch / "sdist"
    env = {**os.environ, "PYTHONPATH": str(SDIST_BACKEND), "TMPDIR": str(scratch)}
    done = proc.run(
        [
            *(sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"),
            *("--no-binary=:all:", "--no-build-isolation", "--use-pep517"),
            *("--disable-pip-version-check", "--retries", "2", "--progress-bar", "off"),
            # The target's Python builds it, not the one that runs pip.
            *("--ignore-requires-python", "--dest", into, str(requirement)),
        ],
        env={**env, "LC_ALL": "C.UTF-8"},
    )
    found = sorted(into.glob("*")) if done.ok else []
    if len(found) != 1:
        raise _not_found(requirement, done)
    return found[0]


def _not_found(requirement: Requirement, done: proc.Finished) -> DownloadError | ConfigError:
    if "BackendUnavailable" in done.stderr or "Cannot import '" in done.stderr:
        return ConfigError(
            f"{requirement} is built by another backend than setuptools",
            why=ONLY_SETUPTOOLS,
            fix="a project without C++ needs no cross build: pip on the target installs it",
        )
    reason = pip_reason(done.stderr)
    if "No matching distribution" in done.stderr:
        others = re.search(r"\(from versions: (?!none)(.+?)\)", done.stderr)
        listed = others[1].split(", ")[-6:] if others else []
        return DownloadError(
            f"the package index has no sdist of {requirement}",
            why=f"it has sdists of {', '.join(listed)}" if listed else "it has wheels only, or "
            "no project of that name",
            fix="name a version that it has" if listed else
            "get the sources another way (git clone) and name their folder",
        )  # fmt: skip
    return DownloadError(
        f"the sdist of {requirement} cannot be downloaded",
        why=reason or done.stderr.strip()[-300:],
        fix="check the network and pip's settings, then run the same command again",
    )


def _open_sdist(path: Path, store: Store) -> Project:
    """Unpack an sdist into the cache, and return the project in it.

    Raises:
        ConfigError: it is no sdist, or a damaged one.
    """
    title = _title(path)
    digest = sha256_of(path)

    def make(root: Path) -> None:
        try:
            unpack_archive(str(path), str(root))  # skips or refuses what would land outside
        except (*DAMAGED, BaseError, tarfile.TarError) as error:
            if isinstance(error, OSError) and error.errno in FULL:
                raise
            raise ConfigError(
                f"{path} cannot be unpacked",
                why=str(error),
                fix="it is damaged, or no sdist: download it again",
            ) from error

    root = store.tree(f"sdist-{title}", digest, make)
    inside = [entry for entry in root.iterdir() if entry.is_dir()]
    if len(inside) != 1:
        raise ConfigError(
            f"{path} is no sdist: it holds {len(inside)} folders at its top, not one",
            fix="unpack it, and name the folder of the project in it",
        )
    console.note(f"{path.name}, sha256 {digest}")
    return open_project(inside[0], title=title, released=True)


def _title(path: Path) -> str:
    """Return an sdist's name and version, as its file name says."""
    try:
        parse_wheel_filename(path.name)
    except InvalidWheelFilename:
        pass
    else:
        raise ConfigError(
            f"{path} is a wheel, which is built already",
            fix=f"`invoke check {path}` says where it runs; to build, name the project's sources",
        )
    name = path.name
    for suffix in SDIST_SUFFIXES:
        if name.endswith(suffix):
            name = name.removesuffix(suffix)
            break
    else:
        raise ConfigError(
            f"{path} is neither a folder nor an sdist",
            fix=f"an sdist ends in {', '.join(SDIST_SUFFIXES[:1] + SDIST_SUFFIXES[-1:])}",
        )
    try:
        project, version = parse_sdist_filename(f"{name}.tar.gz")
    except InvalidSdistFilename:
        return name
    return f"{project}-{version}"

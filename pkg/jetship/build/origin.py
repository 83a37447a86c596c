"""Where a project comes from: a folder, an sdist file, or a requirement that the index has."""

import difflib
import hashlib
import inspect
import os
import re
import shlex
import sys
from pathlib import Path, PurePosixPath

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import (
    InvalidSdistFilename,
    InvalidWheelFilename,
    canonicalize_name,
    parse_sdist_filename,
    parse_wheel_filename,
)

from jetship import console, proc
from jetship.build import sdistfile
from jetship.build.project import ONLY_SETUPTOOLS, Project, open_project
from jetship.errors import ConfigError, DownloadError
from jetship.store import Store, sha256_of
from jetship.toolchain.pypi import NO_ANSWER, pip_reason

SDIST_BACKEND = Path(__file__).parent / "sdist_backend"
SDIST_SUFFIXES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".zip")
LIKE_A_FOLDER = 0.75  # of 1, as difflib has it: two letters of four are swapped


def find_project(text: str, store: Store) -> Project:
    """Return the project that `--project` names.

    Args:
        text: a folder, an sdist file, or a requirement such as "torch-scatter==2.1.2".
        store: sdists are downloaded and unpacked into it.

    Raises:
        ConfigError: it is none of them, or what it names cannot be built.
        DownloadError: the index has no such sdist, or does not answer.
    """
    requirement = requirement_in(text)
    if requirement is not None:
        with store.scratch() as scratch:
            return _open_sdist(_download(requirement, scratch), store)
    path = Path(text)
    return _open_sdist(path, store) if path.is_file() else open_project(path)


def requirement_in(text: str) -> Requirement | None:
    """Return the requirement that `--project` names; None where it is a folder or file.

    A bare name is a requirement where there is no folder of that name, nor one of nearly that name:
    of a folder that is mistyped somebody else's code must not be built.

    Raises:
        ConfigError: it is neither, or a requirement that says more than name and version.
    """
    if Path(text).exists():
        return None
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        requirement = None
    if "://" in text and (requirement is None or not requirement.url):
        raise ConfigError(
            f"--project {text} is an address, and jetship builds what is here or on the package "
            "index",
            fix="get it first (git clone, or download the sdist) and name the folder or file",
        )
    if requirement is None or (not requirement.url and _is_named_as_file(text)):
        raise ConfigError(
            f"--project {text} does not exist",
            fix="name a folder, an sdist file, or a requirement such as torch-scatter==2.1.2",
        )
    if requirement.url or requirement.extras or requirement.marker:
        raise ConfigError(
            f"--project {text} says more than a name and a version",
            fix="download the sdist and name the file, or leave extras, markers and addresses out",
        )
    if not requirement.specifier:
        _refuse_mistyped(text)
    return requirement


def _is_named_as_file(text: str) -> bool:
    return text.endswith(SDIST_SUFFIXES) or PurePosixPath(text).suffix == ".whl"


def _refuse_mistyped(name: str) -> None:
    folders: dict[str, str] = {
        canonicalize_name(one.name): one.name for one in Path().iterdir() if one.is_dir()
    }
    close = difflib.get_close_matches(canonicalize_name(name), folders, 1, LIKE_A_FOLDER)
    if close:
        raise ConfigError(
            f"--project {name}: there is no such folder, but there is {folders[close[0]]}",
            why="it may be that folder, or a project of the package index",
            fix=f"name the folder, or a version of the project: {name}==VERSION",
        )


def _download(requirement: Requirement, scratch: Path) -> Path:
    """Download an sdist without running its setup.py; a backend in its own tree is imported."""
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
    if "ResolutionImpossible" in done.stderr and NO_ANSWER not in reason:
        # Of one project without what it depends on, only a constraint can stand against it.
        return DownloadError(
            f"the package index has no sdist of {requirement} that pip may take",
            why="it has wheels only, or a constraint in pip's settings (PIP_CONSTRAINT, "
            "`pip config list`) leaves no version",
            fix="get the sources another way (git clone) and name their folder, or mend the "
            "constraint",
        )
    bare = not requirement.specifier
    other = f"there is no folder {requirement} here either" if bare else ""
    if "No matching distribution" in done.stderr and NO_ANSWER not in reason:
        others = re.search(r"\(from versions: (?!none)(.+?)\)", done.stderr)
        listed = others[1].split(", ")[-6:] if others else []
        why = f"it has sdists of {', '.join(listed)}" if listed else (
            "it has wheels only, or no project of that name"
        )  # fmt: skip
        return DownloadError(
            f"the package index has no sdist of {requirement}",
            why="; ".join(filter(None, [why, other])),
            fix="name a version that it has" if listed else
            "get the sources another way (git clone) and name their folder",
        )  # fmt: skip
    return DownloadError(
        f"the sdist of {requirement} cannot be downloaded",
        why="; ".join(filter(None, [reason or done.stderr.strip()[-300:], other])),
        fix="check the network and pip's settings, then run the same command again"
        + (", or name the folder that you mean" if bare else ""),
    )


def _open_sdist(path: Path, store: Store) -> Project:
    """Unpack an sdist into the cache, and return the project in it.

    Raises:
        ConfigError: it is no sdist, a damaged one, or one that `sdistfile` refuses.
    """
    title = _title(path)
    digest = sha256_of(path)
    # Another way of unpacking may give another tree.
    key = hashlib.sha256(f"{digest} {inspect.getsource(sdistfile)}".encode()).hexdigest()
    root = store.tree(f"sdist-{title}", key, lambda root: sdistfile.unpack(path, root))
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
            fix=f"`invoke check {shlex.quote(str(path))}` says where it runs; to build, name the "
            "project's sources",
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

"""What a build is made from, as one digest: the same digest, the same wheel."""

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from jetship import proc
from jetship.build.buildenv import users_constraints
from jetship.build.project import Project
from jetship.store import sha256_of
from jetship.targets.buildsettings import BuildSettings
from jetship.targets.model import Target
from jetship.toolchain.model import Toolchain

# Files of a project that may ask for a variable of the environment.
_ASKING = frozenset({".py", ".toml", ".cfg", ".cmake", ".sh", ".txt", ".in"})
# setuptools-scm takes the version from these, and the project names only setuptools-scm.
_SCM = "SETUPTOOLS_SCM_"
_WORD = re.compile(r"\b[A-Za-z_][A-Za-z0-9_]{2,}\b")


def fingerprint(
    project: Project,
    target: Target,
    toolchain: Toolchain,
    settings: BuildSettings,
    environ: Mapping[str, str],
) -> str:
    """Return the digest of everything that decides a wheel's bytes.

    That is every file of the project, the target, the toolchain (whose name is a digest of its
    parts), the settings of deploy.yaml, jetship's own build stage, the constraints of the
    user's pip, the commit and tag that git would make a version of, and those variables of the
    environment whose names the project mentions.
    """
    digest = hashlib.sha256()
    words = (target.id, toolchain.root.name, settings.model_dump_json(), sys.version)
    named = (*_variables(project, environ), *users_constraints())
    for line in (*words, *_own_code(), *_files(project), *_commit(project, environ), *named):
        # A file name need not be UTF-8.
        digest.update(f"{line}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()


def _own_code() -> Iterator[str]:
    package = Path(__file__).parents[1]
    for path in sorted([*package.glob("*.py"), *package.glob("build/**/*.py")]):
        yield f"{path.relative_to(package)} {sha256_of(path)}"


def _files(project: Project) -> Iterator[str]:
    for path in project.files():
        name = path.relative_to(project.folder)
        if path.is_symlink():
            yield f"{name} -> {path.readlink()}"
            if path.is_dir() and not path.resolve().is_relative_to(project.folder.resolve()):
                for file in sorted(path.resolve().rglob("*")):
                    yield from _file(file, f"{name}/{file.relative_to(path.resolve())}")
        yield from _file(path, str(name))


def _commit(project: Project, environ: Mapping[str, str]) -> Iterator[str]:
    history = project.folder / ".git"
    if history.is_dir() and proc.find("git"):
        where = ("--git-dir", history, "--work-tree", project.folder)
        words = ("describe", "--always", "--tags", "--long", "--dirty")
        done = proc.run(["git", *where, *words], env={**environ, "GIT_OPTIONAL_LOCKS": "0"})
        if done.ok:
            yield done.stdout


def _file(path: Path, name: str) -> Iterator[str]:
    if path.is_file():
        yield f"{name} {path.stat().st_mode & 0o111} {sha256_of(path)}"


def _variables(project: Project, environ: Mapping[str, str]) -> Iterator[str]:
    mentioned = {"SOURCE_DATE_EPOCH", *(name for name in environ if name.startswith(_SCM))}
    for path in project.files():
        if path.suffix in _ASKING and path.is_file():
            mentioned |= set(_WORD.findall(path.read_text(encoding="utf-8", errors="replace")))
    for name in sorted(mentioned & set(environ)):
        yield f"{name}={environ[name]}"

"""What jetship must know of a project before it builds it."""

import os
import shutil
import stat
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement

from jetship.errors import ConfigError
from jetship.store import is_full

SETUPTOOLS_BACKENDS = ("setuptools.build_meta", "setuptools.build_meta:__legacy__")
ONLY_SETUPTOOLS = (
    "the cross environment works through setuptools and torch.utils.cpp_extension, "
    "which other backends do not use"
)
OTHER_BACKENDS = ("hatchling", "poetry", "scikit-build", "mesonpy", "meson-python", "maturin",
                  "flit", "pdm", "uv-build", "sipbuild")  # fmt: skip

# Never copied out of somebody's folder: history, caches, and at its top the results of other
# builds (a stale object for another arch looks up to date to setuptools) and environments.
NOT_SOURCES = (".git", ".hg", "*.egg-info", "__pycache__", ".mypy_cache", ".pytest_cache",
               ".ruff_cache", ".hypothesis")  # fmt: skip
NOT_SOURCES_AT_TOP = ("build", "dist", ".venv", "venv", ".tox", ".nox")


@dataclass(frozen=True)
class Project:
    """A folder with a setuptools project.

    `title` is what logs and people call it. `import_guard` is the package that asked for the
    import guard, with `[tool.jetship] import-guard = "package"` in its pyproject.toml; None where
    it did not. `released` says that the folder is an unpacked sdist, all of which is source.
    """

    folder: Path
    title: str
    import_guard: str | None = None
    released: bool = False

    def copy_sources(self, destination: Path) -> None:
        """Copy what a build needs; the project's own folder is never written to.

        Instead of the history the copy gets a .git file that leads to it, so that versions and
        lists of files that come from git are right.

        Raises:
            ConfigError: there is something in the folder that cannot be copied.
        """

        def ignored(folder: str, names: list[str]) -> set[str]:
            return self._ignored(folder, names) | {
                name
                for name in names
                if destination.resolve().is_relative_to(Path(folder).resolve() / name)
            }

        try:
            shutil.copytree(self.folder, destination, symlinks=True, ignore=ignored)
        except shutil.Error as error:
            if is_full(error):
                raise  # that is about the cache's disk, and told there
            raise ConfigError(
                f"not all of {self.folder} can be copied",
                why="; ".join(str(why) for _, _, why in error.args[0][:3]),
                fix="a project is files, folders and links: take out what is something else",
            ) from error
        _make_writable(destination)
        _keep_links_out(self.folder, destination)
        if (self.folder / ".git").is_dir() and not self.released:
            history = os.fsencode(self.folder.resolve() / ".git")
            (destination / ".git").write_bytes(b"gitdir: " + history + b"\n")

    def files(self) -> Iterator[Path]:
        """Yield every file that a build gets to see, and every link to a folder."""
        for folder, folders, names in os.walk(self.folder):
            folders[:] = sorted(set(folders) - self._ignored(folder, folders))
            links = [name for name in folders if Path(folder, name).is_symlink()]
            for name in sorted({*links, *names} - self._ignored(folder, names)):
                yield Path(folder, name)

    def _ignored(self, folder: str, names: list[str]) -> set[str]:
        if self.released:
            return set()
        at_top = NOT_SOURCES_AT_TOP if Path(folder) == self.folder else ()
        return {
            name
            for name in names
            if any(fnmatchcase(name, pattern) for pattern in NOT_SOURCES + at_top)
        }


def _make_writable(copy: Path) -> None:
    """Let a build write beside its sources, which it does, where the project is read-only."""
    for path in (copy, *copy.rglob("*")):
        if not path.is_symlink():
            path.chmod(path.stat().st_mode | stat.S_IWUSR)


def _keep_links_out(folder: Path, copy: Path) -> None:
    """Let relative links that lead out of a project (../README.md) do so from its copy, too."""
    for link in [path for path in copy.rglob("*") if path.is_symlink()]:
        meant = Path(folder, link.relative_to(copy)).resolve()
        outside = not meant.is_relative_to(folder.resolve())
        if outside and meant.exists() and not link.readlink().is_absolute():
            link.unlink()
            link.symlink_to(meant)


def open_project(folder: Path, *, title: str = "", released: bool = False) -> Project:
    """Read a project's pyproject.toml, where there is one.

    Args:
        folder: the project.
        title: what to call it (default: the folder's name).
        released: whether the folder is an unpacked sdist.

    Raises:
        ConfigError: there is no such folder, nothing in it to build, a damaged
            pyproject.toml, or another build backend than setuptools.
    """
    if not folder.is_dir():
        raise ConfigError(
            f"project folder {folder} does not exist", fix="name it with --project DIR"
        )
    pyproject = folder / "pyproject.toml"
    if not pyproject.is_file() and not (folder / "setup.py").is_file():
        raise ConfigError(
            f"{folder} is not a Python project: it has neither pyproject.toml nor setup.py",
            fix="name the folder that has one with --project DIR",
        )
    title = title or folder.resolve().name
    if not pyproject.is_file():
        return Project(folder, title, released=released)
    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{pyproject} is not valid TOML", why=str(error), fix="mend it there"
        ) from error
    _require_setuptools(pyproject, table)
    return Project(folder, title, _import_guard(pyproject, table), released)


def _require_setuptools(pyproject: Path, table: dict[str, object]) -> None:
    """Refuse other backends; one in the project's own tree is run, as most pass on to setuptools.

    Raises:
        ConfigError: the project has another backend, by its name or by what it builds with.
    """
    system = table.get("build-system", {})
    if not isinstance(system, dict):
        return
    requires, backend = system.get("requires", []), system.get("build-backend")
    _require_texts(pyproject, requires, backend)
    if backend is None:
        return
    words = [backend, *requires]
    other = next((word for word in words if _is_of_another(word)), None)
    own = system.get("backend-path") and other is None
    if backend not in SETUPTOOLS_BACKENDS and not own:
        through = f" through {other}" if other not in (None, backend) else ""
        raise ConfigError(
            f"{pyproject}: build backend {backend!r}{through} is not supported",
            why=ONLY_SETUPTOOLS,
            fix='build extensions with `build-backend = "setuptools.build_meta"`',
        )


def _require_texts(pyproject: Path, requires: object, backend: object) -> None:
    """Refuse what PEP 518 does not allow; all that is wrong is told at once.

    Raises:
        ConfigError: `requires` is no list of requirements, or `build-backend` no text.
    """
    wrong = []
    if not isinstance(requires, list):
        wrong.append(f'requires is {requires!r}, and has to be a list such as ["setuptools"]')
    else:
        found = [one for one in requires if not _is_requirement(one)]
        wrong += [f"requires has {one!r}, which is no requirement" for one in found]
    if backend is not None and not isinstance(backend, str):
        wrong.append(f"build-backend is {backend!r}, and has to be a text")
    if wrong:
        raise ConfigError(
            f"{pyproject}: [build-system] {'; '.join(wrong)}",
            fix='write it like requires = ["setuptools>=61"] and '
            'build-backend = "setuptools.build_meta"',
        )


def _is_requirement(value: object) -> bool:
    try:
        return isinstance(value, str) and bool(Requirement(value))
    except InvalidRequirement:
        return False


def _is_of_another(word: str) -> bool:
    return word.lower().replace("_", "-").startswith(OTHER_BACKENDS)


def _import_guard(pyproject: Path, table: dict[str, object]) -> str | None:
    tool = table.get("tool", {})
    options = tool.get("jetship", {}) if isinstance(tool, dict) else {}
    if not isinstance(options, dict):
        raise ConfigError(
            f"{pyproject}: [tool.jetship] must be a table, not {options!r}",
            fix='write it like [tool.jetship] and below it import-guard = "my_package"',
        )
    unknown = sorted(set(options) - {"import-guard"})
    if unknown:
        raise ConfigError(
            f"{pyproject}: [tool.jetship] has unknown keys: {', '.join(unknown)}",
            fix="known key: import-guard",
        )
    guard = options.get("import-guard")
    if guard is not None and not (isinstance(guard, str) and guard.isidentifier()):
        raise ConfigError(
            f"{pyproject}: [tool.jetship] import-guard must name a package, not {guard!r}",
            fix='write it like import-guard = "my_package"',
        )
    return guard

"""What jetship must know of a project before it builds it."""

import shutil
import tomllib
from dataclasses import dataclass
from pathlib import Path

from jetship.errors import ConfigError

SETUPTOOLS_BACKENDS = ("setuptools.build_meta", "setuptools.build_meta:__legacy__")

# Never copied into a build: results of other builds (a stale object for another arch looks up
# to date to setuptools), environments, and history.
NOT_SOURCES = shutil.ignore_patterns(
    ".git", ".hg", ".venv", "venv", "build", "dist", "*.egg-info", "__pycache__", ".tox", ".nox",
    ".mypy_cache", ".pytest_cache", ".ruff_cache", ".hypothesis",
)  # fmt: skip


@dataclass(frozen=True)
class Project:
    """A folder with a setuptools project.

    `import_guard` is the package that asked for the import guard, with
    `[tool.jetship] import-guard = "package"` in its pyproject.toml; None where it did not.
    """

    folder: Path
    import_guard: str | None

    def copy_sources(self, destination: Path) -> None:
        """Copy what a build needs; the project's own folder is never written to."""
        shutil.copytree(self.folder, destination, symlinks=True, ignore=NOT_SOURCES)


def open_project(folder: Path) -> Project:
    """Read a project's pyproject.toml, where there is one.

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
    if not pyproject.is_file():
        return Project(folder, None)
    try:
        table = tomllib.loads(pyproject.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(
            f"{pyproject} is not valid TOML", why=str(error), fix="mend it there"
        ) from error
    _require_setuptools(pyproject, table)
    return Project(folder, _import_guard(pyproject, table))


def _require_setuptools(pyproject: Path, table: dict[str, object]) -> None:
    system = table.get("build-system", {})
    backend = system.get("build-backend") if isinstance(system, dict) else None
    if backend is not None and backend not in SETUPTOOLS_BACKENDS:
        raise ConfigError(
            f"{pyproject}: build backend {backend!r} is not supported",
            why="the cross environment works through setuptools and torch.utils.cpp_extension, "
            "which other backends do not use",
            fix='build extensions with `build-backend = "setuptools.build_meta"`',
        )


def _import_guard(pyproject: Path, table: dict[str, object]) -> str | None:
    tool = table.get("tool", {})
    options = tool.get("jetship", {}) if isinstance(tool, dict) else {}
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

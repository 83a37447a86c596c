"""Where the data files are: beside pkg/ in a checkout, inside the package when installed."""

from pathlib import Path

from jetship.errors import ConfigError


def data_dir(name: str) -> Path:
    """Return the folder `toolchains` or `docker`.

    Raises:
        ConfigError: the installation lacks it.
    """
    package = Path(__file__).resolve().parent
    for candidate in (package / "data" / name, package.parent.parent / name):
        if candidate.is_dir():
            return candidate
    raise ConfigError(
        f"this installation of jetship has no {name}/ folder",
        fix="install jetship again; `pip install --force-reinstall jetship`",
    )

"""What `check` was given to look at: wheel files, folders, container images."""

import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jetship import console
from jetship.check.installed import distributions, read_installed
from jetship.check.wheel import Wheel, read_wheel
from jetship.errors import ConfigError, NothingSelectedError, ToolMissingError
from jetship.nofile import why_no_file
from jetship.store import Store
from jetship.targets.catalog import Catalog

# What the engine takes for the name of an image: registry, path, tag, digest.
_IMAGE = re.compile(
    r"[a-z0-9]+(?:[._:/-]+[a-z0-9]+)*(?::[\w][\w.-]{0,127})?(?:@sha256:[0-9a-f]{64})?"
)
_PACKAGES = ("usr/local/lib/python3*", "usr/lib/python3*", "lib/python3*")
_FOLDERS = ("dist-packages", "site-packages")


@dataclass(frozen=True)
class Input:
    """One thing to check: where it lies, how people call that place, and out of which image."""

    path: Path
    place: str
    kind: Literal["wheel", "installed"]
    image: str | None = None

    @property
    def name(self) -> str:
        return self.path.name.removesuffix(".dist-info")

    def read(self) -> Wheel:
        """Read it.

        Raises:
            CheckError: it is not what its name says.
        """
        return read_wheel(self.path) if self.kind == "wheel" else read_installed(self.path)


def inputs_of(words: Sequence[str], catalog: Catalog, store: Store) -> list[Input]:
    """Return what the words of the command line name, in their order.

    A word is a wheel file, a folder (all wheels in it, and all distributions that are installed
    in it and have native code or a pin record), or an image that the engine has.

    Raises:
        ConfigError: a word names nothing, or two things at once; names all such words.
        NothingSelectedError: there is nothing with native code in an image.
        ToolMissingError, ImageError, DownloadError: an image cannot be looked into.
    """
    problems: list[str] = []
    images: dict[str, str] = {}  # by the word, the machine that the engine records
    for word in words:
        problem = _problem(word, images)
        problems += [problem] if problem else []
    if problems:
        raise ConfigError(
            "; ".join(problems),
            fix="name wheels (dist/*.whl), a folder with wheels or installed packages, or an image "
            "as `docker images` calls it",
        )
    found: list[Input] = []
    for word in words:
        if word in images:
            found += _of_image(word, images[word], catalog, store)
        elif Path(word).is_dir():
            found += _of_folder(Path(word), word)
        else:
            found.append(Input(Path(word), word, "wheel"))
    return list({one.path: one for one in found}.values())


def _problem(word: str, images: dict[str, str]) -> str:
    """Say why a word names nothing to check; note the machine of one that names an image."""
    path = Path(word)
    if not word:
        return "one of the names is empty"
    could_be_image = not word.endswith(".whl") and _IMAGE.fullmatch(word) is not None
    if path.is_dir():
        if could_be_image and _image_machine(word)[0]:
            return f"{word} is a folder and an image: say ./{word}, or {word}:latest"
        return "" if _has_any(path) else _nothing_in(path)
    problem = why_no_file(path)
    if could_be_image and problem == "does not exist":
        return _no_image(word, images)
    return f"{word} {problem}" if problem else ""


def _no_image(word: str, images: dict[str, str]) -> str:
    machine, silence = _image_machine(word)
    if not machine:
        return f"{word} is no file or folder, and {silence}"
    images[word] = machine
    return ""


def _has_any(folder: Path) -> bool:
    return any(folder.glob("*.whl")) or any(folder.glob("*.dist-info"))


def _nothing_in(folder: Path) -> str:
    said = f"{folder} is a folder without wheels (*.whl) or installed packages (*.dist-info)"
    deeper = [str(one) for one in _package_folders(folder) if any(one.glob("*.dist-info"))]
    wheels = sorted({str(one.parent) for one in folder.glob("*/*.whl")})
    return said + (f"; did you mean {' or '.join([*deeper, *wheels])}?" if deeper or wheels else "")


def _image_machine(name: str) -> tuple[str, str]:
    """Return the machine that the engine records for an image, or "" and why there is none."""
    from jetship import engine  # noqa: PLC0415 - as for images, below

    try:
        client = engine.connect()
    except ToolMissingError as error:
        return "", f"whether it is an image cannot be told: {error.what} ({error.why})"
    with closing(client):
        found = engine.architecture_of(client, name)
    machines = {words[0]: machine for machine, words in engine.OCI_NAMES.items()}
    if found is None:
        return "", "the engine has no image of that name"
    return (machines[found], "") if found in machines else ("", f"the image is for {found}")


def _of_folder(folder: Path, place: str) -> Iterator[Input]:
    for path in sorted(folder.glob("*.whl")):
        yield Input(path, str(path), "wheel")
    yield from _installed(folder, place, None)


def _installed(folder: Path, place: str, image: str | None) -> Iterator[Input]:
    found, unlisted = distributions(folder)
    if unlisted:
        names = ", ".join(info.name.removesuffix(".dist-info") for info in unlisted[:3])
        more = f" and {len(unlisted) - 3} more" if len(unlisted) > 3 else ""
        console.note(f"{place}: not checked, as they came without RECORD or WHEEL: {names}{more}")
    for info in found:
        yield Input(info, f"{place}/{info.name}", "installed", image)


def _package_folders(root: Path) -> list[Path]:
    found = [
        folder
        for base in _PACKAGES
        for python in sorted(root.glob(base))
        for name in _FOLDERS
        if (folder := python / name).is_dir()
    ]
    return list(dict.fromkeys(found))


def _of_image(name: str, machine: str, catalog: Catalog, store: Store) -> list[Input]:
    # Docker's library takes long to import, and few runs name an image.
    from jetship.toolchain.imagetree import export_image  # noqa: PLC0415

    platform = next(one for one in catalog.platforms if one.machine == machine)
    tree = export_image(name, platform, store)
    folders = _package_folders(tree.root)
    found = [
        one
        for folder in folders
        for one in _installed(folder, f"{name}:/{folder.relative_to(tree.root)}", name)
    ]
    if not found:
        looked = ", ".join(f"/{folder.relative_to(tree.root)}" for folder in folders)
        raise NothingSelectedError(
            f"the image {name} has no installed package with native code or a jetship.json",
            why=f"looked for *.dist-info in {looked}" if looked
            else f"looked for {' and '.join(_FOLDERS)} below /{', /'.join(_PACKAGES[:2])}",
            fix="name the wheel files instead",
        )  # fmt: skip
    return found

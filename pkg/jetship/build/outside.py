"""What a project looks for outside of its folder, while a build has a copy of the folder alone."""

import os
import re
from collections.abc import Iterator
from pathlib import Path, PurePath

from jetship.build.causes import Cause

# GCC, nvcc and Python; ninja; setuptools.
_MISSED = re.compile(
    r"^.*(?:No such file or directory|missing and no known rule to make it|does not exist).*$",
    re.MULTILINE,
)
_WORD = re.compile(r"'([^'\n]+)'|([^\s'\":,()]+)")
_INCLUDE = re.compile(r"(?<!\S)-I ?'?([^\s']+)")


def find_outside(log: str, sources: Path, folder: Path) -> Cause | None:
    """Return the cause where a build missed what is there, beside the project's own folder.

    Args:
        log: what the build printed.
        sources: the copy that was built.
        folder: the folder that it was copied from.
    """
    place = Path(os.path.normpath(sources.resolve()))
    added = [place / path for path in dict.fromkeys(_INCLUDE.findall(log))]
    for line in _MISSED.findall(log):
        words = [quoted or plain for quoted, plain in _WORD.findall(line)]
        # A compiler's line begins with the file that includes, and a name is relative to that.
        bases = [place, place / Path(words[0]).parent, *added]
        named = [word for word in words if "." in word or "/" in word]
        for path in _meant(named, bases, place):
            relative = os.path.relpath(path, place)
            if relative.startswith("..") and (folder.resolve() / relative).exists():
                return _cause(relative)
    return None


def _meant(words: list[str], bases: list[Path], place: Path) -> Iterator[Path]:
    for word in words:
        for base in bases:
            path = Path(os.path.normpath(base / word))
            # torch makes ../x.cpp absolute; other absolute paths are meant as they are.
            if not PurePath(word).is_absolute() or path.is_relative_to(place.parents[1]):
                yield path


def _cause(relative: str) -> Cause:
    parts = PurePath(relative).parts
    first = next(number for number, part in enumerate(parts) if part != "..")
    link = f"ln -s {PurePath(*parts[: first + 1])} {parts[first]}"
    return Cause(
        f"the project needs {relative}, which is outside of its folder: a build works on a copy of "
        "the folder alone",
        f"make a link in the project's folder (`{link}`) and name that in setup.py, or build a "
        "folder that has both with --project",
    )

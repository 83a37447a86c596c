"""One part of a toolchain, from its lock file to a folder of the cache."""

import hashlib
import inspect
import os
import re
import sys
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jetship import console
from jetship.errors import ConfigError, DownloadError
from jetship.store import Store
from jetship.targets.parts import AptSource, DebianSource, NamedPart, Part, WheelSource
from jetship.toolchain import debian, layout, pypi
from jetship.toolchain.lock import Lock, Locked, lock_path, read_lock

UNPACKED_AT = 315532800  # seconds since 1970, the start of 1980


@dataclass(frozen=True)
class PartTree:
    """A part and the folder of the cache that holds it."""

    part: Part
    path: Path


def make_part(named: NamedPart, store: Store) -> PartTree:
    """Return a part's folder, downloading and unpacking it where it is missing.

    Raises:
        ConfigError: its lock file is missing, or does not fit it.
        DownloadError: something cannot be fetched, verified or stored.
        ToolMissingError: the build machine lacks apt, dpkg-deb or pip.
    """
    part, lock = named.part, _lock_of(named)
    _require_fitting(named, lock)

    def make(root: Path) -> None:
        console.note(f"preparing {part.title} (once)")
        with store.scratch() as scratch:
            for source in part.sources:
                files = _fetch(store, source, lock.sources[source.lock_name])
                into = scratch / source.lock_name.replace("/", "-")
                if isinstance(source, WheelSource):
                    # Beside the headers of CUDA's math libraries lie gigabytes.
                    unpack_wheels(files, into, only="include" if part.kind == "cuda_math" else "")
                else:
                    debian.unpack(files, into)
            layout.LAYOUTS[part.kind](scratch, root)

    return PartTree(part, store.tree(named.name, _digest(part, lock), make))


def tree_digest(named: NamedPart) -> str:
    """Return what names the content of a part's folder, whether it was made or not.

    Raises:
        ConfigError: its lock file is missing or damaged.
    """
    return _digest(named.part, _lock_of(named))


def pinned_files(named: NamedPart) -> frozenset[str]:
    """Return the SHA-256 of each file that a part is made of; raises as `tree_digest`."""
    return frozenset(item.sha256 for items in _lock_of(named).sources.values() for item in items)


def has_part(named: NamedPart, store: Store) -> bool:
    """Return whether `make_part` would find its work done."""
    if not lock_path(named.name, named.folder).is_file():
        return False
    return store.has_tree(named.name, _digest(named.part, _lock_of(named)))


def download_bytes(named: NamedPart) -> int:
    """Return how much the downloads of a part are.

    Raises:
        ConfigError: its lock file is missing or damaged.
    """
    files = _lock_of(named).sources.values()
    return sum(item.size for items in files for item in items)


def lock_part(named: NamedPart, store: Store) -> Lock:
    """Resolve a part anew, and return the lock of what was found.

    Raises:
        ConfigError: two sources bring one package, or a repository's key is missing.
        DownloadError: a package or wheel cannot be resolved or fetched.
    """
    found: dict[str, tuple[Locked, ...]] = {}
    for source in named.part.sources:
        console.step(f"locking {named.name}: {source.lock_name}")
        if isinstance(source, WheelSource):
            found[source.lock_name] = pypi.lock_source(store, source)
        else:
            found[source.lock_name] = debian.lock_source(store, source)
    _require_once(named, found)
    return Lock(sources=found)


def _require_once(named: NamedPart, found: Mapping[str, Sequence[Locked]]) -> None:
    """Refuse a package of two sources: one would be unpacked over the other."""
    brought: dict[tuple[str, str], str] = {}
    sources: tuple[DebianSource | AptSource, ...] = (*named.part.debian, *named.part.apt)
    for source in sources:
        for item in found[source.lock_name]:
            key = (source.architecture, item.name)
            other = brought.setdefault(key, source.lock_name)
            if other != source.lock_name:
                raise ConfigError(
                    f"{item.name} comes from two sources: {other} and {source.lock_name}",
                    why=f"{named.file} has apt resolve them apart from each other",
                    fix="list their repositories in one source under `apt`, or leave the package "
                    "out of one of them with `drop`",
                )


def unpack_wheels(wheels: Sequence[Path], folder: Path, *, only: str = "") -> None:
    """Unpack wheels side by side, or what is below folders named `only`; nothing of them is run.

    All files get one time. GCC takes a header for one that it has read already (`#pragma once`)
    where size, time and content are the same, so what it sees would depend on the second in which
    each was unpacked.

    Raises:
        DownloadError: a wheel is damaged.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for wheel in wheels:
        try:
            with zipfile.ZipFile(wheel) as archive:
                names = archive.namelist()
                members = [name for name in names if not only or f"/{only}/" in name]
                archive.extractall(folder, members)
                for name in members:
                    os.utime(folder / name, (UNPACKED_AT, UNPACKED_AT))
        except zipfile.BadZipFile as error:
            raise DownloadError(f"{wheel.name} cannot be unpacked", why=str(error)) from error


def _fetch(
    store: Store, source: DebianSource | AptSource | WheelSource, files: Sequence[Locked]
) -> list[Path]:
    if isinstance(source, WheelSource):
        return pypi.fetch(store, source, files)
    return debian.fetch(store, source, files)


def _lock_of(named: NamedPart) -> Lock:
    path = lock_path(named.name, named.folder)
    if named.is_users and not path.is_file():
        raise ConfigError(
            f"the part {named.name} of {named.file} has no lock file",
            why=f"{path} does not exist",
            fix=f"write it with `{named.pins_command}`",
        )
    return read_lock(named.name, named.folder)


def _require_fitting(named: NamedPart, lock: Lock) -> None:
    """Refuse a lock file that was written for another description of the part."""
    sources = {source.lock_name: source for source in named.part.sources}
    asked = {
        f"{source_name}: {_normal(requirement)}"
        for source_name, source in sources.items()
        if isinstance(source, WheelSource)
        for requirement in source.requirements
    }
    locked = {
        f"{source_name}: {item.name}=={item.version}"
        for source_name, files in lock.sources.items()
        if source_name.startswith("wheels/")
        for item in files
    }
    if set(sources) != set(lock.sources) or asked != locked:
        differing = sorted((set(sources) ^ set(lock.sources)) | (asked ^ locked))
        raise ConfigError(
            f"the lock file of {named.name} does not fit {named.file}",
            why=f"they differ in {', '.join(differing)}",
            fix=f"renew it with `{named.pins_command}`",
        )


def _normal(requirement: str) -> str:
    name, _, version = requirement.partition("==")
    return re.sub(r"[-_.]+", "-", name).lower() + f"=={version}"


def _digest(part: Part, lock: Lock) -> str:
    """Name a tree by all that decides its content: the files and the recipe."""
    digest = hashlib.sha256(part.kind.encode())
    for line in lock.digests:
        digest.update(f"{line}\n".encode())
    for module in (layout, debian, sys.modules[__name__]):
        digest.update(inspect.getsource(module).encode())
    return digest.hexdigest()

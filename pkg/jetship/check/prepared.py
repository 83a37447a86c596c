"""The libraries of a target from the cache: read once for each content, not once for each check.

A check needs a platform's sysroot and torch, and of its CUDA the names; and of these only the
tables, so nothing is downloaded or unpacked where those are in the cache. Compilers never are.
"""

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path

from jetship import _elfbytes, _elftables, console, elf
from jetship.check import libraryfolders, mangled, symboltables, tablefile
from jetship.check.libraries import LINKS, Place, TargetLibraries, written_down
from jetship.check.libraryfolders import fingerprint, packed
from jetship.check.tablefile import DamagedTableError, SymbolTable, pack
from jetship.errors import DownloadError, ToolMissingError
from jetship.probe.record import read_record, require_fitting
from jetship.store import Store, sha256_of, write_atomically
from jetship.targets.model import Platform, Target
from jetship.targets.parts import NamedPart
from jetship.toolchain.model import CUDA, CUDA_TARGET, SITE_PACKAGES, SYSROOT
from jetship.toolchain.own import Given
from jetship.toolchain.ownparts import NOTHING_OWN, OwnParts
from jetship.toolchain.prepare import given_links, library_parts
from jetship.toolchain.sources import has_part, make_part, pinned_files, tree_digest

_FILE = "symbols"
DEVICE = "device"  # in place of a link: all libraries of a real device


def target_libraries(
    target: Target, store: Store, own_parts: OwnParts = NOTHING_OWN
) -> TargetLibraries:
    """Return the libraries of a target, making the tables that are not in the cache.

    Raises:
        CheckError: a library is damaged.
        ConfigError: a path that the user gave is not what it should be, or a lock file is wrong.
        DownloadError: something cannot be fetched, verified or stored.
        ToolMissingError: the sysroot or torch is not to be had, and was not given.
    """
    platform = target.platform
    if own_parts.libraries:
        table = _of_device(own_parts.libraries, own_parts.said("libraries"), platform, store)
        place = Place(DEVICE, table, "exact")
        return TargetLibraries.assembled(platform, [place], (), (), mangled.BUILT_IN)
    given = given_links(platform, own_parts, store)
    pinned = _pinned_parts(platform, own_parts)
    places = []
    for link in LINKS:
        if link in given:
            exact = given[link].exact
            table = _of_given(given[link], link, platform, store)
        elif link in pinned:
            exact = False
            table = _of_part(pinned[link], link, platform, store)
        else:
            continue
        places.append(Place(link, table, "exact" if exact else platform.evidence))
    files = frozenset(one for part in platform.toolchain.cuda for one in pinned_files(part))
    written = written_down(platform, places, own_cuda=CUDA_TARGET in given, pinned=files)
    torch = next(place.table for place in places if place.link == SITE_PACKAGES)
    stubs = {*symboltables.TORCH_LIBRARIES} - {row.name for row in torch.libraries}
    return TargetLibraries.assembled(platform, places, written, stubs, mangled.BUILT_IN)


def are_at_hand(target: Target, store: Store, own_parts: OwnParts = NOTHING_OWN) -> bool:
    """Return whether `target_libraries` would download nothing.

    Raises:
        ConfigError: a lock file is missing or damaged.
    """
    if own_parts.libraries:
        return True
    try:
        parts = _pinned_parts(target.platform, own_parts)
    except ToolMissingError:
        return False
    return all(
        has_part(part, store)
        or store.has_tree(*_tree_of(_content_of(part), link, target.platform.machine))
        for link, part in parts.items()
    )


def require_parts(target: Target, own_parts: OwnParts) -> None:
    """Make sure that what `target_libraries` needs can be downloaded or is given.

    Raises:
        ToolMissingError: a part is not openly to be had; says where it is and what to pass.
        ConfigError: a lock file does not fit.
    """
    if not own_parts.libraries:
        library_parts(target.platform, own_parts)


def libraries_key(target: Target, own_parts: OwnParts) -> object:
    """Return what is equal for targets of one platform that have the same libraries."""
    return target.platform.name, tuple(own_parts.named.items())


def _pinned_parts(platform: Platform, own_parts: OwnParts) -> dict[str, NamedPart]:
    """Return the pinned parts whose libraries have to be read, by the name of their link."""
    sysroot, torch = library_parts(platform, own_parts)
    cuda = None if own_parts.cuda_home else next(_unwritten(platform), None)
    parts = {SYSROOT: sysroot, SITE_PACKAGES: torch, CUDA: cuda}
    return {link: part for link, part in parts.items() if part}


def _unwritten(platform: Platform) -> Iterator[NamedPart]:
    """Yield the platform's CUDA parts whose runtime nobody wrote down: those of the user's own."""
    known = symboltables.known_runtimes()
    return (part for part in platform.toolchain.cuda if not pinned_files(part) & known)


def _of_part(part: NamedPart, link: str, platform: Platform, store: Store) -> SymbolTable:
    def root() -> Path:
        return make_part(part, store).path

    return _cached(_content_of(part), root, link, platform, store)


def _content_of(part: NamedPart) -> str:
    return f"{part.name} {tree_digest(part)}"


def _of_given(given: Given, link: str, platform: Platform, store: Store) -> SymbolTable:
    # A folder of the cache never changes; one of the user's may, and still be called the same.
    inside = given.path.is_relative_to(store.root.resolve())
    state = "" if inside else fingerprint(given.path, link, platform.machine)
    return _cached(f"{given.identity} {state}", lambda: given.path, link, platform, store)


def _of_device(path: Path, said: str, platform: Platform, store: Store) -> SymbolTable:
    record = read_record(path, said)
    require_fitting(record, platform, said)

    def write() -> bytes:
        return pack(record.libraries(), {"torch": record.facts["torch"]})

    return _stored(sha256_of(path), write, DEVICE, platform, store)


def _cached(
    content: str, root: Callable[[], Path], link: str, platform: Platform, store: Store
) -> SymbolTable:
    """Return the table of a part from the cache; the part is only made where that is missing."""

    def write() -> bytes:
        return packed(root(), link, platform.machine)

    return _stored(content, write, link, platform, store)


def _stored(
    content: str, write: Callable[[], bytes], link: str, platform: Platform, store: Store
) -> SymbolTable:
    """Return the table of some content from the cache; one that is damaged is made anew."""
    name, digest = _tree_of(content, link, platform.machine)

    def make(folder: Path) -> None:
        table = write()
        console.note(f"tables of the {_TITLES[link]} of {platform.name} are made (once)")
        write_atomically(folder / _FILE, table)

    for _ in range(2):
        path = store.tree(name, digest, make) / _FILE
        try:
            return SymbolTable.read(path)
        except (DamagedTableError, OSError) as error:
            console.warn(f"{path} is damaged ({error}); it is made anew")
            store.drop_tree(name, digest)
    raise DownloadError(
        f"{path} is damaged as soon as it is written",
        why="what is read is not what was written",
        fix="look after the disk, or set JETSHIP_CACHE to a folder on another one",
    )


def _tree_of(content: str, link: str, machine: str) -> tuple[str, str]:
    """Return the name and the digest under which the cache keeps a table."""
    words = (content, link, machine, _recipe())
    return f"symbols-{link}", hashlib.sha256("\n".join(words).encode()).hexdigest()


_TITLES = {
    DEVICE: "libraries of a device",
    SYSROOT: "system's libraries",
    SITE_PACKAGES: "libraries of torch",
    CUDA_TARGET: "libraries of CUDA",
    CUDA: "libraries of CUDA",
}


@functools.cache
def _recipe() -> str:
    """Name all that decides what a table says of a library."""
    modules = (elf, _elfbytes, _elftables, libraryfolders, mangled, tablefile)
    source = "".join(map(inspect.getsource, modules))
    return hashlib.sha256(source.encode()).hexdigest()

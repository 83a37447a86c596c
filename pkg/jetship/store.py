"""The cache: content-addressed files, and folders that appear whole or not at all.

Layout under the cache root (`JETSHIP_CACHE`, default the user's cache folder):

    sha256/<2 hex>/<64 hex>/<file name>   downloads, read-only, named by their digest
    trees/<name>-<16 hex>/                assembled folders, published by rename
    tmp/                                  work in progress; safe to delete when idle
    locks/                                one lock file a name, and one mark of use a tree
"""

import contextlib
import errno
import hashlib
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import filelock
import platformdirs

from jetship import console, usage
from jetship.errors import ConfigError, DownloadError

CHUNK_BYTES = 1 << 20
FULL = (errno.ENOSPC, errno.EDQUOT)
NOT_WRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.ENOENT)
LEFT_BEHIND_SECONDS = 24 * 3600
# Folders that are held as long as somebody works in them: in the cache, and in a folder of wheels.
WORK_PREFIX = "work-"
STAGING_PREFIX = ".staging-"
CACHE_FIX = (
    "free some space, or set JETSHIP_CACHE to a folder on a larger disk "
    "(a debian-12 toolchain needs about 3 GB)"
)
CACHE_ELSEWHERE = "set JETSHIP_CACHE to another folder, or let yourself write to this one"


def default_root() -> Path:
    """Return the cache root: `JETSHIP_CACHE`, or the user's cache folder."""
    chosen = os.environ.get("JETSHIP_CACHE")
    return Path(chosen or platformdirs.user_cache_dir("jetship")).resolve()


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file as 64 hexadecimal digits."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            digest.update(chunk)
    return digest.hexdigest()


def write_atomically(path: Path, data: bytes) -> None:
    """Write a file so that `path` holds the old content or all of the new, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(0o644)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


@contextlib.contextmanager
def disk_errors(
    where: Path,
    *,
    what: str = "the cache",
    fix: str = CACHE_FIX,
    elsewhere: str = CACHE_ELSEWHERE,
) -> Iterator[None]:
    """Turn a disk under `where` that is full or not to be written to into an error that says so.

    Args:
        where: the folder.
        what: what it is called.
        fix: what to do where the disk is full.
        elsewhere: what to do where it cannot be written to, whatever room there is.

    Raises:
        DownloadError: it is full.
        ConfigError: it is read-only, belongs to somebody else, or is no folder.
    """
    try:
        yield
    except OSError as error:
        said = f"cannot write to {what}"
        if reason := _reason(error, FULL):
            raise DownloadError(f"{said}: {reason}", why=f"{what} is {where}", fix=fix) from error
        if reason := _reason(error, NOT_WRITABLE):
            place = error.filename or where
            raise ConfigError(
                f"{said}: {reason}",
                why=f"{what} is {where}, and {place} cannot be written to",
                fix=elsewhere,
            ) from error
        raise


def is_full(error: OSError) -> bool:
    """Return whether an error is that of a full disk, which `disk_errors` tells."""
    return _reason(error, FULL) is not None


def _reason(error: OSError, numbers: tuple[int, ...]) -> str | None:
    """Return the system's words where the error is one of these, and not a defect."""
    if error.errno in numbers:
        return error.strerror
    # copytree gathers what went wrong as text, and has no number itself.
    listed = numbers if isinstance(error, shutil.Error) else ()
    return next(
        (os.strerror(number) for number in listed if f"[Errno {number}]" in str(error)), None
    )


def sweep(folders: Iterable[Path]) -> None:
    """Delete folders of work in progress that a killed process left behind."""
    for folder in folders:
        with _left_behind(folder) as left:
            if left:
                shutil.rmtree(folder, ignore_errors=True)


def is_left_behind(folder: Path) -> bool:
    """Return whether a folder of work in progress is one that `sweep` deletes."""
    with _left_behind(folder) as left:
        return left


@contextlib.contextmanager
def _left_behind(folder: Path) -> Iterator[bool]:
    """Yield whether no living process holds a folder, or else whether it is a day old.

    The second is for folders that nobody holds while they are worked in: those of a jetship that
    is older than `usage.working`, and trees, whose makers hold the lock of their name.
    """
    if not folder.name.startswith((WORK_PREFIX, STAGING_PREFIX)):
        yield _is_old(folder)
        return
    with usage.nobody_works_in(folder) as left:
        yield _is_old(folder) if left is None else left


def _is_old(folder: Path) -> bool:
    with contextlib.suppress(OSError):
        return time.time() - folder.stat().st_mtime > LEFT_BEHIND_SECONDS
    return False


@dataclass(frozen=True)
class Store:
    """A cache at `root`, safe for any number of processes at once."""

    root: Path

    def blob(self, sha256: str, name: str) -> Path:
        """Return where the file with this digest is, or would be."""
        return self.root / "sha256" / sha256[:2] / sha256 / name

    def holds(self, sha256: str, name: str) -> bool:
        """Return whether the file is in the cache, whole; a damaged one is deleted."""
        path = self.blob(sha256, name)
        if not path.is_file():
            return False
        if sha256_of(path) == sha256:
            return True
        console.warn(f"{path} is damaged; it is downloaded again")
        path.unlink()
        return False

    def add(self, source: Path, sha256: str) -> Path:
        """Move a downloaded file into the cache after checking its digest.

        Raises:
            DownloadError: the file's digest is another one; the file is deleted.
        """
        if not source.is_file():
            raise DownloadError(
                f"{source.name} did not come with the download",
                why="the lock file names it, and the archive or index served another file",
                fix="renew the lock file with `invoke pins --part NAME`",
            )
        found = sha256_of(source)
        if found != sha256:
            source.unlink()
            raise DownloadError(
                f"{source.name} has another digest than the lock file",
                why=f"locked sha256 {sha256}, downloaded {found}",
                fix="do not trust that download source; if the lock file is out of date, "
                "renew it with `invoke pins --part NAME`",
            )
        final = self.blob(sha256, source.name)
        with disk_errors(self.root):
            final.parent.mkdir(parents=True, exist_ok=True)
            source.chmod(0o444)
            source.replace(final)
        return final

    def require_space(self, wanted_bytes: int) -> None:
        """Make sure that the cache's disk has room.

        Raises:
            DownloadError: it has less, or is no disk to write on.
        """
        with disk_errors(self.root):
            self.root.mkdir(parents=True, exist_ok=True)
            free = shutil.disk_usage(self.root).free
        if free < wanted_bytes:
            raise DownloadError(
                f"the cache has {free >> 20} MiB of disk space left, and needs "
                f"{wanted_bytes >> 20} MiB for the next step",
                why=f"the cache is {self.root}",
                fix=CACHE_FIX,
            )

    @contextlib.contextmanager
    def locked(self, name: str, *, doing: str = "") -> Iterator[None]:
        """Hold the lock `name`; a second process waits and is told so.

        Args:
            name: of the lock.
            doing: what the holder does (default: it prepares `name`).
        """
        folder = self.root / "locks"
        with disk_errors(self.root):
            folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / f"{name}.lock")
        with disk_errors(self.root):
            try:
                lock.acquire(timeout=0.2)
            except filelock.Timeout:
                console.note(f"another jetship {doing or f'prepares {name}'}; waiting for it")
                lock.acquire()
        try:
            yield
        finally:
            lock.release()

    @contextlib.contextmanager
    def scratch(self) -> Iterator[Path]:
        """Yield an empty folder on the cache's disk; it is gone afterwards."""
        parent = self.root / "tmp"
        with contextlib.ExitStack() as stack:
            with disk_errors(self.root):
                parent.mkdir(parents=True, exist_ok=True)
                sweep(parent.iterdir())
                folder = stack.enter_context(usage.working(parent, WORK_PREFIX))
            yield folder

    def _tree_path(self, name: str, digest: str) -> Path:
        return self.root / "trees" / f"{name}-{digest[:16]}"

    def mark(self, key: str) -> Path:
        """Return the file that shows who uses a tree, and since when nobody does."""
        return self.root / "locks" / f"{key}.use"

    def has_tree(self, name: str, digest: str) -> bool:
        """Return whether the folder was made before."""
        return self._tree_path(name, digest).is_dir()

    def drop_tree(self, name: str, digest: str) -> None:
        """Delete the folder, if it is there, so that `tree` makes it anew."""
        final = self._tree_path(name, digest)
        with self.locked(final.name):
            shutil.rmtree(final, ignore_errors=True)

    def tree(self, name: str, digest: str, make: Callable[[Path], None]) -> Path:
        """Return the folder `name` for `digest`, making it first where it is missing.

        `make` fills an empty folder; only when it returns is the folder published, so a
        killed process or a full disk leaves nothing that would be used. Until this process
        ends, nobody deletes the folder.
        """
        final = self._tree_path(name, digest)
        key = final.name
        usage.hold(self.mark(key))
        if final.is_dir():
            return final
        with self.locked(key):
            if final.is_dir():
                return final
            # Made beside its final place, so that relative links out of it hold already. Whoever
            # holds the lock is alone with the key: what an earlier process left is rubbish.
            made = final.with_name(f".{key}")
            shutil.rmtree(made, ignore_errors=True)
            try:
                with disk_errors(self.root):
                    made.mkdir(parents=True)
                    make(made)
                    made.rename(final)
            finally:
                shutil.rmtree(made, ignore_errors=True)
        return final

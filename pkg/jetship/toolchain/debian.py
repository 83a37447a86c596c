"""Debian packages through apt, in an apt root of our own, so that the system's is untouched.

apt is asked for exact versions; what it brings is checked against the lock file. The mirror
is the user's own: `JETSHIP_DEBIAN_MIRROR`, or the one that this machine's apt already uses.
"""

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from jetship import console, proc
from jetship.errors import ConfigError, DownloadError, ToolMissingError
from jetship.store import Store, sha256_of, write_atomically
from jetship.targets.parts import DebianSource
from jetship.toolchain.lock import Locked
from jetship.toolchain.progress import watch_folder

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LISTS_VALID_SECONDS = 24 * 3600
LISTS_BYTES = 100 << 20
_DISK_FULL = ("No space left", "write error", "enough free space")  # in apt's and dpkg-deb's words

_CONFIG = """\
Dir::State "{root}";
Dir::State::lists "{root}/lists";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache";
Dir::Etc::sourcelist "{root}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::Etc::preferences "/dev/null";
Dir::Etc::preferencesparts "/dev/null";
APT::Architecture "{architecture}";
APT::Architectures {{ "{architecture}"; }};
APT::Install-Recommends "false";
APT::Sandbox::User "root";
Acquire::Languages "none";
Acquire::Retries "2";
Debug::NoLocking "true";
"""


def find_mirror() -> str:
    """Return the address of the Debian archive that this machine uses.

    Raises:
        ToolMissingError: there is no apt.
        ConfigError: apt knows no Debian archive.
    """
    chosen = os.environ.get("JETSHIP_DEBIAN_MIRROR")
    if chosen:
        return chosen.rstrip("/")
    proc.require("apt-get", fix="Debian packages are fetched with apt; run on Debian or Ubuntu")
    listed = proc.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages"]
    )
    for address in listed.stdout.split():
        if address.rstrip("/").endswith("/debian"):
            return address.rstrip("/")
    raise ConfigError(
        "this machine's apt has no Debian archive among its sources",
        fix="set JETSHIP_DEBIAN_MIRROR to the address of a Debian mirror",
    )


@dataclass(frozen=True)
class AptRoot:
    """An apt configuration for the suite and architecture of a source, below the cache."""

    store: Store
    source: DebianSource

    @property
    def name(self) -> str:
        """What sets it apart from others: suite, components and architecture."""
        return "-".join((self.source.suite, *self.source.components, self.source.architecture))

    @property
    def _root(self) -> Path:
        return self.store.root / "apt" / self.name

    def _apt(self, *words: str, cwd: Path | None = None) -> proc.Finished:
        env = {**os.environ, "APT_CONFIG": str(self._root / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return proc.run(["apt-get", *words], env=env, cwd=cwd)

    def update(self, *, max_age_seconds: float = LISTS_VALID_SECONDS) -> None:
        """Fetch the package lists, unless they are younger than `max_age_seconds`.

        Raises:
            DownloadError: the archive cannot be reached or is not signed by Debian.
        """
        stamp = self._root / "updated"
        mirror = find_mirror()
        if stamp.exists() and stamp.read_text() == mirror:
            age = time.time() - stamp.stat().st_mtime
            if age < max_age_seconds:
                return
        console.note(
            f"reading the package lists of {self.source.suite} for {self.source.architecture}"
        )
        # apt-get update does not end when the disk is full: its parts wait for each other.
        self.store.require_space(LISTS_BYTES)
        for folder in ("lists/partial", "cache/archives/partial"):
            (self._root / folder).mkdir(parents=True, exist_ok=True)
        config = _CONFIG.format(root=self._root, architecture=self.source.architecture)
        write_atomically(self._root / "apt.conf", config.encode())
        write_atomically(self._root / "status", b"")
        write_atomically(self._root / "sources.list", self._source(mirror).encode())
        done = self._apt("update", "--error-on=any")
        if not done.ok:
            raise _download_error(
                f"cannot read the package lists of Debian {self.source.suite}", done
            )
        write_atomically(stamp, mirror.encode())

    def _source(self, mirror: str) -> str:
        signed = f"[signed-by={KEYRING}] " if KEYRING.exists() else ""
        return f"deb {signed}{mirror} {self.source.suite} {' '.join(self.source.components)}\n"

    def resolve(self) -> list[str]:
        """Return "name=version" (with :arch where needed) of all packages of the source.

        Raises:
            DownloadError: a package does not exist in the suite.
        """
        specs = {}
        if self.source.install:
            plan = self._apt("install", "--simulate", "--yes", *self.source.install)
            if not plan.ok:
                raise _download_error(
                    f"apt finds no way to install {' '.join(self.source.install)}", plan
                )
            for line in plan.stdout.splitlines():
                words = line.replace("(", " ").split()
                if words[:1] == ["Inst"]:
                    specs[words[1]] = f"{words[1]}={words[2]}"
        specs |= {name: name for name in self.source.alone}
        return [
            spec
            for name, spec in sorted(specs.items())
            if not any(fnmatchcase(name, pattern) for pattern in self.source.drop)
        ]

    def download(self, specs: Sequence[str], folder: Path) -> None:
        """Download packages given as "name=version" into `folder`.

        Raises:
            DownloadError: the archive lacks one, or cannot be reached.
        """
        done = self._apt("download", *specs, cwd=folder)
        if not done.ok:
            raise _download_error("apt could not download Debian packages", done)


def fetch(store: Store, source: DebianSource, files: Sequence[Locked]) -> list[Path]:
    """Return the paths of locked Debian packages in the cache, downloading what is missing.

    Raises:
        DownloadError: no network, no such version any more, wrong digest, or a full disk.
    """
    missing = [item for item in files if not store.holds(item.sha256, item.file)]
    if missing:
        apt = AptRoot(store, source)
        with store.locked(f"apt-{apt.name}"), store.scratch() as scratch:
            apt.update()
            total = sum(item.size for item in missing)
            title = f"{len(missing)} Debian packages ({source.architecture})"
            with watch_folder(scratch, total_bytes=total, title=title):
                apt.download([f"{item.name}={item.version}" for item in missing], scratch)
            for item in missing:
                store.add(scratch / item.file, item.sha256)
    return [store.blob(item.sha256, item.file) for item in files]


def lock_source(store: Store, source: DebianSource) -> tuple[Locked, ...]:
    """Resolve and download a source, and return what to write into the lock file.

    Raises:
        DownloadError: apt cannot resolve or download it.
        ToolMissingError: Debian's archive keyring is missing, so nothing vouches for the lists.
    """
    if not KEYRING.exists():
        raise ToolMissingError(
            f"{KEYRING} is missing, so the archive's signature cannot be checked",
            fix="apt-get install debian-archive-keyring",
        )
    apt = AptRoot(store, source)
    with store.locked(f"apt-{apt.name}"), store.scratch() as scratch:
        apt.update(max_age_seconds=0)
        apt.download(apt.resolve(), scratch)
        locked = []
        for path in sorted(scratch.glob("*.deb")):
            shown = proc.run(["dpkg-deb", "--show", "--showformat", "${Package} ${Version}", path])
            name, version = shown.stdout.split()
            digest = sha256_of(path)
            item = Locked(
                name=name, version=version, file=path.name, sha256=digest, size=path.stat().st_size
            )
            store.add(path, digest)
            locked.append(item)
    return tuple(locked)


def unpack(packages: Sequence[Path], root: Path) -> None:
    """Unpack Debian packages into `root` as a merged-usr tree with relative links only.

    No maintainer script is run. `bin`, `lib` and `sbin` become links into usr/, and links
    with absolute targets are made relative, so that the tree means the same wherever it lies.

    Raises:
        DownloadError: a package is damaged.
        ToolMissingError: there is no dpkg-deb.
    """
    for package in packages:
        done = proc.run(["dpkg-deb", "--extract", package, root])
        if not done.ok:
            raise _unpack_error(package, root, done)
    for name in ("bin", "lib", "sbin"):
        old = root / name
        if old.is_dir() and not old.is_symlink():
            _merge(old, root / "usr" / name)
            old.symlink_to(f"usr/{name}")
    _make_links_relative(root)


def _unpack_error(package: Path, root: Path, done: proc.Finished) -> DownloadError:
    if "No space left" in done.stderr:
        return _download_error(f"{package.name} cannot be unpacked", done)
    return DownloadError(
        f"{package.name} cannot be unpacked into {root}",
        why=done.stderr.strip()[-300:],
        fix=f"if the file is damaged, delete {package} and run the same command again",
    )


def _merge(source: Path, destination: Path) -> None:
    destination.mkdir(parents=True, exist_ok=True)
    for entry in source.iterdir():
        into = destination / entry.name
        if entry.is_dir() and not entry.is_symlink():
            _merge(entry, into)
        else:
            entry.rename(into)
    source.rmdir()


def _make_links_relative(root: Path) -> None:
    for folder, folders, files in os.walk(root):
        for name in folders + files:
            link = Path(folder, name)
            if link.is_symlink() and link.readlink().is_absolute():
                inside = root / link.readlink().relative_to("/")
                link.unlink()
                link.symlink_to(os.path.relpath(inside, folder))


def _download_error(what: str, done: proc.Finished) -> DownloadError:
    said = [line for line in done.stderr.splitlines() if line.startswith("E:")] or [
        line for line in done.stderr.splitlines() if line.strip()
    ]
    text = "; ".join(line.removeprefix("E: ") for line in said[-3:])
    if any(words in done.stderr for words in _DISK_FULL):
        return DownloadError(
            what,
            why="the disk is full",
            fix="free some space, or set JETSHIP_CACHE to a folder on a larger disk",
        )
    if "was not found" in done.stderr and "Version" in done.stderr:
        return DownloadError(
            what,
            why=f"{text}; the archive no longer carries the locked version",
            fix="set JETSHIP_DEBIAN_MIRROR to a snapshot that does, or renew the lock file "
            "with `invoke pins --part NAME`",
        )
    return DownloadError(
        what,
        why=text,
        fix="check the network and this machine's apt settings, then run the same command again",
    )

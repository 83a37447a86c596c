"""Debian packages through apt, in an apt root of our own, so that the system's is untouched.

apt is asked for exact versions; what it brings is checked against the lock file. Repositories
are Debian's own, from the user's mirror (`JETSHIP_DEBIAN_MIRROR`, or the one that this machine's
apt already uses), and those that a part describes, each with its own key.
"""

import hashlib
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from jetship import console, proc
from jetship.errors import ConfigError, DownloadError, ToolMissingError
from jetship.store import Store, sha256_of, write_atomically
from jetship.targets.parts import AptSource, DebianSource
from jetship.targets.repositories import key_field
from jetship.toolchain import aptwords
from jetship.toolchain.lock import Locked
from jetship.toolchain.progress import watch_folder

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
LISTS_VALID_SECONDS = 24 * 3600
LISTS_BYTES = 100 << 20

_CONFIG = """\
Dir::State "{root}";
Dir::State::lists "{root}/lists";
Dir::State::status "{root}/status";
Dir::Cache "{root}/cache";
Dir::Etc::sourcelist "/dev/null";
Dir::Etc::sourceparts "{root}/sources";
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

# On the command line, because the machine's own settings win over a file named by APT_CONFIG.
NOTHING_ON_TRUST = (
    "-oAcquire::AllowInsecureRepositories=false",
    "-oAcquire::AllowWeakRepositories=false",
    "-oAcquire::AllowDowngradeToInsecureRepositories=false",
    "-oAPT::Get::AllowUnauthenticated=false",
)


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
    """An apt configuration for the repositories and architecture of a source, below the cache."""

    store: Store
    source: DebianSource | AptSource

    @property
    def name(self) -> str:
        """What sets it apart from others: its repositories and its architecture."""
        source = self.source
        if isinstance(source, DebianSource):
            return "-".join((source.suite, *source.components, source.architecture))
        rows = [one.model_dump_json() for one in source.repositories]
        digest = hashlib.sha256("\n".join(rows).encode()).hexdigest()
        return f"apt-{digest[:16]}-{source.architecture}"

    @property
    def title(self) -> str:
        """What messages call its repositories."""
        return " and ".join(one.title for one in self.source.repositories)

    @property
    def _root(self) -> Path:
        return self.store.root / "apt" / self.name

    def _apt(self, *words: str, cwd: Path | None = None) -> proc.Finished:
        env = {**os.environ, "APT_CONFIG": str(self._root / "apt.conf"), "LC_ALL": "C.UTF-8"}
        return proc.run(["apt-get", *words, *NOTHING_ON_TRUST], env=env, cwd=cwd)

    def _error(self, what: str, done: proc.Finished, *, note: str = "") -> DownloadError:
        return aptwords.as_error(what, done, self.source.repositories, note=note)

    def _without_packages(self) -> str:
        """Say which suites have no list for the architecture, of which apt says nothing."""
        fields = "$(REPO_URI) $(RELEASE)"
        listed = self._apt("indextargets", "--format", fields, "Created-By: Packages")
        if not listed.ok:
            return ""
        found = {tuple(line.split(" ", 1)) for line in listed.stdout.splitlines()}
        return ", ".join(
            f"{one.name} {suite} has no packages for {self.source.architecture}"
            for one in self.source.repositories
            for suite in one.suites
            if (f"{one.address or find_mirror()}/", suite) not in found
        )

    def update(self, *, max_age_seconds: float = LISTS_VALID_SECONDS) -> bool:
        """Fetch the package lists, unless they are younger than `max_age_seconds`.

        Returns:
            Whether they were fetched.

        Raises:
            ConfigError: a repository's key is missing or damaged.
            DownloadError: a repository cannot be reached, or is not signed with its key.
        """
        stamp = self._root / "updated"
        sources = self._sources()
        if stamp.exists() and stamp.read_text() == sources:
            age = time.time() - stamp.stat().st_mtime
            if age < max_age_seconds:
                return False
        console.note(f"reading the package lists of {self.title} for {self.source.architecture}")
        # apt-get update does not end when the disk is full: its parts wait for each other.
        self.store.require_space(LISTS_BYTES)
        for folder in ("lists/partial", "cache/archives/partial"):
            (self._root / folder).mkdir(parents=True, exist_ok=True)
        config = _CONFIG.format(root=self._root, architecture=self.source.architecture)
        write_atomically(self._root / "apt.conf", config.encode())
        write_atomically(self._root / "status", b"")
        write_atomically(self._root / "sources/jetship.sources", sources.encode())
        done = self._apt("update", "--error-on=any")
        if not done.ok or aptwords.missing_component(done):
            raise self._error(f"cannot read the package lists of {self.title}", done)
        write_atomically(stamp, sources.encode())
        return True

    def _sources(self) -> str:
        stanzas = []
        for one in self.source.repositories:
            if one.signed_by is None:
                keyring = f" {KEYRING}" if KEYRING.exists() else ""
                stanzas.append(one.stanza(find_mirror(), keyring))
                continue
            try:
                stanzas.append(one.stanza(one.address, key_field(one.signed_by)))
            except ValueError as error:  # it was there when the description was read
                raise ConfigError(str(error)) from error
        return "\n".join(stanzas)

    def resolve(self) -> list[str]:
        """Return "name=version" (with :arch where needed) of all packages of the source.

        Raises:
            DownloadError: a package, or one that it depends on, is in none of the repositories.
        """
        specs = {}
        if self.source.install:
            plan = self._apt("install", "--simulate", "--yes", *self.source.install)
            if not plan.ok:
                raise self._error(
                    f"apt finds no way to install {' '.join(self.source.install)}",
                    plan,
                    note=self._without_packages(),
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
            DownloadError: the repositories lack one, or cannot be reached.
        """
        done = self._apt("download", *specs, cwd=folder)
        if not done.ok:
            note = self._without_packages()
            raise self._error("apt could not download Debian packages", done, note=note)


def fetch(store: Store, source: DebianSource | AptSource, files: Sequence[Locked]) -> list[Path]:
    """Return the paths of locked Debian packages in the cache, downloading what is missing.

    Raises:
        ConfigError: a repository's key is missing or damaged.
        DownloadError: no network, no such version any more, wrong digest, or a full disk.
    """
    missing = [item for item in files if not store.holds(item.sha256, item.file)]
    if missing:
        apt = AptRoot(store, source)
        with store.locked(f"apt-{apt.name}"), store.scratch() as scratch:
            fresh = apt.update()
            total = sum(item.size for item in missing)
            specs = [f"{item.name}={item.version}" for item in missing]
            title = f"{len(missing)} Debian packages ({source.architecture})"
            with watch_folder(scratch, total_bytes=total, title=title):
                try:
                    apt.download(specs, scratch)
                except DownloadError:
                    if fresh:
                        raise
                    # Published, or moved, since the lists were read.
                    apt.update(max_age_seconds=0)
                    apt.download(specs, scratch)
            for item in missing:
                store.add(scratch / item.file, item.sha256)
    return [store.blob(item.sha256, item.file) for item in files]


def lock_source(store: Store, source: DebianSource | AptSource) -> tuple[Locked, ...]:
    """Resolve and download a source, and return what to write into the lock file.

    Raises:
        ConfigError: a repository's key is missing or damaged.
        DownloadError: apt cannot resolve or download it.
        ToolMissingError: Debian's archive keyring is missing, so nothing vouches for the lists.
    """
    if not KEYRING.exists() and any(one.signed_by is None for one in source.repositories):
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
        return aptwords.as_error(f"{package.name} cannot be unpacked", done, ())
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

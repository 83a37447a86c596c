"""apt repositories in a folder, with real packages, and signed with real keys."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import formatdate
from pathlib import Path

from jetship import proc


@dataclass(frozen=True)
class Keys:
    """Fresh OpenPGP keys of several people, in a home of their own."""

    home: Path

    def _gpg(self, *words: str | Path) -> str:
        env = {**os.environ, "GNUPGHOME": str(self.home)}
        done = proc.run(["gpg", "--batch", "--quiet", "--yes", *words], env=env)
        assert done.ok, done.stderr
        return done.stdout

    def make(self, who: str) -> None:
        """Make a key."""
        words = ("--quick-generate-key", f"{who}@example.invalid", "rsa2048", "sign", "never")
        self._gpg("--passphrase", "", *words)

    def export(self, who: str, file: Path) -> Path:
        """Write a public key: armoured where the file is called .asc."""
        armour = ["--armor"] if file.suffix == ".asc" else []
        self._gpg(*armour, "--output", file, "--export", f"{who}@example.invalid")
        return file

    def sign(self, who: str, file: Path, signed: Path) -> None:
        """Sign a text within the text."""
        address = f"{who}@example.invalid"
        self._gpg("--local-user", address, "--output", signed, "--clearsign", file)


@contextmanager
def fresh_keys(*people: str) -> Iterator[Keys]:
    """Make keys, and yield them; the agent that GnuPG starts for them is stopped."""
    home = Path(tempfile.mkdtemp(prefix="keys-"))  # the agent's socket needs a short path
    keys = Keys(home)
    try:
        for who in people:
            keys.make(who)
        yield keys
    finally:
        proc.run(["gpgconf", "--homedir", home, "--kill", "all"])
        shutil.rmtree(home, ignore_errors=True)


@dataclass(frozen=True)
class AptRepository:
    """A repository of arm64 packages; a suite that ends in "/" makes it a flat one."""

    folder: Path
    keys: Keys
    suite: str = "stable"

    @property
    def uri(self) -> str:
        return f"file:{self.folder}"

    @property
    def lists(self) -> Path:
        """Where Release and InRelease are."""
        flat = self.suite.endswith("/")
        return self.folder / (self.suite if flat else f"dists/{self.suite}")

    def add(
        self, name: str, files: dict[str, str], *, version: str = "1.0", depends: str = ""
    ) -> Path:
        """Put a package into it."""
        tree = self.folder.parent / f"{name}.tree"
        shutil.rmtree(tree, ignore_errors=True)
        control = f"Package: {name}\nVersion: {version}\nArchitecture: arm64\n"
        control += f"Depends: {depends}\n" if depends else ""
        control += "Maintainer: Nobody <nobody@example.invalid>\nDescription: a test\n"
        for path, text in {"DEBIAN/control": control, **files}.items():
            place = tree / path
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(text)
        # As publishers do: the epoch is not in the name of the file.
        package = self.folder / f"pool/{name}_{version.partition(':')[2] or version}_arm64.deb"
        package.parent.mkdir(parents=True, exist_ok=True)
        done = proc.run(["dpkg-deb", "--build", "--root-owner-group", tree, package])
        assert done.ok, done.stderr
        return package

    def publish(self, who: str, *, architecture: str = "arm64") -> None:
        """List its packages, and sign the list."""
        flat = self.suite.endswith("/")
        name = "Packages" if flat else f"main/binary-{architecture}/Packages"
        scanned = proc.run(["dpkg-scanpackages", "--multiversion", "pool"], cwd=self.folder)
        assert scanned.ok, scanned.stderr
        data = scanned.stdout.encode()
        (self.lists / name).parent.mkdir(parents=True, exist_ok=True)
        (self.lists / name).write_bytes(data)
        release = [f"Suite: {self.suite}", f"Architectures: {architecture}", "Components: main"]
        release += [f"Date: {formatdate(usegmt=True)}", "SHA256:"]
        release.append(f" {hashlib.sha256(data).hexdigest()} {len(data)} {name}")
        (self.lists / "Release").write_text("\n".join(release) + "\n")
        self.keys.sign(who, self.lists / "Release", self.lists / "InRelease")

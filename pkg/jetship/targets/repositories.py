"""apt repositories that packages are taken from, each with the key that it is signed with.

The words are those of sources.list(5). Keys are OpenPGP (RFC 9580), as files or keyrings.
"""

import base64
import binascii
import re
from pathlib import Path
from typing import Annotated, Self

from pydantic import (
    AfterValidator,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

from jetship.yamlfile import Strict

DEBIAN = "debian"

_ARMOUR = re.compile(
    rb"-----BEGIN PGP (?P<what>[A-Z ]+)-----[ \t]*\r?\n(?P<body>.*?)-----END PGP (?P=what)-----",
    re.DOTALL,
)
_PUBLIC_KEY, _SECRET_KEY = 6, 5  # packet types


def _address(uri: str) -> str:
    """Check what apt is to read from; a login in it would end up in messages and logs."""
    if not re.fullmatch(r"(https?://[^\s/]+|file:(//)?(?=/))\S*", uri):
        raise ValueError(
            f"{uri!r} is not the address of a repository: https://…, http://… or file:/… "
            "(write a space as %20)"
        )
    if re.match(r"https?://[^/]*@", uri):
        raise ValueError("a login does not belong here, but into apt's own auth.conf(5)")
    return uri.rstrip("/")


Suite = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9]([A-Za-z0-9./_~-]*[A-Za-z0-9])?$")]
Component = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9./_-]*$")]
_Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.-]{0,39}$")]
_SuiteOrFolder = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9./][A-Za-z0-9./_~-]*$")]


class Repository(Strict):
    """One repository; without `uri` it is Debian's own, from the mirror of this machine.

    `signed_by` is a file, armoured or not, with the public key of whoever publishes it; a
    relative path starts at the YAML file that names it. A suite that ends in "/" is the folder
    of a flat repository, which has no components.
    """

    name: _Name = DEBIAN
    uri: Annotated[str, AfterValidator(_address)] = ""
    suites: tuple[_SuiteOrFolder, ...]
    components: tuple[Component, ...] = ()
    signed_by: Path | None = None

    @field_validator("signed_by")
    @classmethod
    def _has_a_key(cls, file: Path | None, info: ValidationInfo) -> Path | None:
        if file is None:
            return None
        file = Path(getattr(info.context, "file", "")).parent / file
        read_key(file)
        return file

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if not self.uri and (self.signed_by or self.name != DEBIAN):
            raise ValueError(
                f"the repository {self.name!r} has no uri; without one it is Debian's own, "
                "which needs neither name nor signed_by"
            )
        if self.uri and self.signed_by is None:
            raise ValueError(
                f"the repository {self.name!r} has no signed_by: without its publisher's key "
                "nothing shows who made the packages, and none are taken on trust; name the "
                "file of its public key"
            )
        if not self.suites:
            raise ValueError(f"the repository {self.name!r} has no suite: name one under `suites`")
        if self.is_flat and not all(suite.endswith("/") for suite in self.suites):
            raise ValueError("some suites end in '/' and some do not: make two repositories")
        if self.is_flat and self.components:
            raise ValueError("a suite that ends in '/' is a folder, which has no components")
        return self

    @property
    def is_flat(self) -> bool:
        """Whether its packages lie in a folder, without components."""
        return any(suite.endswith("/") for suite in self.suites)

    @property
    def labels(self) -> tuple[str, ...]:
        """What a lock file calls its suites: "ubuntu-jammy". The address may change."""
        folders = [suite.strip("./").replace("/", "-") for suite in self.suites]
        return tuple(f"{self.name}-{folder}" if folder else self.name for folder in folders)

    @property
    def title(self) -> str:
        """What messages call it: "Debian bookworm", "ubuntu jammy, jammy-updates"."""
        name = self.name if self.uri else "Debian"
        return f"{name} {', '.join(self.suites)}"

    @property
    def address(self) -> str:
        """Its uri as apt is given it, or "" for Debian's own."""
        # Of file: apt keeps links to the lists, which may change after they were verified.
        return re.sub(r"^file:(//)?(?=/)", "copy:", self.uri)

    def stanza(self, address: str, signed_by: str) -> str:
        """Return it as deb822, as apt's *.sources files have it."""
        lines = ["Types: deb", f"URIs: {address}", f"Suites: {' '.join(self.suites)}"]
        if not self.is_flat:
            lines.append(f"Components: {' '.join(self.components or ('main',))}")
        if signed_by:
            lines.append(f"Signed-By:{signed_by}")
        return "\n".join(lines) + "\n"


def key_field(file: Path) -> str:
    """Return a file's keys as the value of the deb822 field Signed-By.

    The keys themselves, not the path: apt takes keys by their files' extensions, and no path
    with a space.

    Raises:
        ValueError: there is no key; says why.
    """
    text = base64.encodebytes(read_key(file)).decode("ascii")
    lines = ["-----BEGIN PGP PUBLIC KEY BLOCK-----", ".", *text.splitlines()]
    return "".join(f"\n {line}" for line in [*lines, "-----END PGP PUBLIC KEY BLOCK-----"])


def read_key(file: Path) -> bytes:
    """Return the public keys that a file holds, armoured or not, as a keyring.

    Raises:
        ValueError: there is no such file, or it holds something else; says what to do.
    """
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ValueError(
            f"the key {file} cannot be read ({error.strerror}); get the repository's public key "
            "from its publisher, and put it there"
        ) from error
    blocks = list(_ARMOUR.finditer(data))
    keyring = b"".join(_unarmoured(file, block["body"]) for block in blocks) if blocks else data
    if keyring[8:12] == b"KBXf":
        raise ValueError(f"{file} is a keybox of GnuPG's; write the key with `gpg --export KEY`")
    packet = _first_packet(keyring)
    if packet == _SECRET_KEY:
        raise ValueError(f"{file} is a private key; write the public one with `gpg --export KEY`")
    if packet != _PUBLIC_KEY:
        raise ValueError(
            f"{file} is not an OpenPGP public key; it may be a page that a download brought in "
            "its place"
        )
    return keyring


def _unarmoured(file: Path, body: bytes) -> bytes:
    """Return what one armoured block holds, without its headers and its checksum."""
    lines = [line.strip() for line in body.splitlines()]
    start = lines.index(b"") + 1 if b"" in lines else 0
    text = b"".join(line for line in lines[start:] if not line.startswith(b"="))
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as error:
        raise ValueError(f"the key {file} is damaged: {error}") from error


def _first_packet(keyring: bytes) -> int | None:
    """Return the type of the first OpenPGP packet, in the old format or the new one."""
    first = keyring[0] if keyring else 0
    if not first & 0x80:
        return None
    return first & 0x3F if first & 0x40 else (first >> 2) & 0x0F

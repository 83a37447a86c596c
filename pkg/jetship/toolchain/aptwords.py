"""What apt says when it fails, as errors that say what to do."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from jetship import proc
from jetship.errors import DownloadError
from jetship.targets.repositories import Repository

_DISK_FULL = ("No space left", "write error", "enough free space")  # in apt's and dpkg-deb's words
_CHECK_NETWORK = (
    "check the network and this machine's apt settings, then run the same command again"
)
_DEBIANS_KEYS = (
    "`apt-get install debian-archive-keyring` brings Debian's present keys; look also whether "
    "JETSHIP_DEBIAN_MIRROR, or this machine's apt, names a mirror of Debian"
)
_WHERE = r"(?P<where>\S+ \S*)"


@dataclass(frozen=True)
class _Meaning:
    """A message of apt's, and the cause and the advice that are made of its groups.

    {said} is what apt said, {key_file} the key of the repository that it speaks of, {read} all
    repositories.
    """

    pattern: str
    why: str
    fix: str


# Where several fit, the first is the cause and the others its consequences.
_MEANINGS = (
    _Meaning(
        rf"GPG error: {_WHERE} .*NO_PUBKEY (?P<key>[0-9A-F]+)",
        "{where} is signed with the key {key}, which is not in {key_file}",
        "get the public key {key} from whoever publishes the repository, in a way that you "
        "trust, and put it into {key_file}",
    ),
    _Meaning(
        rf"GPG error: {_WHERE} .*BADSIG (?P<key>[0-9A-F]+)",
        "{where} was changed after it was signed with the key {key} (BADSIG)",
        "do not trust that address; a mirror may be in the middle of an update: try again "
        "later, or use another one",
    ),
    _Meaning(
        rf"GPG error: {_WHERE} .*(?P<state>EXPKEYSIG|REVKEYSIG) (?P<key>[0-9A-F]+)",
        "{where} is signed with the key {key}, which has expired or was revoked ({state})",
        "get the publisher's present key, and put it into {key_file}",
    ),
    _Meaning(
        rf"(?:GPG error|OpenPGP signature verification failed): {_WHERE} \S+: (?P<cause>.*)",
        "the signature of {where} cannot be verified: {cause}",
        "compare the key in {key_file} with its publisher's; do not trust that address while "
        "its signature is not good",
    ),
    _Meaning(
        rf"The repository '{_WHERE} (?:In)?Release' is not signed",
        "{where} is not signed at all",
        "no package is taken on trust: have its publisher sign it; a repository of your own is "
        "signed with `gpg --clearsign --output InRelease Release`",
    ),
    _Meaning(
        rf"The repository '{_WHERE} Release' does not have a Release file",
        "there is no repository at that address, or it has no such suite: {where}",
        "compare `uri` and `suites` with what its publisher says; the suite of a flat "
        'repository ends in "/"',
    ),
    _Meaning(
        r"Release file for (?P<where>\S+) is (?:expired|not valid yet)",
        "{said}",
        "use a mirror that is kept up to date, and set this machine's clock",
    ),
    _Meaning(
        rf"repository '{_WHERE} (?:In)?Release' doesn't have the component '(?P<component>.*?)'",
        "{where} has no component {component}",
        "compare `components` with what its publisher says",
    ),
    _Meaning(
        r"Version .* was not found",
        "{said}; the archive no longer carries the locked version",
        "set JETSHIP_DEBIAN_MIRROR (or the repository's uri) to a snapshot that does, or renew "
        "the lock file with `invoke pins --part NAME`",
    ),
    _Meaning(
        r"Unable to locate package|has no installation candidate|[Cc]ouldn't find any package",
        "{said}; read were {read}",
        "compare the names with those of the repositories, and look whether a suite, a "
        "component or a repository is missing",
    ),
    _Meaning(
        r"unmet dependencies:\n(?P<unmet>(?: .*\n)+)",
        "{unmet}; read were {read}",
        "add the suite or the repository that has what is missing, or name the package under "
        "`alone`, which takes it without dependencies",
    ),
    _Meaning(
        r"Hash Sum mismatch|File has unexpected size",
        "{said}",
        "check the network, and try again later: a proxy, or a mirror in the middle of an "
        "update, gives files that are not those of the signed lists",
    ),
)


def as_error(
    what: str, done: proc.Finished, repositories: Sequence[Repository], *, note: str = ""
) -> DownloadError:
    """Return the error that a failed apt or dpkg-deb means.

    Args:
        what: one sentence, what went wrong.
        done: how the program ended.
        repositories: all that apt was to read.
        note: what else may be the cause.
    """
    if any(words in done.stderr for words in _DISK_FULL):
        return DownloadError(
            what,
            why="the disk is full",
            fix="free some space, or set JETSHIP_CACHE to a folder on a larger disk",
        )
    # The address as the user wrote it.
    text = re.sub(r"\bcopy:(?=/)", "file:", f"{done.stderr}\n{done.stdout}\n")
    said = _said(text, done.stderr)
    why, fix = said, _CHECK_NETWORK
    for meaning in _MEANINGS:
        found = re.search(meaning.pattern, text)
        if found:
            groups = {name: _joined(value) for name, value in found.groupdict().items()}
            key_file = _key_file(groups.get("where", ""), repositories)
            groups["key_file"] = key_file or "Debian's archive keyring"
            groups["read"] = "; ".join(one.title for one in repositories)
            why = meaning.why.format(said=said, **groups)
            is_debians = not key_file and "{key_file}" in meaning.fix
            fix = _DEBIANS_KEYS if is_debians else meaning.fix.format(**groups)
            break
    return DownloadError(what, why="; ".join(filter(None, (why, note))), fix=fix)


def missing_component(done: proc.Finished) -> bool:
    """Return whether apt only warned that a repository lacks a component."""
    return "doesn't have the component" in done.stderr


def _said(text: str, stderr: str) -> str:
    lines = text.splitlines()[: len(stderr.splitlines())]
    errors = [line for line in lines if line.startswith("E:")]
    errors = errors or [line for line in lines if line.strip()]
    return "; ".join(line.removeprefix("E: ").removeprefix("W: ") for line in errors[-3:])


def _joined(lines: str) -> str:
    return ", ".join(" ".join(line.split()) for line in lines.splitlines())


def _key_file(where: str, repositories: Sequence[Repository]) -> str:
    """Return the key of the repository at "uri suite", or "" where it is Debian's own."""
    place = where.partition(" ")[0].rstrip("/")
    for one in repositories:
        if one.uri and re.sub("^copy:", "file:", one.address) == place:
            return str(one.signed_by)
    return ""

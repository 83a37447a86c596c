"""Read a device's libraries over SSH.

The OpenSSH client does it, with the user's own settings for the host (jump hosts, aliases), so
that whoever can say `ssh USER@HOST` can probe; keys of hosts are never taken on trust, nothing
asks for a password, and the agent is not forwarded.
"""

import base64
import shlex
import zlib
from dataclasses import dataclass
from pathlib import Path

from jetship import proc
from jetship.errors import ConfigError, DownloadError, JetshipError
from jetship.probe.reader import NO_TORCH
from jetship.probe.record import Record, read_record, reader_source, require_whole
from jetship.store import Store, write_atomically
from jetship.targets.device import Address

CONNECT_SECONDS = 15
ALIVE_SECONDS = 10  # between the questions whether the device still answers; three may be lost
_SSH_FAILED = 255
_NO_PROGRAM = 127
_SHOWN = 400


@dataclass(frozen=True)
class Login:
    """How a device is reached.

    Args:
        address: user, host and port.
        identity: the file of a private key; then no other one is tried.
        known_hosts: a file with the host's key (default: the user's own).
        python: the interpreter of the device whose torch is meant.
        seconds: how long all may take.
    """

    address: Address
    identity: Path | None = None
    known_hosts: Path | None = None
    python: str = "python3"
    seconds: float = 900

    @property
    def argv(self) -> list[str]:
        """The command line of ssh without what runs on the device."""
        words = ["ssh", "-T", "-x", "-a", "-p", str(self.address.port)]
        options = {
            "BatchMode": "yes",
            "StrictHostKeyChecking": "yes",
            "UpdateHostKeys": "no",
            "ConnectTimeout": str(CONNECT_SECONDS),
            "ServerAliveInterval": str(ALIVE_SECONDS),
            "ServerAliveCountMax": "3",
            "ClearAllForwardings": "yes",
            "PermitLocalCommand": "no",
            "ControlMaster": "no",
            "ControlPath": "none",
        }
        if self.identity:
            options |= {"IdentitiesOnly": "yes", "IdentityAgent": "none"}
            words += ["-i", str(self.identity)]
        if self.known_hosts:
            options |= {
                "UserKnownHostsFile": f'"{self.known_hosts}"',
                "GlobalKnownHostsFile": "none",
            }
        for name, value in options.items():
            words += ["-o", f"{name}={value}"]
        return [*words, "--", f"{self.address.user}@{self.address.host}"]


def probe(login: Login, out: Path, store: Store) -> Record:
    """Read the libraries of a device into the file `out`, which is whole or stays as it was.

    Raises:
        ToolMissingError: this machine has no ssh.
        ConfigError: the device has no python3, or no torch for it; a file is not there.
        DownloadError: it cannot be reached, is another one than it was, refuses the login, takes
            too long, or the link ends early.
    """
    proc.require("ssh", fix="install OpenSSH's client: apt-get install openssh-client")
    for path in (login.identity, login.known_hosts):
        if path and not path.is_file():
            raise ConfigError(f"{path} is no file", fix="name a file that is there")
    with store.scratch() as scratch:
        received = scratch / "record.zip"
        command = f"exec {shlex.quote(login.python)} -c {shlex.quote(_program())}"
        try:
            done = proc.run([*login.argv, command], output=received, seconds=login.seconds)
        except proc.TimedOutError as error:
            raise DownloadError(
                f"{login.address} was not read within {login.seconds:.0f} s",
                fix="look after the network, or allow more with --time-limit",
            ) from error
        if not done.ok:
            raise _error(login, done)
        try:
            require_whole(received)
        except ConfigError as error:
            raise _ended(login, error.why) from error
        write_atomically(out, received.read_bytes())
    return read_record(out)


def _program() -> str:
    """Return the reader in one line, which every login shell takes as it is."""
    packed = base64.b64encode(zlib.compress(reader_source().encode(), 9)).decode()
    unpack = f"zlib.decompress(base64.b64decode('{packed}'))"
    return f"import base64,zlib;exec(compile({unpack},'reader','exec'))"


@dataclass(frozen=True)
class _Refusal:
    """What ssh says of a device that lets nobody in, and what that means."""

    words: tuple[str, ...]
    what: str
    fix: str


_REFUSALS = (
    _Refusal(
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "{name} has another host key than the one that is known",
        "find out why before anything else: another device has that address, or somebody sits "
        "between; if it was set up anew, `ssh-keygen -R {host}` forgets the old key",
    ),
    _Refusal(
        ("Host key verification failed",),
        "the host key of {name} is not known",
        "say `ssh -p {port} {user}@{host}` once, and compare the fingerprint with the device's own "
        "(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub)",
    ),
    _Refusal(
        ("Permission denied",),
        "{name} refuses the login",
        "name a key that it takes with --identity FILE, or put yours there with ssh-copy-id",
    ),
    _Refusal(
        (
            "Could not resolve",
            "Connection refused",
            "Connection timed out",
            "No route",
            "Network is unreachable",
            "during banner exchange",
        ),
        "{name} cannot be reached",
        "is it switched on and in this network? see --port as well",
    ),
)


def _error(login: Login, done: proc.Finished) -> JetshipError:
    said, name = done.stderr.strip()[-_SHOWN:], str(login.address)
    if done.status == NO_TORCH:
        return ConfigError(
            f"{name} has no torch for {login.python}",
            why=said,
            fix="name the interpreter that has it by its whole path, with --python",
        )
    if done.status == _NO_PROGRAM:
        return ConfigError(
            f"{name} has no {login.python}",
            why=said,
            fix="name its interpreter with --python; without Python there is no torch either",
        )
    for refusal in _REFUSALS if done.status == _SSH_FAILED else ():
        if any(words in done.stderr for words in refusal.words):
            values = {**vars(login.address), "name": name}
            return DownloadError(
                refusal.what.format(**values), why=said, fix=refusal.fix.format(**values)
            )
    return _ended(login, said)


def _ended(login: Login, why: str) -> DownloadError:
    return DownloadError(
        f"the link to {login.address} ended before all was read",
        why=why,
        fix="nothing of it was kept; run the same command again",
    )

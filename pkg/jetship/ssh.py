"""Reaching devices over SSH.

The OpenSSH client does it, with the user's own settings for the host (jump hosts, aliases), so
that whoever can say `ssh USER@HOST` can reach a device; keys of hosts are never taken on trust,
nothing asks for a password, and the agent is not forwarded.
"""

import base64
import shlex
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jetship import proc
from jetship.errors import ConfigError
from jetship.targets.device import Address

CONNECT_SECONDS = 15
ALIVE_SECONDS = 10  # between the questions whether the device still answers; three may be lost
SSH_FAILED = 255  # exit status of ssh where it is not that of the program on the device
NO_PROGRAM = 127


@dataclass(frozen=True)
class Login:
    """How a device is reached.

    Args:
        address: user, host and port.
        identity: the file of a private key; then no other one is tried.
        known_hosts: a file with the host's key (default: the user's own).
        python: the interpreter of the device that runs what is sent.
        jump: hosts to go through, as `ssh -J` takes them.
    """

    address: Address
    identity: Path | None = None
    known_hosts: Path | None = None
    python: str = "python3"
    jump: str = ""

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
        if self.jump:
            words += ["-J", self.jump]
        for name, value in options.items():
            words += ["-o", f"{name}={value}"]
        return [*words, "--", f"{self.address.user}@{self.address.host}"]

    def runs(self, source: str, name: str) -> list[str]:
        """Return the command line that runs a Python program on the device; it keeps stdin."""
        program = shlex.quote(one_line(source, name))
        return [*self.argv, f"exec {shlex.quote(self.python)} -c {program}"]

    def require(self) -> None:
        """Refuse a login for which something is missing on this machine.

        Raises:
            ToolMissingError: there is no ssh.
            ConfigError: a file is not there.
        """
        proc.require("ssh", fix="install OpenSSH's client: apt-get install openssh-client")
        for path in (self.identity, self.known_hosts):
            if path and not path.is_file():
                raise ConfigError(f"{path} is no file", fix="name a file that is there")


def one_line(source: str, name: str) -> str:
    """Return a Python program in one line, which every login shell takes as it is."""
    packed = base64.b64encode(zlib.compress(source.encode(), 9)).decode()
    unpack = f"zlib.decompress(base64.b64decode('{packed}'))"
    return f"import base64,zlib;exec(compile({unpack},'{name}','exec'))"


@dataclass(frozen=True)
class Refusal:
    """What ssh says of a device that lets nobody in, and what that means."""

    kind: Literal["host key", "login", "network"]
    words: tuple[str, ...]
    what: str
    fix: str


_REFUSALS = (
    Refusal(
        "host key",
        ("REMOTE HOST IDENTIFICATION HAS CHANGED",),
        "{name} has another host key than the one that is known",
        "find out why before anything else: another device has that address, or somebody sits "
        "between; if it was set up anew, `ssh-keygen -R {host}` forgets the old key",
    ),
    Refusal(
        "host key",
        ("Host key verification failed",),
        "the host key of {name} is not known",
        "say `ssh -p {port} {user}@{host}` once, and compare the fingerprint with the device's own "
        "(ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub)",
    ),
    Refusal(
        "login",
        ("Permission denied",),
        "{name} refuses the login",
        "name a key that it takes with --identity FILE, or put yours there with ssh-copy-id",
    ),
    Refusal(
        "network",
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


def refusal(address: Address, status: int, said: str) -> Refusal | None:
    """Return why ssh let nobody in, with its sentences filled in; None where it is not known.

    Args:
        address: the device's.
        status: ssh's exit status.
        said: what it wrote to stderr.
    """
    for known in _REFUSALS if status == SSH_FAILED else ():
        if any(words in said for words in known.words):
            values = {**vars(address), "name": str(address)}
            what, fix = known.what.format(**values), known.fix.format(**values)
            return Refusal(known.kind, known.words, what, fix)
    return None

"""A real OpenSSH server whose sessions see a root tree of their own, as a device's would."""

import contextlib
import os
import shlex
import socket
import subprocess  # noqa: TID251 - sshd has to stay in the background, which proc cannot do
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from engine import install
from jetship import proc
from product import wait_until

_CONFIG = """\
ListenAddress 127.0.0.1
Port {port}
HostKey {folder}/host
AuthorizedKeysFile {folder}/client.pub
PidFile none
UsePAM no
StrictModes no
PermitRootLogin prohibit-password
PasswordAuthentication no
KbdInteractiveAuthentication no
ForceCommand {folder}/session
"""
# The client's command runs in the tree; of `cut` bytes, the link ends without a word.
_SESSION = """\
#!/bin/sh
exec chroot {root} /bin/sh -c "$SSH_ORIGINAL_COMMAND"
"""
_CUT_SESSION = """\
#!/bin/sh
chroot {root} /bin/sh -c "$SSH_ORIGINAL_COMMAND" | head -c {cut}
kill -9 $PPID
"""


@dataclass(frozen=True)
class Server:
    """A running server: its port, and the keys that go with it."""

    folder: Path
    port: int

    @property
    def address(self) -> str:
        return f"root@127.0.0.1:{self.port}"

    @property
    def words(self) -> list[str | Path]:
        """The options by which a client knows it and is let in."""
        return ["--identity", self.folder / "client", "--known-hosts", self.folder / "known_hosts"]

    def cut_after(self, root: Path, size: int) -> None:
        """End each link after some bytes."""
        self._session(_CUT_SESSION.format(root=shlex.quote(str(root)), cut=size))

    def serve(self, root: Path) -> None:
        """Let sessions see a tree as their root."""
        self._session(_SESSION.format(root=shlex.quote(str(root))))

    def _session(self, text: str) -> None:
        script = self.folder / "session"
        script.write_text(text)
        script.chmod(0o755)


@contextlib.contextmanager
def running_server(folder: Path) -> Iterator[Server]:
    """Yield a server that lives as long as this context. Needs root."""
    install("/usr/sbin/sshd", "openssh-server")
    install("ssh", "openssh-client")
    Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "client", "stranger"):
        key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name]
        assert proc.run(key).ok
    with socket.socket() as probed:
        probed.bind(("127.0.0.1", 0))
        port = probed.getsockname()[1]
    public = (folder / "host.pub").read_text()
    (folder / "known_hosts").write_text(f"[127.0.0.1]:{port} {public}")
    (folder / "config").write_text(_CONFIG.format(port=port, folder=folder))
    log = (folder / "log").open("wb")
    argv = ["/usr/sbin/sshd", "-D", "-e", "-f", str(folder / "config")]
    with log, subprocess.Popen(argv, stdin=subprocess.DEVNULL, stderr=log) as child:
        try:
            wait_until(lambda: _answers(port) or child.poll() is not None, "sshd's start")
            assert child.poll() is None, (folder / "log").read_text()
            yield Server(folder, port)
        finally:
            child.terminate()


def _answers(port: int) -> bool:
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def link_tree(source: Path, folder: Path) -> None:
    """Make a tree of hard links, or of copies where the disk cannot do that."""
    folder.mkdir(parents=True, exist_ok=True)
    for option in ("-al", "-a"):
        if proc.run(["cp", option, f"{source}{os.sep}.", folder]).ok:
            return
    raise AssertionError(f"{source} cannot be copied to {folder}")

"""Read a device's libraries over SSH."""

from pathlib import Path

from jetship import proc, ssh
from jetship.errors import ConfigError, DownloadError, JetshipError
from jetship.probe.reader import NO_TORCH
from jetship.probe.record import Record, read_record, reader_source, require_whole
from jetship.ssh import Login
from jetship.store import Store, write_atomically

_SHOWN = 400


def probe(login: Login, out: Path, store: Store, *, seconds: float = 900) -> Record:
    """Read the libraries of a device into the file `out`, which is whole or stays as it was.

    Args:
        login: how the device is reached, and which of its interpreters has the torch that is meant.
        out: the file.
        store: has the scratch space.
        seconds: how long all may take.

    Raises:
        ToolMissingError: this machine has no ssh.
        ConfigError: the device has no python3, or no torch for it; a file is not there.
        DownloadError: it cannot be reached, is another one than it was, refuses the login, takes
            too long, or the link ends early.
    """
    login.require()
    with store.scratch() as scratch:
        received = scratch / "record.zip"
        try:
            argv = login.runs(reader_source(), "reader")
            done = proc.run(argv, output=received, seconds=seconds)
        except proc.TimedOutError as error:
            raise DownloadError(
                f"{login.address} was not read within {seconds:.0f} s",
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


def _error(login: Login, done: proc.Finished) -> JetshipError:
    said, name = done.stderr.strip()[-_SHOWN:], str(login.address)
    if done.status == NO_TORCH:
        return ConfigError(
            f"{name} has no torch for {login.python}",
            why=said,
            fix="name the interpreter that has it by its whole path, with --python",
        )
    if done.status == ssh.NO_PROGRAM:
        return ConfigError(
            f"{name} has no {login.python}",
            why=said,
            fix="name its interpreter with --python; without Python there is no torch either",
        )
    if found := ssh.refusal(login.address, done.status, done.stderr):
        return DownloadError(found.what, why=said, fix=found.fix)
    return _ended(login, said)


def _ended(login: Login, why: str) -> DownloadError:
    return DownloadError(
        f"the link to {login.address} ended before all was read",
        why=why,
        fix="nothing of it was kept; run the same command again",
    )

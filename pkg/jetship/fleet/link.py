"""A session with one device: the program is started there over SSH, and asked."""

import base64
import contextlib
import getpass
import json
import os
import selectors
import socket
import subprocess  # noqa: TID251 - for the type alone; proc starts it
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import asdict
from typing import IO, Any, Self

from jetship import proc, ssh
from jetship.fleet.layers import LayeredImage, LayerFile
from jetship.fleet.model import (
    DeviceState,
    DiskFullError,
    Facts,
    HostKeyError,
    Installed,
    Last,
    LinkError,
    LockedError,
    LostError,
    Outcome,
    Phases,
    Progress,
    RefusedError,
    RollbackOrder,
    Sent,
    SwapOrder,
    UnreachableError,
)
from jetship.fleet.program import program_source
from jetship.ssh import Login

CHUNK_BYTES = 1 << 18
RUBBISH_BYTES = 1 << 16  # what a login shell may say before the program does
SHOWN = 600
# The program on the device has limits of its own for all that it does. These come later, for a
# device that keeps its link and does not answer any more.
HELLO_SECONDS = 900.0
ASK_SECONDS = 900.0
PULL_SECONDS = 7 * 3600.0
LOAD_BYTES_A_SECOND = 1 << 20
SWAP_SECONDS = 3600.0
# A device whose link was cut without a word lets go of its lock after the silence; until then it
# hears an empty line now and then.
SILENCE_SECONDS = 60.0
BEAT_SECONDS = 15.0


def this_user() -> str:
    """Return user@machine, by which others see who holds a device."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def open_link(
    login: Login,
    *,
    app: str,
    release: str = "",
    who: str = "",
    state: str = "",
    wait_seconds: float = 0.0,
    look: bool = False,
) -> "SshLink":
    """Begin a session with a device, which is locked until it is closed.

    What an earlier session left unfinished there is ended first, unless this one only looks.

    Args:
        login: how the device is reached.
        app: name of the application, of which a device has one container at a time.
        release: what the rollout is called, for others who find the device locked.
        who: the same (default: user@machine).
        state: folder of the state folders on the device (default: ~/.local/share/jetship).
        wait_seconds: how long to wait for another session to end.
        look: only to see the device's state, which stays as it is.

    Raises:
        HostKeyError: its host key is not known, or another one.
        UnreachableError: no session came about.
        LockedError: another session has the device.
        LinkError: the device's state folder cannot be written to, or the link was cut.
        ToolMissingError: there is no ssh on this machine.
        ConfigError: a key's file is not there.
    """
    login.require()
    link = SshLink(login)
    try:
        link.begin(
            do="hello",
            app=app,
            release=release,
            who=who or this_user(),
            state=state,
            wait=wait_seconds,
            clock=time.time(),
            silence=SILENCE_SECONDS,
            look=look,
        )
    except BaseException:
        link.abandon()
        raise
    return link


class SshLink:
    """A session with one device; see `model.Link`. One thread at a time may use it."""

    facts: Facts

    def __init__(self, login: Login) -> None:
        self._login = login
        self._stack = contextlib.ExitStack()
        self._errors: IO[bytes] = tempfile.TemporaryFile()  # noqa: SIM115 - closed with the session
        self._stack.enter_context(self._errors)
        argv = login.runs(program_source(), "jetship")
        self._child = self._stack.enter_context(proc.conversation(argv, self._errors))
        self._buffer = b""
        self._speaking = threading.Lock()
        self._closed = threading.Event()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.close()
        else:
            self.abandon()

    def close(self) -> None:
        """End the session; the device is free."""
        with self._speaking:  # not while a beat is written: what it writes to is closed now
            self._closed.set()
        self._stack.close()

    def abandon(self) -> None:
        """End the session at once, whatever is under way."""
        proc.stop_group(self._child)
        self.close()

    def begin(self, **hello: Any) -> None:
        """Say hello, and learn the facts."""
        end = time.monotonic() + HELLO_SECONDS + hello["wait"]
        self._await_program(end)
        answer = self._ask(hello, end - time.monotonic(), None)
        self.facts = _facts(answer)
        threading.Thread(target=self._beat, daemon=True).start()

    def _beat(self) -> None:
        """Let the device hear that somebody is there, while nothing is said."""
        with contextlib.suppress(OSError, ValueError):  # the link, or this session, has ended
            while not self._closed.wait(BEAT_SECONDS):
                with self._speaking:
                    if not self._closed.is_set():
                        self._write(b"\n")

    def send_image(self, image: LayeredImage, progress: Progress | None = None) -> Sent:
        """Send the layers that the device lacks, and give the image to its engine."""
        rows = [_row(layer) for layer in image.layers]
        offered = self._ask({"do": "offer", "image": image.id, "layers": rows})
        if offered["present"]:
            return Sent(0, 0)
        by_digest = {layer.sha256: layer for layer in image.layers}
        wanted = {row["sha256"]: int(row["at"]) for row in offered["layers"]}
        layers = [by_digest[digest] for digest in wanted]
        there, total = sum(wanted.values()), sum(layer.size for layer in layers)
        before = there
        for layer in layers:
            layer.require_whole()
            there = self._send_layer(layer, wanted[layer.sha256], there, total, progress)
        rows = [
            {"diff_id": layer.diff_id, "sha256": layer.sha256 if layer.sha256 in wanted else None}
            for layer in image.layers
        ]
        config = base64.b64encode(image.config).decode()
        request = {"do": "load", "image": image.id, "config": config, "layers": rows}
        self._ask(request, ASK_SECONDS + total / LOAD_BYTES_A_SECOND)
        return Sent(len(layers), there - before)

    def pull(self, reference: str, image: str) -> None:
        """Have the device pull an image by digest."""
        self._ask({"do": "pull", "reference": reference, "image": image}, PULL_SECONDS)

    def swap(self, order: SwapOrder, phases: Phases | None = None) -> Outcome:
        """Have the device change over to an image that it has."""
        return self._change({"do": "swap"} | asdict(order), order.patience, phases)

    def rollback(self, order: RollbackOrder, phases: Phases | None = None) -> Outcome:
        """Have the device change back to its previous container."""
        return self._change({"do": "rollback"} | asdict(order), order.patience, phases)

    def _change(
        self, request: Mapping[str, Any], patience: float, phases: Phases | None
    ) -> Outcome:
        health = request["health"] or {}
        seconds = SWAP_SECONDS + 3 * health.get("timeout", 0) + health.get("settle", 0)
        return Outcome(**self._ask(request, seconds + 3 * patience, phases))

    def _send_layer(
        self, layer: LayerFile, at: int, there: int, total: int, progress: Progress | None
    ) -> int:
        """Send a layer from byte `at` on; return how many bytes are there then."""
        request = {"do": "layer", "sha256": layer.sha256, "size": layer.size, "at": at}
        with layer.path.open("rb") as stream:
            stream.seek(at)
            try:
                with self._speaking:
                    self._write(_line(request))
                    while chunk := stream.read(CHUNK_BYTES):
                        self._write(chunk)
                        there += len(chunk)
                        if progress:
                            progress(there, total)
            except BrokenPipeError:
                # The device may have said why it takes no more.
                self._answer(ASK_SECONDS, None)
        self._answer(ASK_SECONDS, None)
        return there

    # Lines there and back

    def _ask(
        self, request: Mapping[str, Any], seconds: float = ASK_SECONDS, phases: Phases | None = None
    ) -> Any:
        # Where the link is gone, reading says so.
        with contextlib.suppress(BrokenPipeError), self._speaking:
            self._write(_line(request))
        return self._answer(seconds, phases)

    def _answer(self, seconds: float, phases: Phases | None) -> Any:
        end = time.monotonic() + seconds
        while True:
            message = json.loads(self._read_line(end))
            if "phase" in message:
                if phases:
                    phases(message["phase"])
            elif "refused" in message:
                raise self._refused(message)
            else:
                return message["answer"]

    def _await_program(self, end: float) -> None:
        """Skip what the login shell says, up to the program's first line."""
        skipped = 0
        while skipped < RUBBISH_BYTES:
            line = self._read_line(end, began=False)
            with contextlib.suppress(ValueError):
                if json.loads(line).get("jetship") == 1:
                    return
            skipped += len(line) + 1
        raise UnreachableError(
            f"{self._login.address} does not run what is sent to it",
            why=f"it says {line[:80]!r} and more",
            fix="a login shell that writes so much, or starts something else, is in the way",
        )

    def _read_line(self, end: float, *, began: bool = True) -> bytes:
        while b"\n" not in self._buffer:
            chunk = self._read(end)
            if not chunk:
                raise self._ended(began=began)
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line

    def _read(self, end: float) -> bytes:
        out = _pipe(self._child.stdout)
        with selectors.DefaultSelector() as selector:
            selector.register(out, selectors.EVENT_READ)
            if not selector.select(max(end - time.monotonic(), 0)):
                raise LostError(
                    f"{self._login.address} does not answer any more",
                    fix="ask later how it ended: `invoke status`",
                )
        return os.read(out, CHUNK_BYTES)

    def _write(self, data: bytes) -> None:
        pipe, left = _pipe(self._child.stdin), memoryview(data)
        while left:
            left = left[os.write(pipe, left) :]

    # What went wrong

    def _ended(self, *, began: bool) -> LinkError:
        """Return what to say of an ssh that has ended."""
        try:
            status = self._child.wait(proc.STOP_GRACE_SECONDS)
        except subprocess.TimeoutExpired:
            status = None
        self._errors.seek(0)
        text = self._errors.read().decode("utf-8", "replace")
        said, name = text.strip()[-SHOWN:], str(self._login.address)
        if began:
            return LostError(
                f"the link to {name} was cut",
                why=said,
                fix="what was begun there is ended there; the next session tells how",
            )
        if found := ssh.refusal(self._login.address, status or 0, text):
            kind = HostKeyError if found.kind == "host key" else UnreachableError
            return kind(found.what, why=said, fix=found.fix)
        if status == ssh.NO_PROGRAM:
            return UnreachableError(
                f"{name} has no {self._login.python}",
                why=said,
                fix="install python3 there; of it, 3.6 and the standard library are enough",
            )
        return UnreachableError(
            f"the session with {name} ended before it began",
            why=said,
            fix=f"try `ssh {name.rpartition(':')[0] or name} {self._login.python} --version`",
        )

    def _refused(self, message: Mapping[str, Any]) -> LinkError:
        name, kind = self._login.address, message["refused"]
        what, fix = f"{name}: {message['what']}", message["fix"]
        if kind == "locked":
            holder = message["holder"]
            words = {key: holder.get(key, "") for key in ("who", "release", "since")}
            return LockedError(
                f"another session holds {name}",
                why="{who}, for {release}, since {since} (UTC)".format_map(words),
                fix="wait until it has ended",
                holder=words["who"],
                release=words["release"],
                since=words["since"],
            )
        if kind == "full":
            return DiskFullError(what, fix=fix)
        return RefusedError(what, fix=fix, kind=kind)


def _row(layer: LayerFile) -> dict[str, Any]:
    return {
        "diff_id": layer.diff_id,
        "sha256": layer.sha256,
        "size": layer.size,
        "unpacked": layer.unpacked,
    }


def _facts(answer: dict[str, Any]) -> Facts:
    state = answer["state"]
    return Facts(
        **answer
        | {
            "runtimes": tuple(answer["runtimes"]),
            "images": tuple(answer["images"]),
            "chains": tuple(tuple(chain) for chain in answer["chains"]),
            "state": DeviceState(
                Installed(**state["current"]) if state["current"] else None,
                Installed(**state["previous"]) if state["previous"] else None,
                state["unfinished"],
                Last(**state["last"]) if state["last"] else None,
                state["note"],
            ),
        }
    )


def _line(request: Mapping[str, Any]) -> bytes:
    return json.dumps(request).encode() + b"\n"


def _pipe(stream: IO[bytes] | None) -> int:
    if stream is None:
        raise ValueError("the program was started without a pipe")
    return stream.fileno()

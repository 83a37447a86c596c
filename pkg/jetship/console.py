"""What the user sees: people read stderr, machines read one JSON document on stdout."""

import contextlib
import json
import os
import re
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from rich.console import Console
from rich.text import Text

from jetship.errors import StdoutError
from jetship.hints import spoken

# Without emoji: rich would make a picture of the line number in "deploy.yaml:100:5".
stderr = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
stdout = Console(highlight=False, emoji=False)


# C0 without tab and line feed, DEL, C1.
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_STDOUT_FIX = "let stdout go to a terminal, a pipe, or a file on a disk with free space"


# Of which target is spoken, where several are worked on at once.
_speaker: ContextVar[str] = ContextVar("speaker", default="")


@contextlib.contextmanager
def speaking_of(name: str) -> Iterator[None]:
    """Put a name before the steps and notes of this thread while the body runs."""
    token = _speaker.set(name)
    try:
        yield
    finally:
        _speaker.reset(token)


_live = threading.Event()


@contextlib.contextmanager
def live_display() -> Iterator[None]:
    """Note that the body draws on the terminal; a second display would draw over it."""
    _live.set()
    try:
        yield
    finally:
        _live.clear()


def has_live_display() -> bool:
    """Return whether something is drawn on the terminal already."""
    return _live.is_set()


def step(message: str) -> None:
    """Say what starts now."""
    stderr.print(Text.assemble(("==>", "bold"), " ", _said(message)))


def note(message: str) -> None:
    """Say something worth knowing about the running step."""
    stderr.print(Text(f"    {_said(message)}"))


def _said(message: str) -> str:
    speaker, message = _speaker.get(), readable(spoken(message))
    return f"{speaker}: {message}" if speaker else message


def readable(text: str) -> str:
    """Return a text whose control characters are told and not obeyed, but for line ends and tabs.

    Names in a wheel and what a project prints are anybody's, and a terminal does what they say.
    """
    plain = text.replace("\r\n", "\n")
    return _CONTROL.sub(lambda match: f"\\x{ord(match[0]):02x}", plain)


def warn(message: str) -> None:
    """Say something that the user should act on, now or later."""
    stderr.print(Text.assemble(("warning:", "yellow"), " ", _said(message)))


def error(message: str) -> None:
    """Say why the task ends."""
    stderr.print(Text.assemble(("error:", "red"), " ", _said(message)))


def debug(message: str) -> None:
    """Show a command line, when JETSHIP_VERBOSE is set."""
    if os.environ.get("JETSHIP_VERBOSE"):
        stderr.print(Text(readable(message), "dim"))


def text(lines: str) -> None:
    """Show a text as it is, line by line."""
    stderr.print(Text(readable(spoken(lines))))


def emit_json(document: Any) -> None:
    """Write one JSON document to stdout."""
    _write(json.dumps(document, indent=2, sort_keys=False))


def emit(text: str) -> None:
    """Write a result that is text to stdout."""
    _write(readable(text))


def require_stdout() -> None:
    """Make sure that there is a stdout, before a task works for an answer that nobody can get.

    Raises:
        StdoutError: it is closed.
    """
    if sys.stdout is None:
        raise StdoutError("stdout is closed, so the answer cannot be written", fix=_STDOUT_FIX)


def silence_stdout() -> None:
    """Let go of what could not be written, so that the end of the process does not try again."""
    with contextlib.suppress(AttributeError, OSError):  # it is closed, or no file at all
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _write(text: str) -> None:
    """Write lines to stdout; a path that is not valid UTF-8 goes out as the bytes that it is."""
    data = f"{text}\n".encode(sys.stdout.encoding, "surrogateescape")
    try:
        sys.stdout.flush()
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise StdoutError(
            f"the answer cannot be written to stdout: {error.strerror or error}", fix=_STDOUT_FIX
        ) from error

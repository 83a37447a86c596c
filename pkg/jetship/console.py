"""What the user sees: people read stderr, machines read one JSON document on stdout."""

import contextlib
import json
import os
import sys
import threading
from collections.abc import Iterator
from contextvars import ContextVar
from typing import Any

from rich.console import Console
from rich.text import Text

from jetship.hints import spoken

# Without emoji: rich would make a picture of the line number in "deploy.yaml:100:5".
stderr = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
stdout = Console(highlight=False, emoji=False)


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
    speaker, message = _speaker.get(), spoken(message)
    return f"{speaker}: {message}" if speaker else message


def warn(message: str) -> None:
    """Say something that the user should act on, now or later."""
    stderr.print(Text.assemble(("warning:", "yellow"), " ", _said(message)))


def error(message: str) -> None:
    """Say why the task ends."""
    stderr.print(Text.assemble(("error:", "red"), " ", _said(message)))


def debug(message: str) -> None:
    """Show a command line, when JETSHIP_VERBOSE is set."""
    if os.environ.get("JETSHIP_VERBOSE"):
        stderr.print(Text(message, "dim"))


def text(lines: str) -> None:
    """Show a text as it is, line by line."""
    stderr.print(Text(spoken(lines)))


def emit_json(document: Any) -> None:
    """Write one JSON document to stdout."""
    json.dump(document, sys.stdout, indent=2, sort_keys=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def emit(text: str) -> None:
    """Write a result that is text to stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

"""What the user sees: people read stderr, machines read one JSON document on stdout."""

import json
import os
import sys
from typing import Any

from rich.console import Console
from rich.text import Text

# Without emoji: rich would make a picture of the line number in "deploy.yaml:100:5".
stderr = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
stdout = Console(highlight=False, emoji=False)


def step(message: str) -> None:
    """Say what starts now."""
    stderr.print(Text.assemble(("==>", "bold"), " ", message))


def note(message: str) -> None:
    """Say something worth knowing about the running step."""
    stderr.print(Text(f"    {message}"))


def warn(message: str) -> None:
    """Say something that the user should act on, now or later."""
    stderr.print(Text.assemble(("warning:", "yellow"), " ", message))


def error(message: str) -> None:
    """Say why the task ends."""
    stderr.print(Text.assemble(("error:", "red"), " ", message))


def debug(message: str) -> None:
    """Show a command line, when JETSHIP_VERBOSE is set."""
    if os.environ.get("JETSHIP_VERBOSE"):
        stderr.print(Text(message, "dim"))


def text(lines: str) -> None:
    """Show a text as it is, line by line."""
    stderr.print(Text(lines))


def emit_json(document: Any) -> None:
    """Write one JSON document to stdout."""
    json.dump(document, sys.stdout, indent=2, sort_keys=False)
    sys.stdout.write("\n")
    sys.stdout.flush()


def emit(text: str) -> None:
    """Write a result that is text to stdout."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()

"""The command line as a whole: what cannot be read is an error like any other."""

import contextlib
import difflib
import re
from collections.abc import Iterator

from invoke.exceptions import Exit, ParseError
from invoke.program import Program

from jetship import console
from jetship.errors import ConfigError


class JetshipProgram(Program):
    """invoke's program, whose errors about the command line say what was meant, with status 2."""

    def parse_core(self, argv: list[str] | None) -> None:
        with self._unreadable():
            super().parse_core(argv)

    def parse_tasks(self) -> None:
        with self._unreadable():
            super().parse_tasks()

    @contextlib.contextmanager
    def _unreadable(self) -> Iterator[None]:
        try:
            yield
        except ParseError as error:
            told = self._told(error)
            console.error(str(told))
            raise Exit(code=told.exit_code) from None

    def _told(self, error: ParseError) -> ConfigError:
        valueless = re.fullmatch(r"Flag <Argument: ([\w-]+).*> needed value.*", str(error))
        if valueless is not None:
            return ConfigError(f"--{valueless[1]} needs a value")
        match = re.fullmatch(r"No idea what '(.*)' is!", str(error))
        if match is None:
            return ConfigError(str(error))
        word = match[1]
        task = error.context.name if error.context else None
        if word.startswith("-"):
            context = error.context or self.initial_context
            known = [name for name in context.flags if len(name) > 2]
            what = f"{word} is no option of {task}" if task else f"{word} is no option"
            shown = f"`invoke {task} --help`" if task else "`invoke build --help`"
        else:
            known, what = list(self.collection.task_names), f"{word!r} is no task"
            shown = "--list"
        close = difflib.get_close_matches(word, known, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        return ConfigError(what, fix=f"{hint}{shown} shows all")

"""The command line as a whole: what cannot be read is an error like any other."""

import contextlib
import difflib
import re
from collections.abc import Iterator

from invoke.exceptions import ParseError
from invoke.parser.context import ParserContext
from invoke.program import Program

from jetship.errors import ConfigError
from jetship.tasks.command import leave

_LISTS = ("--arch", "-a", "--target", "-t")


class JetshipProgram(Program):
    """invoke's program, whose errors about the command line say what was meant, with status 2."""

    def parse_core(self, argv: list[str] | None) -> None:
        with self._unreadable():
            super().parse_core(argv)

    def parse_tasks(self) -> None:
        with self._unreadable():
            self._refuse_repeated()
            super().parse_tasks()

    def _refuse_repeated(self) -> None:
        """Refuse an option with a value that a task is given twice.

        invoke takes the second value for the next word, such as a task's name or a path.

        Raises:
            ParseError: names it as it was written.
        """
        contexts = {context.name: context for context in self.collection.to_contexts()}
        context: ParserContext | None = None
        seen: set[str] = set()
        for token in self.core.unparsed:
            if token in contexts:
                context, seen = contexts[token], set()
            word = token.partition("=")[0]
            if context is None or word not in context.flags:
                continue
            argument = context.flags[word]  # get() knows no short names
            if not argument.takes_value:
                continue
            if argument.name in seen:
                raise ParseError(f"{word} is given twice", context)
            seen.add(argument.name)

    @contextlib.contextmanager
    def _unreadable(self) -> Iterator[None]:
        try:
            yield
        except ParseError as error:
            leave(self._told(error), as_json="--json" in self.argv)

    def _told(self, error: ParseError) -> ConfigError:
        valueless = re.fullmatch(r"Flag <Argument: ([\w-]+).*> needed value.*", str(error))
        if valueless is not None:
            return ConfigError(f"--{valueless[1]} needs a value")
        if str(error).endswith(" is given twice"):
            lists = str(error).split()[0] in _LISTS
            fix = "give it once" + ("; several values are A,B,C in one" if lists else "")
            return ConfigError(str(error), fix=fix)
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

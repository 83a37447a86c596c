"""What every task shares: errors become exit codes, and paths may be given in any number."""

import contextlib
import dataclasses
import functools
import inspect
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import FrameType
from typing import Any, NoReturn, cast

from invoke.exceptions import Exit
from invoke.parser.argument import Argument
from invoke.tasks import Task, task

from jetship import console, hints
from jetship.errors import INTERRUPTED_EXIT_CODE, ConfigError, JetshipError, StdoutError

# One letter means one thing in every task; invoke's own choice differs from task to task.
SHORT = {
    "arch": "a",
    "board": "b",
    "deploy": "d",
    "jetpack": "j",
    "platform": "p",
    "target": "t",
    "wheel": "w",
}


class Reported(Exception):  # noqa: N818 - it wraps an error that the JSON on stdout has told
    """An error that the task's JSON document already holds; only its exit code is left."""

    def __init__(self, error: JetshipError) -> None:
        self.error = error
        super().__init__(str(error))


def command(
    *,
    paths: str = "",
    records: Mapping[str, Any] | None = None,
    help: Mapping[str, str] | None = None,  # noqa: A002 - invoke's name for it
) -> Callable[[Callable[..., None]], "Task[Any]"]:
    """Make an invoke task of a function that may raise `JetshipError`.

    Args:
        paths: the parameter that takes all positional arguments, as a list.
        records: parameters that take several options together, as a dataclass each: every
            field is an option of the command line. Its class says with `HELP` what they mean,
            and may say with `KNOWN` what there is to name.
        help: what each other option means.
    """
    grouped = records or {}
    texts = {name: text for kind in grouped.values() for name, text in kind.HELP.items()}
    known = {
        name: values
        for kind in grouped.values()
        for name, values in getattr(kind, "KNOWN", {}).items()
    }
    options = {"help": {**texts, **(help or {})}, "auto_shortflags": False, "klass": _Task}

    def decorate(function: Callable[..., None]) -> "Task[Any]":
        @functools.wraps(function)
        def guarded(*args: Any, **kwargs: Any) -> None:
            try:
                console.require_stdout()
                _refuse_empty(kwargs, known)
                # What was not given has the function's own default.
                kwargs = {name: value for name, value in kwargs.items() if value is not None}
                hints.carry(kwargs)
                for parameter, kind in grouped.items():
                    names = [field.name for field in dataclasses.fields(kind)]
                    given = {name: kwargs.pop(name) for name in names if name in kwargs}
                    kwargs[parameter] = kind(**given)
                with _stoppable():
                    function(*args, **kwargs)
            except JetshipError as error:
                leave(error, as_json=bool(kwargs.get("json")))
            except Reported as told:
                leave(told.error, as_json=False)
            except BrokenPipeError:
                # Whoever read our output has enough of it (| head): not an error of anybody.
                console.silence_stdout()
                raise Exit(code=0) from None
            except OSError as error:
                leave(_of_the_system(error), as_json=bool(kwargs.get("json")))
            except KeyboardInterrupt:
                console.error("interrupted; nothing half-written is left")
                raise Exit(code=INTERRUPTED_EXIT_CODE) from None

        guarded.__doc__ = hints.spoken(function.__doc__ or "")
        guarded.__signature__ = _expanded(function, grouped)  # type: ignore[attr-defined]
        if paths:
            options.update(klass=_PathsTask, positional=[paths])
        return cast("Task[Any]", task(guarded, **options))

    return decorate


def _expanded(function: Callable[..., None], grouped: Mapping[str, Any]) -> inspect.Signature:
    """Return the signature in which the fields of the records stand for the records.

    Where a text has a default, None stands for it: so what was given empty can be told from
    what was not given.
    """
    signature = inspect.signature(function)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        kind = grouped.get(parameter.name)
        if kind is None:
            parameters.append(parameter)
        else:
            parameters += [
                inspect.Parameter(field.name, parameter.kind, default=field.default)
                for field in dataclasses.fields(kind)
            ]
    plain = [
        one.replace(default=None) if isinstance(one.default, str) else one for one in parameters
    ]
    return signature.replace(parameters=plain)


def _refuse_empty(
    given: Mapping[str, Any], known: Mapping[str, Callable[[], Sequence[str]]]
) -> None:
    """Refuse options with an empty value: it would mean something else than what was meant.

    Raises:
        ConfigError: names all of them.
    """
    names = [name for name, value in given.items() if isinstance(value, str) and not value.strip()]
    if not names:
        return
    options = [f"--{name.replace('_', '-')}" for name in names]
    lists = [f"{name} is one of {', '.join(known[name]())}" for name in names if name in known]
    raise ConfigError(
        f"{' and '.join(options)} {'is' if len(options) == 1 else 'are'} empty",
        why="a shell variable that is not set leaves nothing",
        fix="; ".join([f"leave {' and '.join(options)} out or give a value", *lists]),
    )


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP end a task as Ctrl-C does, so that no compiler is left running."""

    def stop(*_: object) -> NoReturn:
        raise KeyboardInterrupt

    signals = [signal.SIGTERM, signal.SIGHUP]
    if threading.current_thread() is not threading.main_thread():
        signals = []
    # One that is ignored (nohup) or handled already stays as it is.
    taken = [number for number in signals if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _of_the_system(error: OSError) -> ConfigError:
    """Return what the system refused, as an error of the request that led there."""
    where = f"{error.filename}: " if error.filename else ""
    return ConfigError(
        f"{where}{error.strerror or error}",
        fix="name another file or folder, or change its permissions",
    )


def leave(error: JetshipError, *, as_json: bool) -> NoReturn:
    """Tell an error, with --json on stdout as well, and end with its exit code."""
    console.error(str(error))
    told = isinstance(error, StdoutError)
    if as_json and not told:
        row = error.to_json()
        texts = {name: hints.spoken(text) for name, text in row.items() if isinstance(text, str)}
        try:
            console.require_stdout()
            console.emit_json({"error": row | texts})
        except (BrokenPipeError, StdoutError):
            told = True
    if told:
        console.silence_stdout()
    raise Exit(code=error.exit_code) from None


class _Paths(Argument):
    """A positional argument of any number of tokens.

    invoke gives a positional argument one token, and takes the next for a task's name. While
    the command line is read, an argument whose value is None is given the next token; when it
    ends, one whose value is None is complained about. So the value has to depend on who asks.
    """

    def __init__(self, original: Argument) -> None:
        super().__init__(names=original.names, kind=str, help=original.help, positional=True)
        self.collected: list[str] = []

    @property
    def value(self) -> list[str] | None:
        """The tokens so far, when no more can follow; None as long as the next is one."""
        return self.collected if _no_path_follows() else None

    @value.setter
    def value(self, token: str) -> None:
        self.collected.append(token)


def _no_path_follows() -> bool:
    """Tell from who asks: invoke's parser at the end, or with an option in its hands."""
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001
    for _ in range(3):  # as far up as invoke's parser goes
        if frame is None or frame.f_code.co_name in ("complete_context", "as_kwargs"):
            return frame is not None
        if frame.f_code.co_name == "handle":
            return bool(re.match(r"-.", frame.f_locals.get("token", "")))
        frame = frame.f_back
    return False


class _Task(Task[Any]):
    """A task whose options have the letters of `SHORT`."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: FBT001
        """Return the options. invoke's own method takes their texts away, and is called twice."""
        texts = dict(self.help)
        arguments = super().get_arguments(ignore_unknown_help)
        self.help = texts
        return arguments

    def arg_opts(self, name: str, default: Any, taken_names: set[str]) -> dict[str, Any]:
        options = super().arg_opts(name, default, taken_names)
        if name in SHORT:
            options["names"].append(SHORT[name])
        return options


class _PathsTask(_Task):
    """A task whose positional argument takes any number of paths."""

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:  # noqa: FBT001
        arguments = super().get_arguments(ignore_unknown_help)
        return [_Paths(one) if one.positional else one for one in arguments]

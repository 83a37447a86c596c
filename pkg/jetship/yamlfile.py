"""YAML at the boundary: strict reading, and every error with its file, line and column."""

import difflib
import functools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, TypeVar, get_origin

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from jetship.errors import ConfigError
from jetship.nofile import why_no_file

_NAME_ONE = "name a file that is there"
_YAML = (
    "mend that line, or the one before it: spaces in front, never tabs; brackets and quotes "
    "closed; text with `: ` or ` #` in it in quotes"
)
# Of reading a damaged mapping: wrong keys, then what does not fit together, then what is left.
_MOST_TRIES = 4
# The type of an error about something whose own problems are listed as well.
ELSEWHERE = "wrong_elsewhere"

ModelT = TypeVar("ModelT", bound="Strict")


class FileError(ConfigError):
    """A file whose content is wrong, with each problem as a line that begins with its place.

    Problems of a file that it names come behind its own.
    """

    def __init__(self, path: Path, problems: Sequence[str], *, fix: str = "") -> None:
        self.problems = tuple(problems)
        ordered = sorted(problems, key=lambda one: _in_the_file(path, one))
        super().__init__(summary(path, ordered), fix=fix)


def _in_the_file(path: Path, problem: str) -> tuple[bool, str, int, int]:
    found = re.match(r"(.*?):(\d+):(\d+): ", problem)
    if found is None:
        return False, "", 0, 0
    return found[1] != str(path), found[1], int(found[2]), int(found[3])


class Strict(BaseModel):
    """Base of all models of a YAML file: immutable, and unknown keys are errors."""

    model_config = ConfigDict(extra="forbid", frozen=True)


# Read by libyaml where PyYAML was built with it: three times as fast, and the same nodes.
_Base: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class _Loader(_Base):  # type: ignore[misc]
    """SafeLoader without YAML 1.1's guesses.

    3.10 stays the text "3.10" and 12:30 the text "12:30" (PyYAML reads 3.1 and 750), only
    true and false are booleans (not yes, no, on, off), dates stay text, and a repeated key
    is an error instead of letting the last one win.
    """


_Loader.yaml_implicit_resolvers = {}
_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""]
)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789")
)
# Nothing else may be asked for: an explicit !!float or !!timestamp would bring the guesses back.
_Loader.yaml_constructors = {
    tag: construct
    for tag, construct in yaml.SafeLoader.yaml_constructors.items()
    if tag is None or tag.rpartition(":")[2] in ("bool", "null", "int", "str", "seq", "map")
}


@dataclass(frozen=True, eq=False)
class Document:
    """A YAML file that was read: its values, and where in the file each of them stands.

    The values belong to all who read the file: they are looked at and never changed.
    """

    path: Path
    data: Any
    _root: yaml.Node | None
    repeated: tuple[str, ...] = ()
    """Each key that its mapping has already, a line each with its place; in `data`, the last one
    has won. Who takes the values must tell of these."""
    _pairs: dict[int, dict[str, tuple[yaml.Node, yaml.Node]]] = field(default_factory=dict)
    """Key and value of each mapping that was looked into, by the key's text."""

    def place(self, location: Sequence[int | str]) -> str:
        """Return file:line:column of a key, or of the nearest one around it."""
        node = self._locate(location)
        return str(self.path) if node is None else _place(self.path, node)

    def _locate(self, location: Sequence[int | str]) -> yaml.Node | None:
        """Return the deepest node on the way to `location`: the key's own node where it exists."""
        node, shown = self._root, self._root
        for part in location:
            if isinstance(node, yaml.MappingNode):
                pair = self._pairs_of(node).get(str(part))
                if pair is None:
                    break
                shown, node = pair
            elif isinstance(node, yaml.SequenceNode) and part in range(len(node.value)):
                shown = node = node.value[part]
            else:
                break
        return shown

    def _pairs_of(self, node: yaml.MappingNode) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        # An inventory has thousands of hosts in one mapping, and each may have a problem.
        if id(node) not in self._pairs:
            self._pairs[id(node)] = {str(key.value): (key, value) for key, value in node.value}
        return self._pairs[id(node)]

    def problems(
        self, error: ValidationError, model: type[BaseModel], at: Sequence[int | str] = ()
    ) -> list[str]:
        """Return what a model says of the value at `at`, a line each, with its place.

        Keys are named as seen from there.
        """
        return self.lines(_apart(error.errors()), model, at)

    def lines(
        self, details: Sequence[ErrorDetails], model: type[BaseModel], at: Sequence[int | str]
    ) -> list[str]:
        """Return single ones of a model's problems as `problems` does."""
        return [
            _describe(self, {**detail, "loc": (*at, *detail["loc"])}, model, len(at))
            for detail in details
        ]


@dataclass(frozen=True)
class Salvaged(Generic[ModelT]):
    """What could be read of a mapping in which something is wrong.

    Args:
        value: a model of what could be read, with defaults and stand-ins for the rest.
        unread: the keys of which `value` says nothing: wrong ones, and those that an unknown key
            was probably meant for.
        more: problems that only show beside the wrong keys.
    """

    value: ModelT
    unread: frozenset[str]
    more: tuple[ErrorDetails, ...] = ()


def salvage(
    model: type[ModelT],
    raw: object,
    *,
    missing: Mapping[str, object] | None = None,
    together: Mapping[str, object] | None = None,
) -> Salvaged[ModelT] | None:
    """Read what can be read of a mapping, so that all its problems are found in one go.

    Args:
        model: of the mapping.
        raw: what the file has.
        missing: what stands in for keys that have to be there.
        together: what stands in where keys do not fit together.

    Returns:
        None where nothing can be read of it.
    """
    if not isinstance(raw, dict):
        return None
    data, stand_ins, loose = {**raw}, {**(missing or {})}, {**(together or {})}
    unread: set[str] = set()
    more: list[ErrorDetails] = []
    for seen in range(_MOST_TRIES):
        try:
            return Salvaged(model.model_validate(data), frozenset(unread), tuple(more))
        except ValidationError as error:
            details = error.errors()
        for detail in details:
            if not detail["loc"]:
                more += [detail] if seen and not unread & {*loose} else []
                data |= loose
                unread |= {*loose}
                continue
            key = str(detail["loc"][0])
            data.pop(key, None)
            data |= {key: stand_ins[key]} if key in stand_ins else {}
            unread.add(key)
            if detail["type"] == "extra_forbidden" and len(detail["loc"]) == 1:
                unread |= {*difflib.get_close_matches(key, model.model_fields, n=1)}
    return None


def read(path: Path) -> Document:
    """Read a YAML or JSON file.

    Raises:
        ConfigError: the file is missing or is not YAML.
    """
    return _parse(path, _text(path))


def load(path: Path, model: type[ModelT], context: object = None) -> ModelT:
    """Read a YAML file into a model, whose validators may look at `context`.

    Raises:
        ConfigError: the file is missing, is not YAML or does not fit the model; every
            problem is listed, each with file, line and column.
    """
    document = read(path)
    try:
        found = model.model_validate(document.data, context=context)
    except ValidationError as error:
        problems = [*document.repeated, *document.problems(error, model)]
        raise FileError(path, problems) from error
    if document.repeated:
        raise FileError(path, document.repeated)
    return found


def top_level(path: Path, key: str) -> object:
    """Return the value of one key of a YAML file, whatever the others hold, or None.

    Raises:
        ConfigError: the file is missing or is not YAML.
    """
    data = read(path).data
    return data.get(key) if isinstance(data, dict) else None


def place(path: Path, location: Sequence[int | str]) -> str:
    """Return file:line:column of a key, or of the nearest one around it.

    Raises:
        ConfigError: the file is missing or is not YAML.
    """
    return read(path).place(location)


def summary(path: Path | str, problems: Sequence[str]) -> str:
    """Return a file's problems as one text."""
    if len(problems) == 1:
        return problems[0]
    return f"{path} has {len(problems)} problems\n" + "\n".join(f"  {line}" for line in problems)


def _text(path: Path) -> str:
    if problem := why_no_file(path):
        raise ConfigError(
            f"{path} {problem}", why=f"as a whole path: {path.absolute()}", fix=_NAME_ONE
        )
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        fix = "save it as UTF-8"
        raise ConfigError(f"{path} cannot be read as text", why=str(error), fix=fix) from error
    except OSError as error:
        fix = "let yourself read it"
        raise ConfigError(f"{path} cannot be read as text", why=str(error), fix=fix) from error


# A task asks one file for several things, with all of the catalog's in between, and a fleet of
# thousands takes half a second to parse.
@functools.lru_cache(maxsize=128)
def _parse(path: Path, text: str) -> Document:
    try:
        loader = _Loader(text)
    except yaml.YAMLError as error:  # a character that no YAML file may hold
        raise ConfigError(
            f"{path}: not valid YAML: {error}", fix="take that character out"
        ) from error
    try:
        root = loader.get_single_node()
        if root is None:
            return Document(path, {}, None)
        repeated = tuple(
            f"{_place(path, key)}: key {key.value!r} is given twice" for key in _repeats(root)
        )
        return Document(path, loader.construct_document(root), root, repeated)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
        raise ConfigError(f"{place}: not valid YAML: {error.problem}", fix=_YAML) from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{path}: not valid YAML: {error}", fix=_YAML) from error
    except (ValueError, LookupError) as error:  # !!int "x", or a number of thousands of digits
        fix = "put text in quotes, and leave !!types out"
        raise ConfigError(f"{path}: a value does not fit its type: {error}", fix=fix) from error
    except RecursionError as error:
        raise ConfigError(f"{path}: it is nested too deeply", fix="nest it less") from error
    finally:
        loader.dispose()


def _repeats(root: yaml.Node) -> list[yaml.ScalarNode]:
    """Return every key that its mapping has already, in the order of the file."""
    found: list[yaml.ScalarNode] = []
    visited: set[int] = set()  # an alias leads to a node once more, or round in a circle
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if id(node) in visited:
            continue
        visited.add(id(node))
        if isinstance(node, yaml.SequenceNode):
            waiting += node.value
        elif isinstance(node, yaml.MappingNode):
            seen: set[str] = set()
            for key, value in node.value:
                waiting.append(value)
                if isinstance(key, yaml.ScalarNode):
                    if key.value in seen:
                        found.append(key)
                    seen.add(key.value)
    return sorted(found, key=lambda key: key.start_mark.index)


def _place(path: Path, node: yaml.Node) -> str:
    return f"{path}:{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _apart(details: Sequence[ErrorDetails]) -> list[ErrorDetails]:
    """Leave out what only follows from other problems.

    That is that a list is too short without its wrong entries, and what is wrong elsewhere.
    """
    places = [detail["loc"] for detail in details]
    own = [detail for detail in details if detail["type"] != ELSEWHERE]
    return [
        detail
        for detail in own or details
        if detail["type"] != "too_short"
        or not any(_is_within(place, detail["loc"]) for place in places)
    ]


def _is_within(place: tuple[int | str, ...], around: tuple[int | str, ...]) -> bool:
    return len(place) > len(around) and place[: len(around)] == around


def _describe(document: Document, detail: ErrorDetails, model: type[BaseModel], within: int) -> str:
    location = detail["loc"]
    place = document.place(location)
    # Of a key that is wrong itself, pydantic says so behind it.
    about_key = location[-1:] == ("[key]",)
    name = ".".join(str(part) for part in location[within : -1 if about_key else None])
    if detail["type"] == "extra_forbidden":
        known = _known_keys(model, location[within:-1])
        close = difflib.get_close_matches(str(location[-1]), known, n=1)
        hint = f"; did you mean {close[0]!r}?" if close else f"; known keys: {', '.join(known)}"
        return f"{place}: unknown key {name!r}{hint}"
    if detail["type"] == "missing":
        return f"{place}: key {name!r} is missing"
    message = sentence(detail)
    if about_key:
        return f"{place}: {name.removesuffix('.')}: key {message}"
    return f"{place}: {name}: {message}" if name else f"{place}: {message}"


_WANTED = {
    "string_type": "is not text; where text is meant, put it in quotes",
    "int_parsing": "is not a whole number",
    "float_parsing": "is not a number",
    "finite_number": "is not a finite number",
    "bool_parsing": "is neither true nor false",
    "list_type": "is not a list; write [one, two], or a line with `- ` for each",
    "dict_type": "is not a mapping; write a line `key: value` for each",
    "greater_than": "is not greater than {gt}",
    "greater_than_equal": "is less than {ge}",
    "less_than": "is not less than {lt}",
    "less_than_equal": "is greater than {le}",
    "string_too_short": "is too short; it needs at least {min_length} character",
    "too_short": "is too short; it needs at least {min_length}",
    "too_long": "is too long; it takes at most {max_length}",
    "string_pattern_mismatch": "does not have the form {pattern}",
}
_SAME = {
    "int_type": "int_parsing",
    "int_from_float": "int_parsing",
    "float_type": "float_parsing",
    "bool_type": "bool_parsing",
    "tuple_type": "list_type",
    "model_type": "dict_type",
    "model_attributes_type": "dict_type",
}


def sentence(detail: ErrorDetails) -> str:
    """Return what is wrong with a value: what was found, and what is allowed."""
    kind = _SAME.get(detail["type"], detail["type"])
    if kind == "literal_error":
        return _not_among(detail)
    if kind not in _WANTED:
        return detail["msg"].removeprefix("Value error, ")
    wanted = _WANTED[kind].format(**detail.get("ctx", {}))
    return f"{_shown(detail['input'])} {wanted}"


def _not_among(detail: ErrorDetails) -> str:
    """Say which values a key takes, and the one that was probably meant."""
    listed = re.findall(r"'([^']*)'|([^\s,']+)(?=,| or |$)", str(detail["ctx"]["expected"]))
    allowed = [text or bare for text, bare in listed if text or bare]  # "" is to leave it out
    word = detail["input"] if isinstance(detail["input"], str) else ""
    close = difflib.get_close_matches(word, allowed, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    return f"{_shown(detail['input'])} is not allowed; {hint}allowed: {', '.join(allowed)}"


def _shown(value: object) -> str:
    """Return a value as the file has it, in short."""
    if value is None:
        return "nothing (null)"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "a mapping"
    if isinstance(value, list | tuple):
        return "a list" if value else "an empty list"
    return repr(value if not isinstance(value, str) or len(value) < 80 else f"{value[:77]}...")


def _known_keys(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    current: Any = model
    parts = iter(location)
    for part in parts:
        if isinstance(part, int) or not hasattr(current, "model_fields"):
            continue
        field = current.model_fields.get(part)
        if field is None:
            return []
        if get_origin(field.annotation) is dict:
            next(parts, None)  # the file's own name for the entry
        current = _inner_model(field.annotation)
    return sorted(current.model_fields) if hasattr(current, "model_fields") else []


def _inner_model(annotation: Any) -> Any:
    if hasattr(annotation, "model_fields"):
        return annotation
    for argument in getattr(annotation, "__args__", ()):
        inner = _inner_model(argument)
        if inner is not None:
            return inner
    return None

"""Kinds of text that several keys of deploy.yaml take."""

from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, StringConstraints, WithJsonSchema


def _without_nul(text: str) -> str:
    if "\0" in text:
        raise ValueError(f"{text!r} has a NUL in it, which no program can be given")
    return text


def _without_equals(name: str) -> str:
    if "=" in name:
        raise ValueError(f"{name!r} is no name of a variable: it has an = in it")
    return name


Text = Annotated[str, AfterValidator(_without_nul)]
Word = Annotated[str, StringConstraints(min_length=1), AfterValidator(_without_nul)]
VariableName = Annotated[Word, AfterValidator(_without_equals)]


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# As compose.yaml takes values of the environment: LEVEL: 3 is the text "3"; true and null, which
# programs spell in many ways, have to be put in quotes.
TextOrNumber = Annotated[
    str,
    BeforeValidator(_number_as_text),
    AfterValidator(_without_nul),
    WithJsonSchema({"type": ["string", "number"]}),
]

"""Kinds of text that several keys of deploy.yaml take."""

from typing import Annotated

from pydantic import BeforeValidator, StringConstraints, WithJsonSchema

Word = Annotated[str, StringConstraints(min_length=1)]


def _number_as_text(value: object) -> object:
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


# As compose.yaml takes values of the environment: LEVEL: 3 is the text "3"; true and null, which
# programs spell in many ways, have to be put in quotes.
TextOrNumber = Annotated[
    str,
    BeforeValidator(_number_as_text),
    WithJsonSchema({"type": ["string", "number"]}),
]

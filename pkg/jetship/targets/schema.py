"""The JSON Schema of deploy.yaml, with which editors complete and check it as it is written."""

import ast
import inspect
import re
import textwrap
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import CoreSchema

from jetship.targets.catalog import Catalog
from jetship.targets.deployment import Deployment
from jetship.targets.strategy import Share

SCHEMA_FILE = Path(__file__).with_name("deploy.schema.json")
_KNOWN = ("board", "platform")


class _Plain(GenerateJsonSchema):
    """Pydantic's schema without what says nothing to somebody who writes the file."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False

    def nullable_schema(self, schema: Any) -> JsonSchemaValue:
        """Leave null out: a key without a value is left out, not set to nothing."""
        inner: CoreSchema = schema["schema"]
        return self.generate_inner(inner)

    def default_schema(self, schema: Any) -> JsonSchemaValue:
        """Leave out a default that is nothing or a whole section; write shares as people do."""
        found = super().default_schema(schema)
        default = schema.get("default")
        if default in (None, "", ()) or isinstance(default, BaseModel):
            found.pop("default", None)
        first = default[0] if isinstance(default, tuple) and default else default
        if isinstance(first, Share):
            found["default"] = first.amount
        return found


def deployment_schema(catalog: Catalog) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a deploy.yaml.

    Boards and platforms are the known ones; with `targets_file`, which may bring others, these are
    only offered.

    Args:
        catalog: what is known.
    """
    schema = Deployment.model_json_schema(schema_generator=_Plain)
    names = {
        "board": [name for board in catalog.boards for name in (board.name, *board.aliases)],
        "platform": [platform.name for platform in catalog.platforms],
    }
    texts = _descriptions(_models(Deployment))
    for name, body in {"Deployment": schema, **schema["$defs"]}.items():
        for key, value in body.get("properties", {}).items():
            if key in _KNOWN:
                value["anyOf"] = [{"enum": names[key]}, {"type": value.pop("type")}]
            if text := texts.get((name, key)):
                value["description"] = text
        body["description"] = " ".join(body.get("description", "").split())
        body.pop("title", None)
    head = {"$schema": GenerateJsonSchema.schema_dialect, "title": "deploy.yaml of jetship"}
    return head | schema | _known_alone(names)


def _known_alone(names: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the part by which a file without `targets_file` names only what is known.

    The tool reads "Jetson Orin Nano" and jetson-orin-nano for orin-nano as well.
    """
    words = "|".join(re.escape(name).replace(r"\-", "[-_ ]") for name in names["board"])
    folded = re.sub(
        "[a-z]", lambda sign: f"[{sign[0].upper()}{sign[0]}]", f"(jetson[-_ ])?({words})"
    )
    # The message is what editors on VS Code's engine show in place of the pattern.
    told = f"not a known board; known: {', '.join(names['board'])}"
    board = {"properties": {"board": {"pattern": f"^(?:{folded})$", "patternErrorMessage": told}}}
    platform = {"properties": {"platform": {"enum": names["platform"]}}}
    by_platform = {"propertyNames": {"enum": names["platform"]}}
    return {
        "if": {"not": {"required": ["targets_file"]}},
        "then": {
            "properties": {
                "targets": {"items": platform},
                "own_parts": by_platform,
                "image": {"properties": {"base": by_platform}},
                "fleet": {"properties": {"defaults": board, "devices": {"items": board}}},
            }
        },
    }


def _models(model: type[BaseModel]) -> list[type[BaseModel]]:
    """Return a model and all those in it."""
    found: dict[str, type[BaseModel]] = {}
    waiting: list[Any] = [model]
    while waiting:
        one = waiting.pop()
        if isinstance(one, type) and issubclass(one, BaseModel):
            if one.__name__ not in found:
                found[one.__name__] = one
                waiting += [field.annotation for field in one.model_fields.values()]
        else:
            waiting += getattr(one, "__args__", ())
    return [*found.values()]


def _descriptions(models: Iterable[type[BaseModel]]) -> Mapping[tuple[str, str], str]:
    """Return what stands below each key in the source, by model and key.

    Pydantic can do this while it makes the classes (use_attribute_docstrings), but then every
    start of jetship reads its own source: 60 ms.
    """
    found: dict[tuple[str, str], str] = {}
    for model in models:
        for one in reversed(model.__mro__[: model.__mro__.index(BaseModel)]):
            (tree,) = ast.parse(textwrap.dedent(inspect.getsource(one))).body
            assert isinstance(tree, ast.ClassDef)  # noqa: S101 - for mypy
            for before, node in zip(tree.body, tree.body[1:], strict=False):
                if (
                    isinstance(before, ast.AnnAssign)
                    and isinstance(before.target, ast.Name)
                    and isinstance(node, ast.Expr)
                    and isinstance(node.value, ast.Constant)
                ):
                    text = " ".join(str(node.value.value).split())
                    found[model.__name__, before.target.id] = text
    return found

import contextlib
import re
from pathlib import Path
from typing import Annotated, Literal, Self

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from jetship.errors import ConfigError
from jetship.yamlfile import Strict, load, salvage
from pydantic import Field, ValidationError, field_validator, model_validator


class Inner(Strict):
    size: Annotated[int, Field(gt=0)]
    colour: str = "red"


class Outer(Strict):
    name: str
    ready: bool = False
    nothing: str | None = None
    inner: Inner | None = None
    rows: tuple[Inner, ...] = ()
    table: dict[str, Inner] = Field(default_factory=dict)

    @field_validator("name")
    @classmethod
    def _not_forbidden(cls, name: str) -> str:
        if name == "forbidden":
            raise ValueError("that name is taken")
        return name


KNOWN = "inner, name, nothing, ready, rows, table"


class Anything(Strict):
    value: object


@pytest.fixture
def read(tmp_path):
    def read(text: str, model: type[Strict] = Outer) -> Strict:
        path = tmp_path / "file.yaml"
        path.write_text(text, encoding="utf-8")
        return load(path, model)

    return read


@pytest.fixture
def refused(read, tmp_path):
    """Return the message for a text that is refused, without the folder's name."""

    def refused(text: str, model: type[Strict] = Outer) -> str:
        with pytest.raises(ConfigError) as caught:
            read(text, model)
        return str(caught.value).replace(f"{tmp_path}/", "")

    return refused


def value_of(folder: Path, text: str) -> object:
    path = folder / "value.yaml"
    path.write_text(f"value: {text}\n", encoding="utf-8")
    return load(path, Anything).value


def test_a_file_becomes_a_value(read):
    value = read("name: x\ninner: {size: 2}\nrows:\n  - size: 1\n    colour: blue\n")
    assert value == Outer(name="x", inner=Inner(size=2), rows=(Inner(size=1, colour="blue"),))
    with pytest.raises(ValidationError, match="frozen"):
        value.name = "y"


@pytest.mark.parametrize(
    "text", ["3.10", "1.0", "12:30", "2024-01-02", "yes", "no", "on", "off", "0x10", "010", "1_000",
             "1e3", ".inf", "True", "TRUE", "Null", "y", "=", "<<", "0b1", "+.5"]
)  # fmt: skip
def test_what_yaml_would_guess_at_stays_text(tmp_path, text):
    assert value_of(tmp_path, text) == text


@pytest.mark.parametrize(
    ("text", "value"),
    [("true", True), ("false", False), ("null", None), ("~", None), ("", None), ("0", 0),
     ("-7", -7), ("42", 42), ('"42"', "42"), ("'true'", "true")],
)  # fmt: skip
def test_what_is_meant_is_read(tmp_path, text, value):
    found = value_of(tmp_path, text)
    assert (found, type(found)) == (value, type(value))


@given(st.integers(0, 999), st.from_regex(r"[0-9]{1,3}", fullmatch=True))
def test_a_version_keeps_all_its_digits(tmp_path_factory, major, minor):
    folder = tmp_path_factory.getbasetemp()
    assert value_of(folder, f"{major}.{minor}") == f"{major}.{minor}"
    assert value_of(folder, f"{major}:{minor}") == f"{major}:{minor}"


PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(st.characters(codec="utf-8")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner),
)


@given(PLAIN)
def test_quoted_yaml_is_read_back_as_it_was_written(tmp_path_factory, value):
    path = tmp_path_factory.getbasetemp() / "plain.yaml"
    path.write_text(yaml.safe_dump({"value": value}), encoding="utf-8")
    text = path.read_text(encoding="utf-8")
    assert yaml.safe_load(text) == {"value": value}
    assert load(path, Anything).value == value


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_is_a_value_or_a_config_error(tmp_path_factory, text):
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text, encoding="utf-8")
    with contextlib.suppress(ConfigError):
        load(path, Outer)


@given(st.lists(st.sampled_from("abcdef"), min_size=1, max_size=8))
def test_a_repeated_key_is_refused_wherever_it_stands(tmp_path_factory, keys):
    path = tmp_path_factory.getbasetemp() / "keys.yaml"
    path.write_text(f"value:\n  - {{{', '.join(keys)}}}\n")
    repeated = len(keys) - len(set(keys))
    if not repeated:
        assert load(path, Anything).value == [dict.fromkeys(keys)]
        return
    with pytest.raises(ConfigError, match="is given twice") as caught:
        load(path, Anything)
    assert str(caught.value).count("is given twice") == repeated


def test_repeated_keys_are_told_with_their_places_in_the_order_of_the_file(refused):
    text = "name: x\nrows:\n  - {size: 1, size: 2}\nname: y\n"
    assert refused(text) == (
        "file.yaml has 2 problems\n"
        "  file.yaml:3:15: key 'size' is given twice\n"
        "  file.yaml:4:1: key 'name' is given twice"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: x\nnmae: y\n", "file.yaml:2:1: unknown key 'nmae'; did you mean 'name'?"),
        (
            "name: x\nzzz: y\n",
            f"file.yaml:2:1: unknown key 'zzz'; known keys: {KNOWN}",
        ),
        ("ready: true\n", "file.yaml:1:1: key 'name' is missing"),
        ("", "file.yaml: key 'name' is missing"),
        ("name: x\ninner:\n  size: 0\n",
         "file.yaml:3:3: inner.size: 0 is not greater than 0"),
        ("name: x\ninner:\n  sise: 1\n  size: 1\n",
         "file.yaml:3:3: unknown key 'inner.sise'; did you mean 'size'?"),
        ("name: x\nrows: [{size: 1}, {color: b, size: 1}]\n",
         "file.yaml:2:20: unknown key 'rows.1.color'; did you mean 'colour'?"),
        ("name: x\ntable:\n  t: {siz: 1, size: 1}\n",
         "file.yaml:3:7: unknown key 'table.t.siz'; did you mean 'size'?"),
        ("name: x\nrows:\n  - colour: b\n", "file.yaml:3:5: key 'rows.0.size' is missing"),
        ("name: forbidden\n", "file.yaml:1:1: name: that name is taken"),
        ("name: 3\n", "file.yaml:1:1: name: 3 is not text; where text is meant, put it in quotes"),
        ("name: x\nready: maybe\n",
         "file.yaml:2:1: ready: 'maybe' is neither true nor false"),
        ("- x\n", "file.yaml:1:1: a list is not a mapping; write a line `key: value` for each"),
    ],
)  # fmt: skip
def test_a_wrong_value_is_told_with_its_place(refused, text, message):
    assert refused(text) == message


KINDS = "allowed: jetpack, server"


class Allowed(Strict):
    kind: Literal["jetpack", "server"] = "server"
    version: Literal[1] = 1
    small: Annotated[int, Field(ge=1, le=9)] = 1
    short: Annotated[tuple[str, ...], Field(min_length=1)] = ("x",)
    name: Annotated[str, Field(pattern="^[a-z]+$")] = "a"
    table: dict[str, int] = Field(default_factory=dict)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("kind: serve", f"kind: 'serve' is not allowed; did you mean 'server'? {KINDS}"),
        ("kind: zzz", f"kind: 'zzz' is not allowed; {KINDS}"),
        ("kind: [server]", f"kind: a list is not allowed; {KINDS}"),
        ("version: 2", "version: 2 is not allowed; allowed: 1"),
        ("small: 0", "small: 0 is less than 1"),
        ("small: 10", "small: 10 is greater than 9"),
        ("small: few", "small: 'few' is not a whole number"),
        ("small:", "small: nothing (null) is not a whole number"),
        ("short: []", "short: an empty list is too short; it needs at least 1"),
        ("short: x", "short: 'x' is not a list; write [one, two], or a line with `- ` for each"),
        ("short: [true]", "short.0: true is not text; where text is meant, put it in quotes"),
        ("name: A1", "name: 'A1' does not have the form ^[a-z]+$"),
        ("table: [x]", "table: a list is not a mapping; write a line `key: value` for each"),
    ],
)  # fmt: skip
def test_a_value_that_is_not_allowed_is_told_in_plain_words(refused, text, said):
    found = refused(text, Allowed)
    assert re.sub(r"^file\.yaml:1:\d+: ", "", found) == said


def test_a_repeated_key_hides_no_other_problem(refused):
    assert refused("name: x\nready: maybe\nname: y\nnmae: z\n") == (
        "file.yaml has 3 problems\n"
        "  file.yaml:2:1: ready: 'maybe' is neither true nor false\n"
        "  file.yaml:3:1: key 'name' is given twice\n"
        "  file.yaml:4:1: unknown key 'nmae'; did you mean 'name'?"
    )


class Pair(Strict):
    name: str
    left: int | None = None
    right: int | None = None
    share: float = 0.5
    kind: Literal["", "a", "b"] = ""

    @model_validator(mode="after")
    def _one_side(self) -> Self:
        if (self.left is None) == (self.right is None):
            raise ValueError("it has left or right")
        return self


@pytest.mark.parametrize(
    ("raw", "unread", "more"),
    [
        ({"name": "x", "left": 1}, set(), 0),
        ({"name": "x", "left": 1, "colour": "red"}, {"colour"}, 0),
        ({"name": "x", "colour": "red"}, {"colour", "left", "right"}, 1),
        ({"name": "x", "colour": "red", "left": "far"}, {"colour", "left", "right"}, 0),
        ({"name": "x", "lefft": 1}, {"lefft", "left", "right"}, 0),
        ({"left": 1, "right": 2}, {"name", "left", "right"}, 1),
    ],
)
def test_what_can_be_read_of_a_wrong_mapping_is_read(raw, unread, more):
    found = salvage(Pair, raw, missing={"name": "?"}, together={"left": 1, "right": None})
    assert (found.unread, len(found.more)) == (unread, more)
    assert found.value.name == raw.get("name", "?")


def test_of_something_else_nothing_can_be_read():
    assert salvage(Pair, [1]) is None
    assert salvage(Pair, {"left": 1}) is None


def test_numbers_and_choices_are_told_in_plain_words(refused):
    found = refused("name: x\nleft: 1\nshare: much\nkind: c\n", Pair)
    assert "share: 'much' is not a number\n" in found
    assert "kind: 'c' is not allowed; allowed: a, b" in found


def test_all_problems_are_told_at_once(refused):
    assert refused("nmae: x\nready: maybe\ninner: {size: -1, colour: 1}\n") == (
        "file.yaml has 5 problems\n"
        "  file.yaml:1:1: key 'name' is missing\n"
        "  file.yaml:1:1: unknown key 'nmae'; did you mean 'name'?\n"
        "  file.yaml:2:1: ready: 'maybe' is neither true nor false\n"
        "  file.yaml:3:9: inner.size: -1 is not greater than 0\n"
        "  file.yaml:3:19: inner.colour: 1 is not text; where text is meant, put it in quotes"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: [x\n", r"file\.yaml:2:1: not valid YAML: .*"),
        ("name: x\n\tready: true\n", r"file\.yaml:2:1: not valid YAML: .*"),
        ("name: x\n---\nname: y\n", r"file\.yaml:2:1: not valid YAML: .*"),
        ("name: *x\n", r"file\.yaml:1:7: not valid YAML: found undefined alias.*"),
        ("name: \x01\n", r"file\.yaml: not valid YAML: .*"),
        ("name: !!python/name:os.system\n", r"file\.yaml:1:7: not valid YAML: .*"),
        ("name: !!timestamp 2024-01-02\n", r"file\.yaml:1:7: not valid YAML: .*"),
        ("name: !!float 3.10\n", r"file\.yaml:1:7: not valid YAML: .*"),
        ("name: !!int x\n", r"file\.yaml: a value does not fit its type: .*"),
        ("name: !!bool x\n", r"file\.yaml: a value does not fit its type: .*"),
        ("ready: " + 5000 * "9", r"file\.yaml: a value does not fit its type: .*"),
        ("? [name]\n: x\n", r"file\.yaml:1:3: not valid YAML: found unhashable key"),
    ],
)
def test_what_is_not_yaml_is_told_with_its_place(refused, text, message):
    found, _, fix = refused(text).partition("\n  fix: ")
    assert re.fullmatch(message, found, re.DOTALL), found
    assert fix


def test_an_alias_may_repeat_a_part_but_not_hold_itself(read, refused):
    text = "name: x\ninner: &i {size: 1}\nrows: [*i, *i]\n"
    assert read(text).rows == (Inner(size=1), Inner(size=1))
    assert refused("name: x\nrows: &r [*r]\n").startswith("file.yaml:2:")


def test_aliases_of_aliases_take_no_time(refused):
    lines = ["a0: &a0 [x, x]"] + [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]" for n in range(1, 60)]
    assert "has 61 problems" in refused("\n".join(lines))


def test_a_file_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.yaml does not exist") as caught:
        load(tmp_path / "none.yaml", Outer)
    assert str(tmp_path / "none.yaml") in caught.value.why
    assert caught.value.fix
    with pytest.raises(ConfigError, match="is a folder"):
        load(tmp_path, Outer)
    path = tmp_path / "latin.yaml"
    path.write_bytes("name: ä".encode("latin-1"))
    with pytest.raises(ConfigError, match="cannot be read as text") as caught:
        load(path, Outer)
    assert "utf-8" in caught.value.why
    assert "UTF-8" in caught.value.fix

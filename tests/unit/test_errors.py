import ast
from pathlib import Path

import jetship
import pytest
from jetship import errors
from jetship.errors import JetshipError

CODES = {
    "ConfigError": 2,
    "NothingSelectedError": 3,
    "ToolMissingError": 4,
    "DownloadError": 5,
    "BuildError": 6,
    "CheckError": 7,
    "ImageError": 8,
    "RolloutError": 9,
    "BenchError": 10,
}
SOURCES = sorted(Path(jetship.__file__).parent.rglob("*.py"))


def test_every_kind_of_failure_has_an_exit_code_of_its_own():
    assert {kind.__name__: kind.exit_code for kind in JetshipError.__subclasses__()
            if kind.__module__ == errors.__name__} == CODES  # fmt: skip
    assert errors.INTERRUPTED_EXIT_CODE == 130


def test_every_kind_says_what_it_stands_for():
    assert all((getattr(errors, name).__doc__ or "").strip() for name in CODES)


@pytest.mark.parametrize("name", CODES)
def test_a_message_says_what_and_why_and_what_to_do(name):
    error = getattr(errors, name)("it broke", why="it was old", fix="buy another")
    assert str(error) == "it broke\n  why: it was old\n  fix: buy another"


def test_a_message_leaves_out_what_is_not_known():
    assert str(JetshipError("it broke")) == "it broke"
    assert str(JetshipError("it broke", fix="mend it")) == "it broke\n  fix: mend it"


def _raised() -> list[tuple[str, ast.Call]]:
    return [
        (f"{path.name}:{node.lineno}", node)
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in CODES
    ]


@pytest.mark.parametrize("name", ["ToolMissingError", "NothingSelectedError"])
def test_what_the_user_can_always_mend_says_how(name):
    calls = [(place, call) for place, call in _raised() if call.func.id == name]
    assert calls
    silent = [place for place, call in calls if "fix" not in {word.arg for word in call.keywords}]
    assert silent == []

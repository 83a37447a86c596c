"""The commands that messages propose, as they are shown."""

import sys

import pytest
from jetship import hints


@pytest.fixture(autouse=True)
def nothing_carried():
    hints.carry({})
    yield
    hints.carry({})


@pytest.mark.parametrize(
    ("called", "shown"),
    [
        ("/venv/bin/jetship", "jetship build --arch 6.2"),
        ("/venv/bin/invoke", "invoke build --arch 6.2"),
        ("./run", "./run build --arch 6.2"),
        ("../repo/run", "../repo/run build --arch 6.2"),
    ],
)
def test_a_hint_names_the_program_that_was_called(monkeypatch, called, shown):
    monkeypatch.setattr(sys, "argv", [called])
    assert hints.spoken("try `invoke build --arch 6.2`") == f"try `{shown}`"


@pytest.mark.parametrize(
    ("given", "text", "shown"),
    [
        ({"targets_file": "a b.yaml"}, "invoke toolchain --export DIR",
         "invoke toolchain --targets-file 'a b.yaml' --export DIR"),
        ({"targets_file": "a.yaml"}, "invoke doctor --fix", "invoke doctor --fix"),
        ({"targets_file": "a.yaml"}, "`invoke pins --part x --targets-file a.yaml`",
         "`invoke pins --part x --targets-file a.yaml`"),
        ({"deploy": "d.yaml", "dist": "out"}, "invoke image --arch 6.2",
         "invoke image --deploy d.yaml --dist out --arch 6.2"),
        ({"deploy": "d.yaml", "dist": "out"}, "`invoke check x.whl`", "`invoke check x.whl`"),
        ({"targets_file": ""}, "invoke build", "invoke build"),
    ],
)  # fmt: skip
def test_a_hint_repeats_the_options_that_its_task_takes(given, text, shown):
    hints.carry(given)
    assert hints.spoken(text) == shown

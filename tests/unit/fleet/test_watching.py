"""What people see of a rollout."""

import io
import sys

import pytest
from fakefleet import FakeFleet
from jetship import console
from jetship.fleet.watching import MOST_ROWS, Watching, megabytes, watching
from rich.console import Console


@pytest.fixture
def terminal(monkeypatch) -> io.StringIO:
    """A terminal in place of stderr; returns what is on it."""
    out = io.StringIO()
    drawn = Console(file=out, force_terminal=True, width=100, highlight=False)
    monkeypatch.setattr(console, "stderr", drawn)
    return out


@pytest.fixture
def view(tmp_path) -> Watching:
    return Watching(FakeFleet.of(tmp_path, 2 * MOST_ROWS).plan())


def table(view: Watching) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=100).print(view)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def test_the_table_shows_what_is_at_work(view, terminal):
    view.doing("d0", "sending")
    view.sent("d0", 1_000_000, 4_000_000)
    view.doing("d1", "checking")
    rows = table(view)
    assert rows[1].split() == ["d0", "sending", "25", "%", "of", "4.0", "MB", "0", "s"]
    assert rows[2].split()[:2] == ["d1", "checking"]
    assert "0 of 40 done" in rows[-1]
    view.told({"event": "ended", "device": "d0", "result": "committed", "seconds": 3.2})
    assert "d0: committed (3 s)" in terminal.getvalue().replace("\x1b[32m", "").replace(
        "\x1b[0m", ""
    )
    assert table(view)[1].split()[0] == "d1"
    assert "1 of 40 done" in table(view)[-1]


def test_a_large_fleet_does_not_fill_the_terminal(view):
    for number in range(2 * MOST_ROWS):
        view.doing(f"d{number}", "asking")
    rows = table(view)
    assert len(rows) == MOST_ROWS + 2
    assert f"{MOST_ROWS} more at work" in rows[-1]


def test_a_device_that_has_no_row_any_more_is_no_error(view, terminal):
    view.sent("d7", 1, 2)
    view.told({"event": "weather", "sky": "blue"})
    view.told({"event": "ended", "device": "d7", "result": "broken", "reason": "why", "logs": "a"})
    assert "| a" in terminal.getvalue()


@pytest.mark.parametrize(
    ("answer", "why"),
    [("y\n", ""), ("YES\n", ""), ("\n", "the answer was no"), ("eh\n", "the answer was eh")],
)
def test_people_are_asked_before_a_wave(tmp_path, terminal, monkeypatch, answer, why):
    class Typed(io.StringIO):
        def isatty(self) -> bool:
            return True

    monkeypatch.setattr(sys, "stdin", Typed(answer))
    with watching(FakeFleet.of(tmp_path, 1).plan()) as view:
        assert view.live is not None
        assert view.confirm("1 of 2 done; go on?") == why
    assert "1 of 2 done; go on? [y/N]" in terminal.getvalue()


def test_where_nobody_can_answer_no_wave_begins(view, terminal, monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    assert "there is no terminal to ask on" in view.confirm("go on?")


def test_sizes_are_told_in_megabytes():
    assert [megabytes(size) for size in (0, 300_000, 12_000_000)] == ["0.0 MB", "0.3 MB", "12 MB"]


def test_a_device_that_goes_back_is_at_work_once_more(view, terminal):
    view.told({"event": "ended", "device": "d0", "result": "committed"})
    view.doing("d0", "going back")
    assert table(view)[1].split()[:3] == ["d0", "going", "back"]
    assert "0 of 40 done" in table(view)[-1]
    view.told({"event": "ended", "device": "d0", "result": "reverted"})
    assert "1 of 40 done" in table(view)[-1]

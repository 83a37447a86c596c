import io
import time

import pytest
from jetship import board, console
from jetship.board import Board, Row
from rich.console import Console


def lines(made: Board) -> list[str]:
    sink = io.StringIO()
    Console(file=sink, width=80).print(made)
    return [line.rstrip() for line in sink.getvalue().splitlines()]


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands at `clock.now` seconds."""

    class Clock:
        now = 100.0

    monkeypatch.setattr(time, "monotonic", lambda: Clock.now)
    return Clock


def test_every_target_has_a_line_that_says_what_it_does_and_for_how_long(clock):
    made = Board({name: Row(name) for name in ("sm62-debian-12", "sm72-debian-12")})
    assert lines(made)[1:] == ["sm62-debian-12  waits", "sm72-debian-12  waits"]
    made.begin("sm62-debian-12")
    made.doing("sm62-debian-12", "builds")
    clock.now = 107.4
    assert [" ".join(line.split()) for line in lines(made)[1:]] == [
        "sm62-debian-12 builds 7 s", "sm72-debian-12 waits"
    ]  # fmt: skip
    made.end("sm62-debian-12", "done")
    clock.now = 500.0
    assert " ".join(lines(made)[1].split()) == "sm62-debian-12 done 7 s"


@pytest.fixture
def terminal(monkeypatch):
    """Give stderr a terminal, or none."""

    def terminal(*, there: bool) -> io.StringIO:
        sink = io.StringIO()
        made = Console(file=sink, force_terminal=there, width=80)
        monkeypatch.setattr(console, "stderr", made)
        return sink

    return terminal


def test_on_a_terminal_several_targets_are_shown_below_the_log(terminal):
    sink = terminal(there=True)
    with board.shown(["one", "two"]) as made:
        assert console.has_live_display()
        made.doing("two", "builds")
        console.note("a line of the log")
    assert not console.has_live_display()
    assert "a line of the log" in sink.getvalue()
    assert "builds" in sink.getvalue()


@pytest.mark.parametrize(("names", "there"), [(["one"], True), (["one", "two"], False)])
def test_otherwise_nothing_is_drawn(terminal, names, there):
    sink = terminal(there=there)
    with board.shown(names) as made:
        assert not console.has_live_display()
        made.begin("one")
        made.end("one", "done")
    assert sink.getvalue() == ""


def test_a_display_ends_with_its_body(terminal):
    terminal(there=True)
    with pytest.raises(ZeroDivisionError), board.shown(["one", "two"]):
        raise ZeroDivisionError
    assert not console.has_live_display()

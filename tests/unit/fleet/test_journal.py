"""The journal: what was written is read again, whatever killed the writer, and adds up."""

import json
import threading

import pytest
from fakefleet import FakeFleet
from hypothesis import given, settings
from hypothesis import strategies as st
from jetship.errors import ConfigError, DownloadError, NothingSelectedError
from jetship.fleet import journal as module
from jetship.fleet.journal import Journal, journals, new_release, read, unfinished


@pytest.fixture
def begun(tmp_path) -> Journal:
    fleet = FakeFleet.of(tmp_path, 3)
    return fleet.begin(fleet.plan())


def test_what_was_written_adds_up_to_the_same_state(begun):
    begun.write("wave", number=0, kind="canary")
    begun.write("started", device="d0")
    begun.write("sent", device="d0", bytes=100, layers=1)
    begun.write("sent", device="d0", bytes=20, layers=1)
    begun.write("swapping", device="d0", token="t")  # noqa: S106 - it is none
    begun.write("ended", device="d0", result="rolled-back", reason="no camera", seconds=2.5)
    begun.write("stopped", reason="too many")
    begun.write("finished", outcome="partial")
    state = read(begun.path)
    assert state == begun.state
    standing = state.devices["d0"]
    assert (standing.phase, standing.result, standing.reason) == (
        "ended",
        "rolled-back",
        "no camera",
    )
    assert (standing.sent_bytes, standing.token, standing.seconds) == (120, "t", 2.5)
    assert state.failures == 1
    assert (state.wave, state.stopped, state.ended, state.by) == (
        0,
        "too many",
        "partial",
        "me@here",
    )
    assert state.devices["d1"].phase == "waiting"


def test_what_a_newer_jetship_notes_besides_changes_nothing(begun):
    before = begun.state
    begun.write("weather", sky="blue")
    assert read(begun.path) == before


@settings(max_examples=30)
@given(st.data())
def test_a_journal_that_was_cut_anywhere_is_read_and_goes_on(tmp_path_factory, data):
    folder = tmp_path_factory.mktemp("journal")
    fleet = FakeFleet.of(folder, 2)
    journal = fleet.begin(fleet.plan())
    first = journal.path.stat().st_size
    states = [(first, read(journal.path))]
    for event, values in (
        ("started", {"device": "d0"}),
        ("swapping", {"device": "d0", "token": "t"}),
        ("ended", {"device": "d0", "result": "committed"}),
        ("interrupted", {}),
    ):
        journal.write(event, **values)
        states.append((journal.path.stat().st_size, read(journal.path)))
    whole = journal.path.read_bytes()
    size = data.draw(st.integers(first, len(whole)))
    journal.path.write_bytes(whole[:size])
    expected = [state for end, state in states if end <= size][-1]
    assert read(journal.path) == expected
    again = Journal.reopen(journal.path, by="you@there")
    again.write("started", device="d1")
    found = read(journal.path)
    assert found.devices["d0"] == expected.devices["d0"]
    assert found.devices["d1"].phase == "started"
    assert not found.interrupted


def test_a_plan_that_was_not_written_whole_is_no_rollout(begun):
    begun.path.write_bytes(begun.path.read_bytes()[:50])
    with pytest.raises(ConfigError, match="does not begin with a plan"):
        read(begun.path)
    with pytest.raises(ConfigError, match="delete the file"):
        Journal.reopen(begun.path, by="you")


def test_a_damaged_line_that_is_not_the_last_is_an_error(begun):
    begun.write("started", device="d0")
    lines = begun.path.read_bytes().splitlines(keepends=True)
    begun.path.write_bytes(lines[0] + b"{torn\n" + lines[1])
    with pytest.raises(ConfigError, match=":2: not a line of a journal"):
        read(begun.path)


def test_a_journal_of_another_schema_is_refused(begun):
    event = json.loads(begun.path.read_text()) | {"schema": 99}
    begun.path.write_text(json.dumps(event) + "\n")
    with pytest.raises(ConfigError, match="its schema is 99"):
        read(begun.path)


def test_each_line_is_on_the_disk_before_the_next_step(begun, monkeypatch):
    synced = []
    monkeypatch.setattr(module.os, "fsync", lambda _: synced.append(begun.path.read_bytes()[-1:]))
    begun.write("started", device="d0")
    begun.write("interrupted")
    assert synced == [b"\n", b"\n"]


def test_a_full_disk_leaves_no_half_of_a_line(begun, monkeypatch):
    before = begun.path.read_bytes()
    write = module.os.write
    room = iter([10])

    def some(handle: int, data: bytes) -> int:
        left = next(room, 0)
        if not left:
            raise OSError(28, "No space left on device")
        return write(handle, data[:left])

    monkeypatch.setattr(module.os, "write", some)
    with pytest.raises(DownloadError, match="No space left"):
        begun.write("started", device="d0")
    assert begun.path.read_bytes() == before
    assert begun.state.devices["d0"].phase == "waiting"


def test_a_journal_that_somebody_deleted_is_told(begun):
    begun.path.unlink()
    with pytest.raises(ConfigError, match="cannot write to the journal"):
        begun.write("started", device="d0")


def test_threads_write_whole_lines(begun):
    def work(number: int) -> None:
        for _ in range(20):
            begun.write("sent", device=f"d{number % 3}", bytes=1, layers=0)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    state = read(begun.path)
    assert sum(standing.sent_bytes for standing in state.devices.values()) == 120
    assert state == begun.state


def test_a_condition_and_its_line_are_one_step(begun):
    assert begun.write_if(lambda state: state.failures == 0, "started", device="d0")
    begun.write("ended", device="d0", result="broken")
    assert not begun.write_if(lambda state: state.failures == 0, "started", device="d1")
    assert read(begun.path).devices["d1"].phase == "waiting"


def test_rollouts_of_one_second_have_names_that_sort(tmp_path, monkeypatch):
    monkeypatch.setattr(module.time, "strftime", lambda *_: "20261130T081500Z")
    fleet = FakeFleet.of(tmp_path, 1)
    made = [fleet.begin(fleet.plan()).state.release for _ in range(3)]
    assert made == ["20261130T081500Z", "20261130T081500Z-2", "20261130T081500Z-3"]
    assert [path.stem for path in journals(tmp_path)] == made[::-1]
    assert new_release(tmp_path) == "20261130T081500Z-4"


def test_the_newest_rollout_is_the_one_that_may_go_on(tmp_path):
    with pytest.raises(NothingSelectedError, match="no rollout to go on with"):
        unfinished(tmp_path)
    (tmp_path / "notes.jsonl").write_text("mine\n")
    fleet = FakeFleet.of(tmp_path, 1)
    journal = fleet.begin(fleet.plan())
    assert unfinished(tmp_path) == journal.path
    journal.write("finished", outcome="complete")
    with pytest.raises(NothingSelectedError, match="has ended \\(complete\\)"):
        unfinished(tmp_path)

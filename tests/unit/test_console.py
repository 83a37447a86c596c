import json
import threading

import pytest
from jetship import console

HARMLESS = [
    "plain",
    "deploy.yaml:100:5: unknown key",
    "[tool.jetship] has unknown keys",
    r"C:\[bold]x[/bold]",
    "ends with a backslash \\",
    "[red]not a colour[/red] [/]",
    "a " + 60 * "long " + "line",
]


@pytest.mark.parametrize("message", HARMLESS)
@pytest.mark.parametrize(
    ("say", "before"),
    [
        (console.step, "==> "),
        (console.note, "    "),
        (console.warn, "warning: "),
        (console.error, "error: "),
        (console.text, ""),
    ],
)
def test_people_read_every_message_as_it_is_on_stderr(capsys, say, before, message):
    say(message)
    assert capsys.readouterr() == ("", f"{before}{message}\n")


def test_command_lines_are_shown_on_request_only(capsys, monkeypatch):
    console.debug("+ g++ -o [x]")
    assert capsys.readouterr().err == ""
    monkeypatch.setenv("JETSHIP_VERBOSE", "1")
    console.debug("+ g++ -o [x]")
    assert capsys.readouterr().err == "+ g++ -o [x]\n"


def test_machines_read_one_json_document_on_stdout(capsys):
    document = {"b": 1, "a": ["ä", None]}
    console.emit_json(document)
    out, err = capsys.readouterr()
    assert (json.loads(out), err) == (document, "")
    assert out.index('"b"') < out.index('"a"')


def test_a_result_is_text_on_stdout(capsys):
    console.emit("dist/[x].whl :100:")
    assert capsys.readouterr() == ("dist/[x].whl :100:\n", "")


def test_the_place_of_an_error_is_no_picture_in_a_table_either(capsys):
    console.stdout.print("deploy.yaml:100:5")
    assert capsys.readouterr().out == "deploy.yaml:100:5\n"


def test_lines_say_of_which_target_they_speak(capsys):
    with console.speaking_of("sm62-debian-12"):
        console.step("building")
        console.note("2 jobs")
        other = threading.Thread(target=console.note, args=("of another thread",))
        other.start()
        other.join()
    console.note("done")
    assert capsys.readouterr().err.splitlines() == [
        "==> sm62-debian-12: building", "    sm62-debian-12: 2 jobs", "    of another thread",
        "    done",
    ]  # fmt: skip


RAW = "\x1b[2J\x07 \x9b31m ab\r\nc\x00"
TOLD = "\\x1b[2J\\x07 \\x9b31m ab\nc\\x00"


@pytest.mark.parametrize(
    "say", [console.step, console.note, console.warn, console.error, console.text, console.emit]
)
def test_what_a_wheel_or_project_says_is_not_obeyed_by_the_terminal(capsys, say):
    say(RAW)
    out, err = capsys.readouterr()
    assert (out + err).endswith(f"{TOLD}\n")


def test_a_path_that_is_not_utf_8_goes_out_as_it_is(capfdbinary):
    console.emit("dist/\udcff.whl")
    assert capfdbinary.readouterr() == (b"dist/\xff.whl\n", b"")

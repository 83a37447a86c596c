import json
from dataclasses import asdict, dataclass
from typing import ClassVar

import pytest
from invoke.collection import Collection
from invoke.context import Context
from invoke.program import Program
from jetship import console
from jetship.errors import (
    BenchError,
    BuildError,
    CheckError,
    ConfigError,
    DownloadError,
    ImageError,
    NothingSelectedError,
    RolloutError,
    ToolMissingError,
)
from jetship.tasks.command import Reported, command

ERRORS = [ConfigError, NothingSelectedError, ToolMissingError, DownloadError, BuildError,
          CheckError, ImageError, RolloutError, BenchError]  # fmt: skip


@command(help={"json": "machine-readable"})
def fails(_: Context, *, kind: str = "", json: bool = False) -> None:
    """Fail with an error of the kind."""
    error = {one.__name__: one for one in ERRORS}[kind]
    raise error("it broke [at 1:100:2]", why="it was old", fix="buy another")


@command()
def told(_: Context, *, json: bool = False) -> None:
    """Fail with an error that the JSON document has told."""
    console.emit_json({"reports": []})
    raise Reported(CheckError("it broke"))


@command()
def stops(_: Context) -> None:
    """Be interrupted."""
    raise KeyboardInterrupt


@command()
def breaks(_: Context) -> None:
    """Have a defect."""
    raise ZeroDivisionError


@command(paths="files", help={"files": "any number of files"})
def listed(_: Context, *, files: list[str], loud: bool = False, name: str = "") -> None:
    """Print what was asked for."""
    console.emit_json({"files": files, "loud": loud, "name": name})


@command()
def other(_: Context, *, name: str = "x") -> None:
    """Say that another task ran."""
    console.emit(f"other {name}")


@dataclass(frozen=True)
class Colour:
    """Options that a task takes together."""

    main: str = ""
    second_one: str | None = None
    very_loud: bool = False

    HELP: ClassVar[dict[str, str]] = {
        "main": "the main colour",
        "second-one": "another one",
        "very-loud": "and how",
    }
    KNOWN: ClassVar[dict] = {"main": lambda: ["red", "blue"]}


@dataclass(frozen=True)
class Size:
    """More options of the same task."""

    width: str = "1"

    HELP: ClassVar[dict[str, str]] = {"width": "how wide"}


@command(
    paths="files",
    records={"colour": Colour, "size": Size},
    help={"files": "what to paint", "json": "machine-readable"},
)
def paint(_: Context, *, files: list[str], colour: Colour, size: Size, json: bool = False) -> None:
    """Print what was asked for."""
    assert isinstance(colour, Colour)
    row = {"files": files, "colour": asdict(colour), "size": asdict(size)}
    if json:
        console.emit_json(row)
    if colour.main == "none":
        raise ConfigError("it has no colour", fix="name one")


PROGRAM = Program(
    namespace=Collection(fails, told, stops, breaks, listed, other, paint), name="tool"
)


@pytest.fixture
def call(capsys):
    """Run a command line in this process, and return its exit code, stdout and stderr."""

    def call(*words: str) -> tuple[int, str, str]:
        code = 0
        try:
            PROGRAM.run(["tool", *words])
        except SystemExit as left:
            code = left.code or 0
        out, err = capsys.readouterr()
        return code, out, err

    return call


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_its_exit_code_and_words_without_a_traceback(call, kind):
    code, out, err = call("fails", "--kind", kind.__name__)
    assert code == kind.exit_code
    assert out == ""
    assert err == "error: it broke [at 1:100:2]\n  why: it was old\n  fix: buy another\n"


@pytest.mark.parametrize("kind", ERRORS)
def test_with_json_an_error_is_a_document_too(call, kind):
    code, out, err = call("fails", "--kind", kind.__name__, "--json")
    assert code == kind.exit_code
    assert json.loads(out) == {
        "error": {
            "what": "it broke [at 1:100:2]",
            "why": "it was old",
            "fix": "buy another",
            "exit_code": kind.exit_code,
        }
    }
    assert "it broke" in err


def test_a_told_error_is_one_document_and_not_two(call):
    code, out, err = call("told", "--json")
    assert code == CheckError.exit_code
    assert json.loads(out) == {"reports": []}
    assert err == "error: it broke\n"


def test_an_interruption_is_130(call):
    code, out, err = call("stops")
    assert (code, out) == (130, "")
    assert "interrupted" in err
    assert "Traceback" not in err


def test_a_defect_keeps_its_traceback():
    with pytest.raises(ZeroDivisionError):
        PROGRAM.run(["tool", "breaks"])


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        ([], []),
        (["a.whl"], ["a.whl"]),
        (["a.whl", "b.whl"], ["a.whl", "b.whl"]),
        (["a b.whl", "ä.whl", "/x/y.whl", "a.whl", "a.whl"],
         ["a b.whl", "ä.whl", "/x/y.whl", "a.whl", "a.whl"]),
        ([f"{number}.whl" for number in range(300)], [f"{number}.whl" for number in range(300)]),
        (["other"], ["other"]),
        (["", "x"], ["", "x"]),
    ],
)  # fmt: skip
def test_a_task_takes_any_number_of_paths(call, words, answer):
    code, out, err = call("listed", *words)
    assert (code, err) == (0, "")
    assert json.loads(out)["files"] == answer


@pytest.mark.parametrize(
    "words",
    [
        ["a", "b", "--loud", "--name", "n"],
        ["--loud", "--name", "n", "a", "b"],
        ["a", "--loud", "b", "--name=n"],
        ["--name", "n", "a", "--loud", "b"],
    ],
)
def test_options_may_stand_anywhere_among_the_paths(call, words):
    code, out, _ = call("listed", *words)
    assert code == 0
    assert json.loads(out) == {"files": ["a", "b"], "loud": True, "name": "n"}


def test_paths_of_one_run_do_not_stay_for_the_next(call):
    assert json.loads(call("listed", "a")[1])["files"] == ["a"]
    assert json.loads(call("listed", "b")[1])["files"] == ["b"]
    assert json.loads(call("listed")[1])["files"] == []


def test_a_task_without_paths_still_ends_at_the_next_task(call):
    code, out, _ = call("other", "--name", "y", "other")
    assert (code, out) == (0, "other y\nother x\n")


def test_an_unknown_option_is_an_error_of_the_command_line(call):
    code, out, err = call("listed", "--nonsense")
    assert code != 0
    assert out == ""
    assert "nonsense" in err


@pytest.mark.parametrize(
    "words", [("--help", "helped"), ("helped", "--help"), ("helped", "x", "-h")]
)
def test_help_tells_the_paths_and_options(capsys, words):
    @command(paths="files", help={"files": "any number of files", "loud": "or quiet"})
    def helped(_: Context, *, files: list[str], loud: bool = False) -> None:
        raise AssertionError("it was not to run")

    with pytest.raises(SystemExit) as left:
        Program(namespace=Collection(helped), name="tool").run(["tool", *words])
    assert not left.value.code
    out = capsys.readouterr().out
    assert "any number of files" in out
    assert "--loud" in out


def test_a_lone_dash_is_a_path(call):
    assert json.loads(call("listed", "-", "x")[1])["files"] == ["-", "x"]


def test_a_task_is_still_a_function(capsys):
    listed(Context(), files=["x"])
    assert json.loads(capsys.readouterr().out)["files"] == ["x"]


def painted(call, *words: str) -> dict:
    code, out, err = call("paint", *words, "--json")
    assert (code, err) == (0, "")
    return json.loads(out)


PLAIN = {"main": "", "second_one": None, "very_loud": False}


@pytest.mark.parametrize(
    ("words", "colour", "width"),
    [
        ([], {}, "1"),
        (["--main", "red"], {"main": "red"}, "1"),
        (["--main=red", "--second-one", "a b"], {"main": "red", "second_one": "a b"}, "1"),
        (["--very-loud", "--width", "7"], {"very_loud": True}, "7"),
        (["--width=7", "--very-loud", "--main=-"], {"main": "-", "very_loud": True}, "7"),
    ],
)
def test_the_fields_of_a_record_are_options_of_the_command_line(call, words, colour, width):
    row = painted(call, *words)
    assert row == {"files": [], "colour": PLAIN | colour, "size": {"width": width}}


@pytest.mark.parametrize(
    ("words", "named", "lists"),
    [
        (["--main", ""], "--main is empty", "; main is one of red, blue"),
        (["--main="], "--main is empty", "; main is one of red, blue"),
        (["--second-one", ""], "--second-one is empty", ""),
        (["--width", " "], "--width is empty", ""),
        (
            ["--main", "", "--width="],
            "--main and --width are empty",
            "; main is one of red, blue",
        ),
    ],
)
def test_an_empty_option_is_not_the_same_as_none(call, words, named, lists):
    code, out, err = call("paint", "x", *words)
    assert (code, out) == (ConfigError.exit_code, "")
    options = named.rpartition(" is")[0] or named.rpartition(" are")[0]
    assert err == (
        f"error: {named}\n"
        "  why: a shell variable that is not set leaves nothing\n"
        f"  fix: leave {options} out or give a value{lists}\n"
    )


def test_an_empty_option_is_told_in_json_too(call):
    code, out, _ = call("paint", "--main", "", "--json")
    assert code == ConfigError.exit_code
    assert json.loads(out)["error"]["what"] == "--main is empty"


def test_no_option_has_a_letter_that_nobody_chose(call):
    assert call("paint", "-m", "red")[0] != 0


def test_the_options_of_records_stand_among_paths_as_others_do(call):
    row = painted(call, "a", "--main", "red", "b", "--very-loud", "c")
    assert row["files"] == ["a", "b", "c"]
    assert row["colour"] == PLAIN | {"main": "red", "very_loud": True}


def test_the_records_of_one_run_do_not_stay_for_the_next(call):
    assert painted(call, "--main", "red")["colour"]["main"] == "red"
    assert painted(call)["colour"] == PLAIN


def test_an_error_of_a_task_with_records_is_its_exit_code(call):
    code, out, err = call("paint", "--main", "none", "--json")
    assert code == ConfigError.exit_code
    assert err.startswith("error: it has no colour")
    assert "it has no colour" in out


def test_an_option_that_no_record_has_is_an_error_of_the_command_line(call):
    code, out, err = call("paint", "--third-one", "x")
    assert code != 0
    assert out == ""
    assert "third-one" in err


@pytest.mark.parametrize("name", ["colour", "size"])
def test_a_record_itself_is_no_option(call, name):
    assert call("paint", f"--{name}", "x")[0] != 0


def test_help_tells_what_each_option_of_a_record_means(capsys):
    @command(records={"colour": Colour, "size": Size}, help={"json": "machine-readable"})
    def shown(_: Context, *, colour: Colour, size: Size, json: bool = False) -> None:
        """Show it."""

    with pytest.raises(SystemExit) as left:
        Program(namespace=Collection(shown), name="tool").run(["tool", "shown", "--help"])
    assert not left.value.code
    out = capsys.readouterr().out
    for word in ("--main", "the main colour", "--second-one", "another one", "--width", "how wide",
                 "--very-loud", "--json", "machine-readable"):  # fmt: skip
        assert word in out


def test_the_help_of_an_option_that_no_record_has_is_a_defect():
    @command(records={"colour": Colour}, help={"nobody": "has it"})
    def lost(_: Context, *, colour: Colour) -> None:
        """Have help for what is not there."""

    with pytest.raises(ValueError, match="nobody"):
        lost.get_arguments()

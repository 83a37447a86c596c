"""Many wheels against many targets, on the command line and as documents."""

import dataclasses
import json
import os
import signal
import zipfile
from importlib import resources
from pathlib import Path

import jsonschema
import pytest
from jetship import engine
from jetship.check import inputs, page, prepared
from jetship.check.api import RULES, Unasked, check_facts, check_without_libraries
from jetship.check.explain import explanations
from jetship.check.findings import Finding, Report
from jetship.check.fold import fold, fold_all, sentence
from jetship.check.wheel import read_wheel
from jetship.errors import ToolMissingError
from jetship.survey import all_columns
from jetship.targets.resolve import resolve, resolve_ids
from jetship.tasks.main import program
from jetship.toolchain import imagetree
from wheelspec import EXT, WheelSpec

PIN = {
    "tool": {"version": "1"},
    "target": "sm62-debian-12",
    "platform": "debian-12",
    "platform_kind": "emulation",
    "machine": "aarch64",
    "torch": {"version": "2.7.1", "cuda": None, "cxx11_abi": True},
    "cuda": {"version": "11.8", "code": []},
    "python": {"interpreter": "cp311", "abi": "cp311"},
    "glibc_floor": "2.17",
}
NAMED = ("--target", "sm62-debian-12,sm72-debian-12")


@pytest.fixture
def asked(monkeypatch, libraries, tmp_path):
    """Which platforms' libraries were read; all have those of the corpus. No engine answers."""
    found = []

    def libraries_of(target, _store, own):
        found.append((target.platform.name, own.image))
        return libraries

    def no_engine(*_):
        raise ToolMissingError("no engine", fix="start it")

    monkeypatch.setattr(prepared, "target_libraries", libraries_of)
    monkeypatch.setattr(prepared, "are_at_hand", lambda *_: True)
    monkeypatch.setattr(engine, "connect", no_engine)
    monkeypatch.chdir(tmp_path)
    return found


@pytest.fixture
def call(capsys, asked):
    def call(*words) -> tuple[int, str, str]:
        code = 0
        try:
            program.run(["jetship", "check", *map(str, words)])
        except SystemExit as left:
            code = left.code or 0
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return call


@pytest.fixture
def wheel(tmp_path, member):
    def wheel(file="plain.so", name="pkg", ext=EXT, **bent) -> Path:
        return WheelSpec({f"{name}/_C{ext}": member(file)}, name=name, **bent).write(tmp_path)

    return wheel


def document(out: str) -> dict:
    schema = json.loads(resources.files("jetship.check").joinpath("check.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    found = json.loads(out)
    jsonschema.validate(found, schema)
    return found


def test_one_wheel_on_one_target_is_told_with_all_that_passed(call, wheel):
    code, out, _ = call(wheel(), "--arch", "6.2")
    assert code == 0
    assert out.splitlines()[0].endswith("for sm62-debian-12: pass")
    # Rule torch-code speaks only where the platform's file says what its torch has code for.
    assert out.count("\nok   ") == len(RULES) - 1


def test_wheels_by_targets_are_a_table_and_each_reason_once(call, wheel, asked):
    wheel(), wheel("newer.so", "other")
    code, out, err = call(".", *NAMED)
    assert code == 7
    lines = out.splitlines()
    assert lines[0].split() == ["sm62-debian-12", "sm72-debian-12"]
    assert [line.split()[1:] for line in lines[1:3]] == [["FAIL", "FAIL"], ["ok", "ok"]]
    assert out.count("GLIBC_2.38 (the target has GLIBC_2.36)") == 1
    assert "     on all 2 targets" in out
    assert "1 of 2 wheels did not pass" in err
    assert asked == [("debian-12", None)]


def test_the_longer_side_of_the_table_goes_down(call, wheel):
    wheel()
    out = call(".", *NAMED[:1], NAMED[1] + ",sm87-debian-12")[1]
    assert [line.split() for line in out.splitlines()[1:]] == [
        ["sm62-debian-12", "ok"], ["sm72-debian-12", "ok"], ["sm87-debian-12", "ok"],
    ]  # fmt: skip


def test_the_document_is_the_same_each_time_and_fits_its_schema(call, wheel):
    wheel(), wheel("newer.so", "other")
    Path("broken-1.0-py3-none-any.whl").write_text("no wheel")
    code, out, _ = call(".", *NAMED, "--json")
    found = document(out)
    assert (code, found["outcome"]) == (7, "fail")
    assert [row["outcome"] for row in found["wheels"]] == ["fail", "fail", "pass"]
    assert [row["exit_code"] for row in found["errors"]] == [7]
    assert [(row["wheel"][:5], row["target"]) for row in found["reports"]] == [
        ("other", "sm62-debian-12"), ("other", "sm72-debian-12"),
        ("pkg-1", "sm62-debian-12"), ("pkg-1", "sm72-debian-12"),
    ]  # fmt: skip
    assert call(".", *NAMED, "--json")[1] == out


def test_a_pinned_wheel_is_checked_against_its_own_target(call, wheel):
    path = wheel(extra={"jetship.json": json.dumps(PIN).encode()})
    Path("deploy.yaml").write_text("version: 1\ntargets: [{arch: 8.7}, {arch: 7.2}]\n")
    found = document(call(path, "--json")[1])
    assert found["wheels"][0]["question"] == "pin"
    assert [row["id"] for row in found["targets"]] == ["sm62-debian-12"]
    found = document(call(path, "--deploy", "deploy.yaml", "--json")[1])
    assert [row["id"] for row in found["targets"]] == ["sm87-debian-12", "sm72-debian-12"]


def test_a_foreign_wheel_is_checked_against_the_deploy_file(call, wheel):
    Path("deploy.yaml").write_text("version: 1\ntargets: [{arch: 8.7}]\n")
    found = document(call(wheel(), "--json")[1])
    assert (found["wheels"][0]["question"], found["wheels"][0]["outcome"]) == ("deploy", "pass")


def test_without_any_target_the_question_is_on_what_it_runs(call, wheel, asked, catalog):
    code, out, _ = call(wheel(ext=".abi3.so", tag="cp38-abi3-manylinux_2_17_aarch64", headers=()))
    assert code == 0
    assert "runs on debian-11, debian-12, debian-13, jetpack-5.1" in out.splitlines()[0]
    rows = {line.split()[1]: line for line in out.splitlines()[3:]}
    assert rows["jetpack-4.6"].startswith("FAIL")
    assert "cp36" in rows["jetpack-4.6"]
    assert "it is for aarch64, the target is x86_64" in rows["x86-64-cuda-13.0"]
    assert set(rows) == {platform.name for platform in catalog.platforms}
    # Whom its files refuse already, nobody reads libraries of.
    assert not {name for name, _ in asked} & {"jetpack-4.6", "x86-64-cuda-13.0"}


def test_emulation_alone_is_no_board(call, wheel):
    path = wheel(headers=("Requires-Python: ==3.11.*",))
    code, out, err = call(path, "--all-platforms")
    said = out.splitlines()[0]
    assert "runs on debian-12, which is for emulation and CI, and on no board" in said
    assert "did not pass; platforms for emulation are no board, and do not count" in err
    assert code == 7
    # Where the target was named, it counts.
    assert call(path, "--arch", "6.2")[0] == 0
    code, out, err = call(path, "--target", "sm62-debian-12,sm62-debian-11")
    assert (code, "emulation" in err) == (7, False)


def test_what_is_not_in_the_cache_is_unknown_until_it_is_fetched(call, wheel, asked, monkeypatch):
    monkeypatch.setattr(prepared, "are_at_hand", lambda *_: False)
    path = wheel(ext=".abi3.so", tag="cp38-abi3-manylinux_2_17_aarch64", headers=())
    code, out, err = call(path, "--all-platforms", "--json")
    found = document(out)
    assert (code, found["outcome"], asked) == (7, "unknown", [])
    (fix,) = {row["fix"] for one in found["reports"] if one["target"] == "sm87-jetpack-6.2"
              for row in one["findings"] if row["outcome"] == "unknown"}  # fmt: skip
    assert "--fetch" in fix
    assert "cannot be told" in err
    assert call(path, "--all-platforms", "--fetch")[0] == 0
    assert ("jetpack-6.2", None) in asked


def test_a_wheel_that_cannot_be_read_has_its_error_in_the_one_form_of_the_document(call, wheel):
    path = Path("pkg-1.0-cp311-cp311-linux_aarch64.whl")
    path.write_text("<html>404</html>")
    for words in ([path], [path, "--arch", "6.2"], [path, "--all-platforms"]):
        code, out, err = call(*words, "--json")
        found = document(out)
        assert (code, found["outcome"], found["reports"]) == (7, "fail", [])
        assert [row["wheel"] for row in found["errors"]] == [str(path)]
        assert "is not a zip archive" in found["errors"][0]["what"]
        assert err.count("is not a zip archive") == 1
        code, out, err = call(*words, "--html", "a.html")
        assert (code, out, err.count("is not a zip archive")) == (7, "", 1)
        assert "is not a zip archive" in Path("a.html").read_text()


def test_libraries_that_cannot_be_had_are_one_unknown_of_several(call, wheel, monkeypatch):
    def refuse(*_):
        raise ToolMissingError("no torch", why="NVIDIA has it", fix="--torch-wheel FILE")

    monkeypatch.setattr(prepared, "target_libraries", refuse)
    path = wheel()
    assert call(path, "--arch", "6.2")[0] == 4
    code, out, _ = call(path, *NAMED)
    assert code == 7
    assert "????" in out
    assert "no torch: NVIDIA has it" in out
    assert "fix: --torch-wheel FILE" in out


def installed(folder: Path, wheel: Path) -> Path:
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(folder)
    return folder


def test_installed_distributions_of_a_folder(call, wheel, tmp_path):
    site = installed(tmp_path / "lib/python3.11/site-packages", wheel())
    (site / "pure-1.0.dist-info").mkdir()
    (site / "pure-1.0.dist-info/RECORD").write_text("pure.py,,\n")
    (site / "pure-1.0.dist-info/WHEEL").write_text("Tag: py3-none-any\n")
    (site / "debian-1.0.dist-info").mkdir()
    code, out, err = call(site, "--arch", "6.2", "--json")
    (row,) = document(out)["wheels"]
    assert (code, row["name"], row["kind"]) == (0, "pkg-1.0", "installed")
    assert "without RECORD or WHEEL: debian-1.0" in err
    (site / f"pkg/_C{EXT}").write_bytes(b"\x7fELF")
    code, out, _ = call(site, "--arch", "6.2")
    assert code == 7
    assert "is not what RECORD says" in out
    (site / f"pkg/_C{EXT}").unlink()
    assert "in RECORD, but not installed" in call(site, "--arch", "6.2")[1]


def test_a_folder_without_wheels_says_where_there_are_some(call, wheel, tmp_path):
    installed(tmp_path / "env/lib/python3.11/site-packages", wheel())
    code, _, err = call("./env")
    assert code == 2
    assert "did you mean env/lib/python3.11/site-packages?" in err


def test_words_that_name_nothing_are_told_before_anything_is_checked(call, wheel, asked):
    Path("empty").mkdir()
    code, out, err = call(wheel(), "none.whl", "empty", "some/image:1", "--arch", "6.2")
    assert (code, out, asked) == (2, "", [])
    assert "none.whl does not exist; empty is a folder without wheels" in err
    assert "some/image:1 is no file or folder, and whether it is an image cannot be told" in err


def test_a_name_of_two_things_is_refused(call, wheel, monkeypatch, tmp_path):
    Path("ops").mkdir()
    wheel().rename(tmp_path / "ops/pkg-1.0-cp311-cp311-linux_aarch64.whl")
    monkeypatch.setattr(inputs, "_image_machine", lambda _: ("aarch64", ""))
    assert "ops is a folder and an image: say ./ops, or ops:latest" in call("ops")[2]
    assert call("./ops", "--arch", "6.2")[0] == 0


def test_installed_distributions_of_an_image(call, wheel, monkeypatch, tmp_path, asked):
    root = tmp_path / "exported"
    installed(root / "usr/local/lib/python3.11/dist-packages", wheel())
    tree = type("Tree", (), {"root": root})
    monkeypatch.setattr(inputs, "_image_machine", lambda _: ("aarch64", ""))
    monkeypatch.setattr(imagetree, "export_image", lambda *_: tree)
    code, out, _ = call("me/ops:1", "--arch", "6.2", "--json")
    (row,) = document(out)["wheels"]
    assert (code, row["outcome"]) == (0, "pass")
    assert row["place"] == "me/ops:1:/usr/local/lib/python3.11/dist-packages/pkg-1.0.dist-info"
    assert asked == [("debian-12", "me/ops:1")]
    code, _, err = call("me/ops:1")
    assert code == 2
    assert "which platform the image me/ops:1 is of does not stand in it" in err


def test_the_pin_of_one_package_says_what_platform_an_image_is_of(
    call, wheel, monkeypatch, tmp_path
):
    root = tmp_path / "exported"
    packages = root / "usr/local/lib/python3.11/dist-packages"
    installed(packages, wheel(name="a"))
    installed(packages, wheel(name="b", extra={"jetship.json": json.dumps(PIN).encode()}))
    monkeypatch.setattr(inputs, "_image_machine", lambda _: ("aarch64", ""))
    monkeypatch.setattr(imagetree, "export_image", lambda *_: type("Tree", (), {"root": root}))
    found = document(call("me/ops:1", "--json")[1])
    assert [row["targets"] for row in found["wheels"]] == [["sm62-debian-12"]] * 2
    assert [row["question"] for row in found["wheels"]] == ["pin", "pin"]


def test_every_rule_is_explained(call):
    names = {rule.__name__.replace("_", "-") for rule in RULES}
    assert set(explanations()) >= names
    code, out, _ = call("--explain", "device_code")
    assert code == 0
    assert out.startswith("device-code: Does every kernel have code that the GPU")
    assert "no kernel image is available" in out
    rows = json.loads(call("--explain", "all", "--json")[1])["rules"]
    assert {row["rule"] for row in rows} >= names
    assert "did you mean symbols?" in call("--explain", "symbol")[2]


def test_rules_that_ask_libraries_say_the_same_for_every_gpu(wheel, catalog, libraries):
    one, other = resolve(catalog, arch="6.2,8.7")
    for name in ("good.so", "newer.so", "missing.so", "stranger.so", "cuda.so"):
        facts = read_wheel(wheel(name))
        answers = {}
        check_facts(facts, one, libraries, answers)
        assert set(answers) == {"versions", "libraries", "symbols"}
        assert check_facts(facts, other, libraries) == check_facts(facts, other, libraries, answers)


def test_without_libraries_a_file_still_fails_and_never_passes(wheel, target):
    unasked = Unasked("not at hand", "--fetch")
    assert check_without_libraries(read_wheel(wheel()), target, unasked).outcome == "unknown"
    report = check_without_libraries(read_wheel(wheel("newer.so")), target, unasked)
    assert report.outcome == "fail"
    assert "GLIBC_2.38" in sentence(report)


def finding(**changes) -> Finding:
    return dataclasses.replace(
        Finding("suffix", "fail", "a/x.so", "never found", ("t",), "name it x.y.so for sm62-p"),
        **changes,
    )


def test_findings_that_say_the_same_are_told_once():
    rows = (finding(), finding(subject="a/y.so", fix="name it y.y.so for sm62-p"))
    (row,) = fold(Report("w", "0" * 64, "sm62-p", rows))
    assert (row.subjects, row.evidence) == (("a/x.so", "a/y.so"), ("t",))
    assert row.fix == "name it NAME.y.so for sm62-p"
    assert row.subject == "2 files (a/x.so, a/y.so)"
    other = Report("w", "0" * 64, "sm72-p", (finding(fix="name it x.y.so for sm72-p"),))
    (row,) = fold_all([Report("w", "0" * 64, "sm62-p", (finding(),)), other])
    assert row.targets == ("sm62-p", "sm72-p")
    assert row.fix == "name it x.y.so for the target"


def test_every_board_has_a_column_on_each_of_its_platforms(catalog):
    columns = all_columns(catalog)
    pairs = {(one.target.platform.name, board) for one in columns for board in one.boards}
    assert pairs >= {
        (name, board.name)
        for board in catalog.boards
        for name in board.platforms
        if catalog.platform(name).kind != "emulation"
    }
    ids = [column.target.id for column in columns]
    assert len(ids) == len(set(ids))


def test_target_takes_a_list_of_ids_or_archs(catalog):
    ids = [target.id for target in resolve_ids(catalog, "sm62-debian-12, 7.2/debian-12")]
    assert ids == ["sm62-debian-12", "sm72-debian-12"]
    assert [one.id for one in resolve_ids(catalog, "6.2,7.2/debian-12")] == ["sm62.sm72-debian-12"]


def test_the_page_is_written_whole_and_escapes_what_is_in_a_wheel(call, wheel, member, tmp_path):
    evil = "pkg/<script>alert(1)</script>.so"
    path = WheelSpec({evil: b"no library"}).write(tmp_path)
    code, _, err = call(path, "--arch", "6.2", "--html", "a.html")
    assert code == 7
    assert "a.html has the reasons" in err
    text = Path("a.html").read_text()
    assert evil not in text
    assert "pkg/&lt;script&gt;alert(1)&lt;/script&gt;.so" in text
    assert text.count("<script>") == 1
    assert "http" not in text.replace("http-equiv", "")
    assert sorted(Path().glob(".a.html*")) == []


def test_a_page_takes_the_place_of_an_earlier_page_and_of_nothing_else(call, wheel):
    path = wheel()
    before = path.read_bytes()
    Path("notes.txt").write_text("mine\n")
    os.mkfifo("pipe")
    Path("empty.html").touch()
    for name, problem in (
        (path.name, "is there already, and is no earlier page"),
        ("notes.txt", "is there already, and is no earlier page"),
        ("pipe", "is a named pipe"),
        ("/dev/null", "is a device"),
    ):
        code, _, err = call(path, "--arch", "6.2", "--html", name)
        assert code == 2
        assert f"--html: {name} {problem}" in err
    assert path.read_bytes() == before
    assert Path("notes.txt").read_text() == "mine\n"
    for name in ("a.html", "a.html", "empty.html"):
        assert call(path, "--arch", "6.2", "--html", name)[0] == 0
        assert "<h1" in Path(name).read_text()


@pytest.fixture
def ends():
    """Break off what waits for ever."""

    def late(*_):
        raise TimeoutError("it waits")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(60)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("ends")
def test_a_named_pipe_is_told_and_not_waited_for(call, wheel, tmp_path):
    pipe = tmp_path / "dist" / "pipe-1.0-py3-none-any.whl"
    pipe.parent.mkdir()
    os.mkfifo(pipe)
    code, _, err = call(pipe, "--arch", "6.2")
    assert (code, "pipe-1.0-py3-none-any.whl is a named pipe" in err) == (2, True)
    code, out, err = call("dist", wheel(), "--arch", "6.2")
    assert code == 7
    assert "pipe-1.0-py3-none-any.whl is a named pipe" in out
    code, _, err = call(wheel(), "--deploy", pipe)
    assert (code, "is a named pipe" in err, "fix: " in err) == (2, True, True)


def test_a_deploy_file_that_is_none_says_what_it_is_and_what_to_do(call, wheel):
    Path("dep").mkdir()
    for name, problem in (("nope.yaml", "does not exist"), ("dep", "is a folder")):
        code, _, err = call(wheel(), "--deploy", name)
        assert code == 2
        assert f"error: {name} {problem}\n" in err
        assert "\n  fix: name a deploy.yaml" in err


def test_the_policy_of_the_page_names_its_own_script_and_style(call, wheel):
    call(wheel(), *NAMED, "--html", "a.html")
    text = Path("a.html").read_text()
    for tag in ("script", "style"):
        inside = text.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        assert page._digest(inside) in text.replace("&#39;", "'").replace("&#43;", "+")

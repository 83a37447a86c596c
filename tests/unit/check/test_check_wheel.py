"""Reading wheels that may be anything, and the report's own form."""

import dataclasses
import json
import stat
import zipfile
from importlib import resources

import jsonschema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from jetship import wheelarchive
from jetship.check import wheel as wheel_reader
from jetship.check.api import check_wheel
from jetship.check.findings import Finding, Report
from jetship.check.fold import sentence
from jetship.check.text import render
from jetship.check.wheel import read_wheel
from jetship.errors import CheckError
from jetship.pin import Pin
from jetship.targets.resolve import resolve
from wheelspec import EXT, WheelSpec

NAME = "pkg-1.0-cp311-cp311-linux_aarch64.whl"
FIXTURE_IS_SAFE = [HealthCheck.function_scoped_fixture]


class Sample(bytes):
    """Bytes that hypothesis does not print in full."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory, member) -> bytes:
    spec = WheelSpec({f"pkg/_C{EXT}": member("good.so"), "pkg/__init__.py": b"import torch\n"})
    return Sample(spec.write(tmp_path_factory.mktemp("wheel")).read_bytes())


def content(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as opened:
        return {name: opened.read(name) for name in opened.namelist()}


@pytest.mark.parametrize("data", [b"", b"not a zip", b"PK\x05\x06"])
def test_not_a_zip(tmp_path, data):
    (tmp_path / NAME).write_bytes(data)
    with pytest.raises(CheckError, match="not a zip archive"):
        read_wheel(tmp_path / NAME)


def test_missing_file(tmp_path):
    with pytest.raises(CheckError, match="does not exist"):
        read_wheel(tmp_path / NAME)


def test_not_a_wheel_name(tmp_path):
    with pytest.raises(CheckError, match="not the name of a wheel"):
        read_wheel(tmp_path / "pkg.zip")


def test_other_name_than_its_content(tmp_path, wheel):
    renamed = tmp_path / "other-1.0-cp311-cp311-linux_aarch64.whl"
    renamed.write_bytes(wheel)
    with pytest.raises(CheckError, match="another wheel than its name says"):
        read_wheel(renamed)


@pytest.mark.parametrize("name", ["../evil.py", "/etc/evil", "a/../../b", "C:/x", "a\\b"])
def test_path_traversal(tmp_path, name):
    path = WheelSpec(unrecorded={name: b"x"}).write(tmp_path)
    with pytest.raises(CheckError, match="outside of the folder"):
        read_wheel(path)


def test_symbolic_link(tmp_path):
    path = WheelSpec().write(tmp_path)
    link = zipfile.ZipInfo("pkg/link")
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr(link, "/etc/passwd")
    with pytest.raises(CheckError, match="symbolic link"):
        read_wheel(path)


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_members_of_one_name(tmp_path):
    path = WheelSpec({"a.py": b"1"}).write(tmp_path)
    with zipfile.ZipFile(path, "a") as opened:
        opened.writestr("a.py", b"2")
    with pytest.raises(CheckError, match="two members"):
        read_wheel(path)


def test_absurd_size(tmp_path, monkeypatch):
    monkeypatch.setattr(wheelarchive, "MAX_UNPACKED_BYTES", 1000)
    path = WheelSpec({"a.bin": bytes(2000)}).write(tmp_path)
    with pytest.raises(CheckError, match="unpacked it would be"):
        read_wheel(path)


def test_a_large_wheel_is_announced(tmp_path, monkeypatch, capsys):
    path = WheelSpec({"a.bin": bytes(2_000_000)}).write(tmp_path)
    read_wheel(path)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(wheel_reader, "_LARGE_BYTES", 1_000_000)
    read_wheel(path)
    assert capsys.readouterr().err == f"    reading {path.name}, 2 MB unpacked\n"


def test_encrypted(tmp_path):
    path = WheelSpec({"a.py": b"1"}).write(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(b"PK\x01\x02") + 8] |= 1
    path.write_bytes(data)
    with pytest.raises(CheckError, match=r"its member 'a\.py' is encrypted"):
        read_wheel(path)


@pytest.mark.parametrize("lost", ["METADATA", "WHEEL", "RECORD"])
def test_missing_metadata(tmp_path, wheel, lost):
    (tmp_path / "whole.whl").write_bytes(wheel)
    with zipfile.ZipFile(tmp_path / NAME, "w") as opened:
        for name, data in content(tmp_path / "whole.whl").items():
            if not name.endswith(lost):
                opened.writestr(name, data)
    with pytest.raises(CheckError, match=f"{NAME} has no pkg-1.0.dist-info/{lost}"):
        read_wheel(tmp_path / NAME)


@given(share=st.floats(0, 1, exclude_max=True))
@settings(max_examples=60, suppress_health_check=FIXTURE_IS_SAFE)
def test_a_cut_off_wheel_is_refused(tmp_path, wheel, target, libraries, share):
    path = tmp_path / NAME
    path.write_bytes(wheel[: int(share * len(wheel))])
    with pytest.raises(CheckError):
        check_wheel(path, target, libraries)


@given(
    flips=st.lists(st.tuples(st.integers(0, 1 << 30), st.integers(0, 7)), min_size=1, max_size=4)
)
@settings(max_examples=300, suppress_health_check=FIXTURE_IS_SAFE)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_a_damaged_wheel_never_passes(tmp_path, wheel, target, libraries, flips):
    damaged = bytearray(wheel)
    for place, bit in flips:
        damaged[place % len(wheel)] ^= 1 << bit
    path = tmp_path / NAME
    path.write_bytes(damaged)
    try:
        report = check_wheel(path, target, libraries)
    except CheckError:
        return
    if report.outcome == "pass":
        # Dates and permissions in the zip's directory are no content.
        (tmp_path / "whole.whl").write_bytes(wheel)
        assert content(path) == content(tmp_path / "whole.whl")


def test_report_fits_its_schema(check):
    schema = json.loads(resources.files("jetship.check").joinpath("check.schema.json").read_text())
    schema = {"$defs": schema["$defs"], "$ref": "#/$defs/report"}
    jsonschema.Draft202012Validator.check_schema(schema)
    for name in ("good.so", "missing.so", "cuda.so"):
        report = check(name)
        document = json.loads(json.dumps(report.to_json()))
        jsonschema.validate(document, schema)
        assert document["outcome"] == report.outcome


def finding(outcome, accepted=None) -> Finding:
    return Finding("rule", outcome, "file", "reason", accepted=accepted)


@pytest.mark.parametrize(
    ("findings", "outcome"),
    [
        ([], "unknown"),
        ([finding("pass")], "pass"),
        ([finding("pass"), finding("unknown", "because")], "pass"),
        ([finding("pass"), finding("unknown")], "unknown"),
        ([finding("unknown"), finding("fail")], "fail"),
    ],
)
def test_outcome_of_a_report(findings, outcome):
    assert Report("w.whl", "0" * 64, "sm62-debian-12", tuple(findings)).outcome == outcome


def test_render_puts_what_blocks_first(check, member):
    spec = WheelSpec({f"a{EXT}": member("cuda.so"), f"b{EXT}": member("missing.so")})
    lines = render(check(spec)).splitlines()
    assert lines[0].endswith("for sm62-debian-12: fail")
    assert lines[1].startswith(
        f"FAIL symbols: b{EXT}: no library that is loaded with it has 1 symbol"
    )
    assert lines[2].strip() == "c10::gone() [_ZN3c104goneEv]"
    assert lines[3].strip().startswith("fix: build it against torch 2.7.1")
    marks = [line[:4] for line in lines[1:] if not line.startswith("     ")]
    assert marks == sorted(marks, key=["FAIL", "????", "ok ?", "ok  "].index)


def test_render_says_what_derived_means(check):
    report = check("good.so")
    assert "[derived]" not in render(report)
    rows = tuple(dataclasses.replace(row, grade="derived") for row in report.findings)
    lines = render(dataclasses.replace(report, findings=rows)).splitlines()
    assert lines[0].endswith("for sm62-debian-12: pass [derived]")
    assert lines[-1].startswith("[derived]: proved with upstream's build of the same release")


PIN = {
    "tool": {"version": "1"},
    "target": "sm62-debian-12",
    "platform": "debian-12",
    "platform_kind": "emulation",
    "machine": "aarch64",
    "torch": {"version": "2.7.1", "cuda": None, "cxx11_abi": True},
    "cuda": {"version": "11.8", "code": [{"arch": "6.2", "sass": True, "ptx": False}]},
    "python": {"interpreter": "cp311", "abi": "cp311"},
    "glibc_floor": "2.17",
}


@pytest.mark.parametrize(
    ("change", "evidence"),
    [
        ({}, ""),
        ({"platform": "jetpack-4.6"}, "platform: built for jetpack-4.6"),
        ({"machine": "x86_64"}, "machine: built for x86_64"),
        ({"torch": {**PIN["torch"], "version": "2.5.0"}}, "torch: built for 2.5.0"),
        ({"torch": {**PIN["torch"], "cxx11_abi": False}}, "C++11 ABI: built for False"),
        ({"cuda": {"version": "11.8", "code": []}}, "the record says none, the wheel has 6.2 SASS"),
        ({"glibc_floor": "2.2"}, "the record says 2.2, the wheel's files ask for 2.17"),
    ],
)
def test_pin(check, of, change, evidence):
    data = Pin.model_validate(PIN | change).to_json()
    (found,) = of(check("good.so", extra={"jetship.json": data}), "pin")
    assert found.outcome == ("fail" if change else "pass")
    assert evidence in "\n".join(found.evidence)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "jetship.json: Invalid JSON"),
        (b'{"a":', "jetship.json: Invalid JSON: EOF"),
        (b"[]", "jetship.json: it is no JSON object"),
        (b"{}", "jetship.json: key 'tool' is missing"),
        (b"\xff\xfe", "jetship.json: Invalid JSON"),
        (b'{"schema_version": 2}', "jetship.json: schema_version: Input should be 1"),
        (b'{"tool": []}', "jetship.json: tool: Input should be an object"),
    ],
)
def test_unreadable_pin(check, of, data, said):
    (found,) = of(check("good.so", extra={"jetship.json": data}), "pin")
    assert found.outcome == "fail"
    assert found.reason == "the wheel's jetship.json cannot be read"
    assert found.evidence[0].startswith(said)


@pytest.mark.parametrize("damage", ["cut off", "another machine"])
def test_a_library_that_cannot_be_read_is_told_before_what_the_record_says_of_it(
    check, of, member, damage
):
    data = member("good.so")[:2000] if damage == "cut off" else member("x86.so")
    report = check(data, extra={"jetship.json": Pin.model_validate(PIN).to_json()})
    (found,) = of(report, "pin")
    assert (found.outcome, found.evidence) == ("unknown", (f"pkg/_C{EXT}",))
    assert "cannot be compared" in found.reason
    assert f"_C{EXT}: it is " in sentence(report)
    assert "pin" not in sentence(report)
    # What the record says of the platform is told all the same.
    other = Pin.model_validate(PIN | {"platform": "jetpack-4.6"}).to_json()
    (found,) = of(check(data, extra={"jetship.json": other}), "pin")
    assert found.evidence == ("platform: built for jetpack-4.6, the target has debian-12",)


def test_a_pin_for_another_arch_of_the_platform_says_so(check, of, catalog):
    (orin,) = resolve(catalog, arch="8.7", platform="debian-12")
    data = Pin.model_validate(PIN).to_json()
    report = check("good.so", target=orin, extra={"jetship.json": data})
    (found,) = of(report, "pin")
    assert found.reason == (
        "built for sm62-debian-12, which is debian-12 as well; device-code tells the rest"
    )
    assert report.outcome == "fail"

import base64
import csv
import hashlib
import io
import stat
import zipfile

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.build.wheelfile import Headers, Member, Wheel
from jetship.errors import BuildError
from packaging.tags import Tag, parse_tag
from packaging.utils import parse_wheel_filename

NAMES = st.from_regex(r"[A-Z][A-Za-z-]{0,8}", fullmatch=True)
LINES = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=9)
VALUES = st.builds(
    lambda first, more: first + "".join(f"\n  {line}" for line in more),
    LINES,
    st.lists(LINES, max_size=2),
)
BODIES = st.text(st.characters(codec="utf-8", exclude_characters="\r"), max_size=30)
HEADERS = st.builds(
    Headers, st.lists(st.tuples(NAMES, VALUES), min_size=1, max_size=5).map(tuple), BODIES
)
FILES = st.dictionaries(
    st.from_regex(r"ops/[a-zA-Z0-9_,\"é -]{1,8}\.py", fullmatch=True),
    st.builds(Member, st.binary(max_size=20), st.booleans()),
    max_size=5,
)

# What a real METADATA may hold and the email library would change.
UNUSUAL = """\
Metadata-Version: 2.1
Name: ops
Version: 1.0
Author: Jürgen Müller-Größe, 山田太郎
Summary: a line that is much longer than the seventy-eight columns at which the email library folds
Project-URL: Ein sehr langer Name, https://example.invalid/{}
License: Apache
        with a second line

# Words ✓

    code: with a colon
From here on, nothing is a header.
""".format("x" * 300).encode()


def members_of(path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        assert archive.testzip() is None
        return {info.filename: archive.read(info) for info in archive.infolist()}


@given(HEADERS)
def test_headers_are_read_back_as_they_were_written(headers):
    assert Headers.parse(headers.to_bytes()) == headers
    assert Headers.parse(headers.to_bytes()).to_bytes() == headers.to_bytes()


def test_what_is_not_changed_keeps_its_bytes():
    assert Headers.parse(UNUSUAL).to_bytes() == UNUSUAL
    added = Headers.parse(UNUSUAL).adding("Requires-Dist", "torch==2.7.1")
    head, body = UNUSUAL.split(b"\n\n", 1)
    assert added.to_bytes() == head + b"\nRequires-Dist: torch==2.7.1\n\n" + body


def test_headers_are_found_whatever_their_case_and_taken_out_with_their_second_lines():
    headers = Headers.parse(b"Name: x\nLICENSE: a\n   b\nLicense: c\n")
    assert headers.all("license") == ["a\n   b", "c"]
    assert headers.without("License").to_bytes() == b"Name: x\n"


def test_headers_with_other_line_ends_are_read():
    headers = Headers.parse(b"Name: x\r\nVersion: 1\r\n\r\nWords\r\n")
    assert headers.fields == (("Name", "x"), ("Version", "1"))


def test_a_wheel_is_written_with_a_correct_record(make_wheel, tmp_path):
    files = {'ops/odd, "name".py': b"1", "ops/_C.so": b"\x7fELF", "ops/é.py": "é".encode()}
    path = make_wheel(files).write(tmp_path)
    assert path.name == "ops-1.0-cp312-cp312-linux_x86_64.whl"
    members = members_of(path)
    rows = list(csv.reader(io.StringIO(members["ops-1.0.dist-info/RECORD"].decode())))
    assert [row[0] for row in rows] == list(members)
    for name, digest, size in rows[:-1]:
        method, _, text = digest.partition("=")
        assert method == "sha256"
        found = base64.urlsafe_b64encode(hashlib.sha256(members[name]).digest()).decode()
        assert text == found.rstrip("=")
        assert int(size) == len(members[name])
    assert rows[-1] == ["ops-1.0.dist-info/RECORD", "", ""]


def test_the_metadata_is_at_the_end_of_the_archive(make_wheel, tmp_path):
    names = list(members_of(make_wheel({"zzz.py": b""}).write(tmp_path)))
    assert names[-3:] == [f"ops-1.0.dist-info/{name}" for name in ("METADATA", "WHEEL", "RECORD")]
    assert not any(".dist-info/" in name for name in names[:-3])


def test_programs_stay_programs(make_wheel, tmp_path):
    wheel = make_wheel()
    members = wheel.members | {"ops-1.0.data/scripts/tool": Member(b"#!python\n", executable=True)}
    path = Wheel(wheel.name, wheel.version, wheel.tags, members).write(tmp_path)
    with zipfile.ZipFile(path) as archive:
        modes = {info.filename: info.external_attr >> 16 for info in archive.infolist()}
    assert modes["ops-1.0.data/scripts/tool"] == stat.S_IFREG | 0o755
    assert modes["ops/__init__.py"] == stat.S_IFREG | 0o644
    assert Wheel.read(path).members["ops-1.0.data/scripts/tool"].executable


@given(FILES, st.randoms())
def test_the_same_wheel_is_the_same_bytes_in_any_order(tmp_path_factory, files, random):
    info = {"ops-1.0.dist-info/METADATA": Member(b"Name: ops\n")}
    items = list({**files, **info}.items())
    tags = parse_tag("cp311-cp311-linux_aarch64")
    one = Wheel("ops", "1.0", tags, dict(items)).write(tmp_path_factory.getbasetemp())
    first = one.read_bytes()
    random.shuffle(items)
    two = Wheel("ops", "1.0", tags, dict(items)).write(tmp_path_factory.getbasetemp())
    assert two.read_bytes() == first


@given(FILES)
def test_a_written_wheel_is_read_back(tmp_path_factory, files):
    members = {**files, "ops-1.0.dist-info/METADATA": Member(b"Name: ops\n")}
    wheel = Wheel("ops", "1.0", parse_tag("py2.py3-none-any"), members)
    assert Wheel.read(wheel.write(tmp_path_factory.getbasetemp())) == wheel


def test_the_time_in_the_archive_is_the_one_that_is_asked_for(make_wheel, tmp_path, monkeypatch):
    def time_of(path):
        with zipfile.ZipFile(path) as archive:
            return {info.date_time for info in archive.infolist()}

    assert time_of(make_wheel().write(tmp_path)) == {(1980, 1, 1, 0, 0, 0)}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    assert time_of(make_wheel().write(tmp_path)) == {(2023, 11, 14, 22, 13, 20)}
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "0")
    assert time_of(make_wheel().write(tmp_path)) == {(1980, 1, 1, 0, 0, 0)}


def test_another_version_moves_the_folders_that_carry_it(make_wheel, tmp_path):
    files = {"ops-1.0.py": b"", "ops/ops-1.0.dist-info/x": b""}
    wheel = make_wheel(files).with_version("1.0+debian12.sm62")
    assert set(wheel.members) == {
        "ops/__init__.py", "ops-1.0.py", "ops/ops-1.0.dist-info/x",
        "ops-1.0+debian12.sm62.dist-info/METADATA", "ops-1.0+debian12.sm62.dist-info/WHEEL",
        "ops-1.0+debian12.sm62.data/scripts/tool",
    }  # fmt: skip
    assert wheel.metadata.all("Version") == ["1.0+debian12.sm62"]
    assert wheel.metadata.all("Requires-Dist") == ["numpy>=1.20"]
    assert Wheel.read(wheel.write(tmp_path)) == wheel


def test_other_tags_change_the_name_and_the_wheel_file(make_wheel, tmp_path):
    tags = frozenset({Tag("py3", "none", "linux_aarch64"), Tag("py2", "none", "linux_aarch64")})
    wheel = make_wheel().with_tags(tags)
    assert wheel.filename == "ops-1.0-py2.py3-none-linux_aarch64.whl"
    assert parse_wheel_filename(wheel.filename)[3] == tags
    headers = Headers.parse(wheel.members["ops-1.0.dist-info/WHEEL"].data)
    assert headers.all("Tag") == ["py2-none-linux_aarch64", "py3-none-linux_aarch64"]
    assert headers.all("Wheel-Version") == ["1.0"]


def test_a_wheel_is_a_value(make_wheel):
    wheel = make_wheel()
    changed = wheel.with_member("ops/x.py", b"").with_version("2").with_metadata(Headers((), ""))
    assert changed != wheel
    assert wheel == make_wheel()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("ops-1.0-py3-none-any.whl", b"text"),
        ("ops.whl", None),
        ("ops-1.0-py3-none-any.zip", None),
        ("ops-1.0-py3-none-any.whl", {"ops/__init__.py": b""}),
        ("ops-1.0-py3-none-any.whl", {"other-1.0.dist-info/RECORD": b""}),
    ],
)
def test_what_is_not_a_wheel_is_refused(make_wheel, tmp_path, name, content):
    path = tmp_path / name
    if content is None:
        make_wheel().write(tmp_path).rename(path)
    elif isinstance(content, bytes):
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            for member, data in content.items():
                archive.writestr(member, data)
    with pytest.raises(BuildError, match=name):
        Wheel.read(path)

import base64
import hashlib
import io
import re
import tarfile
import zipfile
from types import SimpleNamespace

import pytest
from jetship.check.findings import Finding, Report
from jetship.errors import CheckError, ImageError
from jetship.image.build import (
    HOME,
    image_name,
    repository_digest,
    require_passed,
    write_context,
)
from jetship.image.wheelfile import libraries, read_wheel
from jetship.pin import Pin, PinnedCode, PinnedCuda, PinnedPython, PinnedTool, PinnedTorch
from jetship.store import sha256_of
from jetship.targets.catalog import Catalog
from jetship.targets.resolve import resolve

CATALOG = Catalog.load()
TARGET = resolve(CATALOG, arch="6.2")[0]
PIN = Pin(
    tool=PinnedTool(version="0"),
    target=TARGET.id,
    platform="debian-12",
    platform_kind="emulation",
    machine="aarch64",
    torch=PinnedTorch(version="2.7.1", cuda=None, cxx11_abi=True),
    cuda=PinnedCuda(version="11.8", code=(PinnedCode(arch="6.2", sass=True, ptx=False),)),
    python=PinnedPython(interpreter="cp311", abi="cp311"),
    glibc_floor=None,
)
CONTENT = {
    "ops/__init__.py": b"one = 1\n",
    "ops/_C.so": b"a library",
    "ops-1.0.data/scripts/tool": b"#!python\n",
    "ops-1.0.dist-info/METADATA": b"Metadata-Version: 2.1\nName: ops\nVersion: 1.0+debian12\n",
    "ops-1.0.dist-info/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: false\n",
    "ops-1.0.dist-info/jetship.json": PIN.to_json(),
}


def pack(folder, **changes):
    files = {name: changes.get(name.rsplit("/", 1)[-1], data) for name, data in CONTENT.items()}
    files = {name: data for name, data in files.items() if data is not None}
    rows = []
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")
        rows.append(f"{name},sha256={digest},{len(data)}\n")
    files["ops-1.0.dist-info/RECORD"] = "".join([*rows, "ops-1.0.dist-info/RECORD,,\n"]).encode()
    folder.mkdir(exist_ok=True)
    path = folder / "ops-1.0-cp311-cp311-linux_aarch64.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    return path


def report(wheel, outcome="pass"):
    finding = Finding("rule", outcome, wheel.name, "a reason")
    return Report(wheel.name, sha256_of(wheel), TARGET.id, (finding,))


def test_wheel_facts(tmp_path):
    wheel = pack(tmp_path)
    facts = read_wheel(wheel)
    assert (facts.name, facts.version, facts.summary) == ("ops", "1.0+debian12", "")
    assert facts.sha256 == sha256_of(wheel)
    assert Pin.from_json(facts.pin_json.encode()) == PIN
    assert list(libraries(wheel)) == [("ops/_C.so", b"a library")]


def test_wheel_without_a_pin_is_refused(tmp_path):
    wheel = pack(tmp_path, **{"jetship.json": None})
    with pytest.raises(CheckError, match="carries no pin record"):
        read_wheel(wheel)


def test_file_that_is_no_wheel_is_named(tmp_path):
    path = tmp_path / "ops-1.0-cp311-cp311-linux_aarch64.whl"
    with pytest.raises(CheckError, match=r"aarch64\.whl does not exist"):
        read_wheel(path)
    path.write_bytes(b"not a zip")
    with pytest.raises(CheckError, match=r"aarch64\.whl is not a zip archive"):
        read_wheel(path)


def test_passing_report_of_this_wheel_is_taken(tmp_path):
    wheel = pack(tmp_path)
    require_passed(report(wheel), read_wheel(wheel), TARGET)


@pytest.mark.parametrize("outcome", ["fail", "unknown"])
def test_report_that_is_not_all_pass_is_refused(tmp_path, outcome):
    wheel = pack(tmp_path)
    with pytest.raises(CheckError, match=rf"did not pass its check \({outcome}\)") as caught:
        require_passed(report(wheel, outcome), read_wheel(wheel), TARGET)
    assert "a reason" in caught.value.why


def test_report_without_findings_is_refused(tmp_path):
    wheel = pack(tmp_path)
    empty = Report(wheel.name, sha256_of(wheel), TARGET.id, ())
    with pytest.raises(CheckError, match="did not pass"):
        require_passed(empty, read_wheel(wheel), TARGET)


def test_report_about_other_bytes_is_refused(tmp_path):
    checked = report(pack(tmp_path / "one"))
    other = read_wheel(pack(tmp_path / "two", **{"__init__.py": b"two = 2\n"}))
    with pytest.raises(CheckError, match="about another wheel"):
        require_passed(checked, other, TARGET)


def test_report_for_another_target_is_refused(tmp_path):
    wheel = pack(tmp_path)
    other = resolve(CATALOG, arch="7.2")[0]
    with pytest.raises(CheckError, match="is not for sm72-debian-12"):
        require_passed(report(wheel), read_wheel(wheel), other)


def test_tag_is_version_and_target(tmp_path):
    facts = read_wheel(pack(tmp_path))
    assert image_name("acme/ops", facts, TARGET) == "acme/ops:1.0-sm62-debian-12"


def test_tag_of_very_many_archs_stays_legal_and_distinct(tmp_path):
    facts = read_wheel(pack(tmp_path))
    archs = ["5.3+PTX", "6.0+PTX", "6.1+PTX", "6.2+PTX", "7.0+PTX", "7.2+PTX", "7.5+PTX"]
    archs += ["8.0+PTX", "8.6+PTX", "8.7+PTX", "8.9+PTX", "9.0+PTX"]
    tags = set()
    for chosen in (archs, [*archs, "5.2+PTX"]):
        (fat,) = resolve(CATALOG, arch=",".join(chosen), fat=True)
        tag = image_name("acme/ops", facts, fat).split(":")[1]
        assert len(tag) <= 128
        assert tag.endswith("-debian-12")
        tags.add(tag)
    assert len(tags) == 2


def context(folder, wheel):
    path = folder / "context.tar"
    write_context(path, wheel, TARGET.platform)
    return path.read_bytes()


def test_context_has_the_installed_wheel_for_the_targets_python(tmp_path):
    data = context(tmp_path, pack(tmp_path / "w"))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        names = archive.getnames()
        tool = archive.extractfile("root/usr/local/bin/tool").read()
        dockerfile = archive.extractfile("Dockerfile.runtime").read()
    packages = "root/usr/local/lib/python3.11/dist-packages"
    assert f"{packages}/ops/_C.so" in names
    assert f"{packages}/ops-1.0.dist-info/RECORD" in names
    assert not any("__pycache__" in name for name in names)
    assert tool == b"#!/usr/bin/python3\n"
    commands = {line.split()[0] for line in dockerfile.decode().splitlines() if line[:1].isupper()}
    assert commands == {"ARG", "FROM", "COPY", "ENV", "USER", "LABEL"}, "nothing is run"


def test_the_image_runs_as_a_numbered_user_with_a_home_that_anybody_can_write(tmp_path):
    data = context(tmp_path, pack(tmp_path / "w"))
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        home = archive.getmember(f"root{HOME}")
        dockerfile = archive.extractfile("Dockerfile.runtime").read().decode()
        others = [member for member in archive if member.isdir() and member.name != home.name]
    assert (home.isdir(), home.mode, home.uid) == (True, 0o1777, 0)
    assert {member.mode for member in others} == {0o755}
    assert f"ENV HOME={HOME}" in dockerfile
    (user,) = re.findall(r"^USER (\d+):\d+$", dockerfile, re.MULTILINE)
    assert int(user) > 0


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ("", ("", "")),
        ("License-Expression: MIT\n", ("MIT", "")),
        ("License: see the file\n", ("", "")),
        ("Project-URL: Documentation, https://d.example\n", ("", "")),
        ("Project-URL: Source Code, https://s.example/x,y\n", ("", "https://s.example/x,y")),
        (
            "Home-page: h\nProject-URL: homepage, p\nProject-URL: Repository, https://r.example\n",
            ("", "https://r.example"),
        ),
        ("Home-page: https://h.example\n", ("", "https://h.example")),
    ],
)
def test_license_and_source_are_what_the_metadata_says_in_plain(tmp_path, rows, expected):
    metadata = CONTENT["ops-1.0.dist-info/METADATA"] + rows.encode()
    facts = read_wheel(pack(tmp_path, METADATA=metadata))
    assert (facts.licenses, facts.source) == expected


@pytest.mark.parametrize(
    ("template", "tag"),
    [
        ("{version}", "1.0"),
        ("{platform}-{wheel}", "debian-12-{sha}"),
        ("v{version}.{target}", "v1.0.sm62-debian-12"),
    ],
)
def test_the_tag_is_the_templates(tmp_path, template, tag):
    facts = read_wheel(pack(tmp_path))
    wanted = tag.format(sha=facts.sha256[:12])
    assert image_name("acme/ops", facts, TARGET, template) == f"acme/ops:{wanted}"


def test_context_is_the_same_for_the_same_wheel(tmp_path):
    wheel = pack(tmp_path / "w")
    first = context(tmp_path, wheel)
    assert context(tmp_path, wheel) == first


def test_damaged_wheel_is_not_installed(tmp_path):
    wheel = pack(tmp_path / "w")
    with zipfile.ZipFile(wheel) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    files["ops/_C.so"] = b"A library"
    with zipfile.ZipFile(wheel, "w") as archive:
        for name, data in files.items():
            archive.writestr(name, data)
    with pytest.raises(ImageError, match="cannot be installed") as caught:
        context(tmp_path, wheel)
    assert "ops/_C.so" in caught.value.why


@pytest.mark.parametrize(
    ("image", "digests", "found"),
    [
        ("acme/base:1", ["acme/base@sha256:1"], "acme/base@sha256:1"),
        ("r.example:5000/acme/base:1", ["x@sha256:1", "r.example:5000/acme/base@sha256:2"],
         "r.example:5000/acme/base@sha256:2"),
        ("r.example:5000/base", ["r.example:5000/base@sha256:3"], "r.example:5000/base@sha256:3"),
        ("acme/base@sha256:4", ["acme/base@sha256:4"], "acme/base@sha256:4"),
        ("acme/base:1", ["other/base@sha256:1"], ""),
        ("acme/base:1", [], ""),
        ("acme/base:1", None, ""),
    ],
)  # fmt: skip
def test_a_base_is_named_by_the_digest_that_its_own_registry_gave_it(image, digests, found):
    known = SimpleNamespace(attrs={"RepoDigests": digests})
    client = SimpleNamespace(images=SimpleNamespace(get=lambda _: known))
    assert repository_digest(client, image) == found

"""What a device sends, and what is made of it; the reader runs here as it does there."""

import json
import os
import shutil
import sys
import zipfile
from pathlib import Path

import pytest
from jetship import proc
from jetship.elf import read_elf
from jetship.errors import ConfigError, DownloadError
from jetship.probe import api
from jetship.probe.reader import skeleton
from jetship.probe.record import (
    Record,
    read_record,
    reader_source,
    require_fitting,
    require_whole,
)
from jetship.ssh import Login, one_line
from jetship.targets.device import Address


def run_reader(torch: Path | None, out: Path) -> proc.Finished:
    """Run the very line that is sent to devices, with this machine's Python."""
    env = {**os.environ, "PYTHONPATH": str(torch.parent) if torch else ""}
    return proc.run(
        [sys.executable, "-S", "-c", one_line(reader_source(), "reader")], env=env, output=out
    )


@pytest.fixture(scope="module")
def record(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("device")
    (folder / "torch/lib").mkdir(parents=True)
    shutil.copy(os.path.realpath(sys.executable), folder / "torch/lib/libc10.so")
    (folder / "torch/lib/libtext.so").write_text("no library")
    (folder / "torch/version.py").write_text("__version__ = '2.7.1+cpu'\n")
    assert run_reader(folder / "torch", folder / "record").ok
    return folder / "record"


def test_a_record_has_facts_and_the_tables_of_libraries(record):
    require_whole(record)
    found = read_record(record)
    assert found.facts["torch"] == "2.7.1+cpu"
    assert found.facts["python"] == "{}.{}".format(*sys.version_info[:2])
    libraries = {name: elf for _, name, elf in found.libraries()}
    assert {"libc.so.6", "libm.so.6"} <= set(libraries)
    path = next(row["path"] for row in found.files if row["name"] == "libc.so.6")
    whole = read_elf(Path(path))
    assert libraries["libc.so.6"].exports == whole.exports
    assert libraries["libc.so.6"].version_definitions == whole.version_definitions
    with zipfile.ZipFile(record) as archive:
        index = json.loads(archive.read("index.json"))
    assert [why for path, why in index["left_out"] if path.endswith("libtext.so")] == [
        "not a 64-bit little-endian ELF file"
    ]


def test_a_machine_without_torch_says_so(tmp_path):
    done = run_reader(None, tmp_path / "out")
    assert done.status == api.NO_TORCH
    assert "no torch for" in done.stderr
    assert (tmp_path / "out").read_bytes() == b""


def test_a_library_without_section_headers_is_sent_whole(tmp_path):
    data = bytearray(Path(os.path.realpath(sys.executable)).read_bytes()[:5000])
    data[40:48] = bytes(8)
    path = tmp_path / "bare.so"
    path.write_bytes(data)
    assert skeleton(str(path)) == (5000, [(0, 5000)], bytes(data))


@pytest.mark.parametrize("kept", [0, 1000, -1, -30])
def test_a_record_that_was_cut_off_is_none(record, tmp_path, kept):
    bent = tmp_path / "bent"
    bent.write_bytes(record.read_bytes()[:kept])
    with pytest.raises(ConfigError, match="is no record of a device, or is damaged"):
        require_whole(bent)


def test_a_record_of_another_format_is_told(record, tmp_path):
    other = tmp_path / "other"
    with zipfile.ZipFile(other, "w") as archive:
        archive.writestr("index.json", json.dumps({"format": 99, "facts": {}, "files": []}))
    with pytest.raises(ConfigError, match="another version of jetship"):
        read_record(other)


XAVIER = {
    "machine": "aarch64", "python": "3.8", "torch": "2.1.0a0+41361538.nv23.06",
    "l4t": "# R35 (release), REVISION: 4.1, GCID: 33958178, BOARD: t186ref",
}  # fmt: skip


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({}, ""),
        ({"machine": "x86_64"}, "machine x86_64 instead of aarch64"),
        ({"python": "3.10"}, "Python 3.10 instead of 3.8"),
        ({"torch": "2.0.0+nv23.05"}, "torch 2.0.0"),
        ({"torch": ""}, "torch  instead of 2.1.0"),
        ({"l4t": "# R36 (release), REVISION: 4.3, GCID: 1"}, "L4T r36.4.3 instead of"),
    ],
)
def test_a_record_has_to_be_of_the_platform(catalog, change, said):
    record, platform = Record(Path("r"), XAVIER | change, ()), catalog.platform("jetpack-5.1")
    if not said:
        assert record.l4t == "r35.4.1"
        require_fitting(record, platform, "r")
        return
    with pytest.raises(ConfigError, match=r"is of a device that is no jetpack-5\.1") as caught:
        require_fitting(record, platform, "r")
    assert said in caught.value.why


def test_a_release_that_is_not_listed_and_a_container_are_warned_of(catalog, capsys):
    platform = catalog.platform("jetpack-5.1")
    for l4t, said in (("# R35 (release), REVISION: 9.9", "L4T r35.9.9"), ("", "no L4T")):
        require_fitting(Record(Path("r"), XAVIER | {"l4t": l4t}, ()), platform, "r")
        assert said in capsys.readouterr().err


def test_the_command_line_trusts_nobody(tmp_path):
    login = Login(Address("jetson", "10.0.0.2", 2222), tmp_path / "key", tmp_path / "known")
    words = login.argv
    for option in (
        "StrictHostKeyChecking=yes",
        "BatchMode=yes",
        "IdentitiesOnly=yes",
        "IdentityAgent=none",
        "ClearAllForwardings=yes",
        "ControlPath=none",
    ):
        assert option in words
    assert words[-2:] == ["--", "jetson@10.0.0.2"]
    assert words[words.index("-p") + 1] == "2222"
    assert "-a" in words
    assert "IdentitiesOnly=yes" not in Login(Address("jetson", "10.0.0.2")).argv


SAID = [
    ("ssh: connect to host x port 22: Connection refused", "cannot be reached"),
    ("ssh: Could not resolve hostname x: Name or service not known", "cannot be reached"),
    ("jetson@x: Permission denied (publickey).", "refuses the login"),
    ("No ED25519 host key is known for x.\nHost key verification failed.", "is not known"),
    ("@ WARNING: REMOTE HOST IDENTIFICATION HAS CHANGED! @\nHost key verification failed.",
     "has another host key"),
    ("Connection to x closed by remote host.", "ended before all was read"),
]  # fmt: skip


@pytest.mark.parametrize(("said", "what"), SAID)
def test_what_ssh_says_is_explained(said, what):
    done = proc.Finished(("ssh",), 255, "", said)
    error = api._error(Login(Address("jetson", "x")), done)
    assert isinstance(error, DownloadError)
    assert what in error.what
    assert error.fix


def test_an_error_of_the_device_is_not_taken_for_one_of_ssh():
    done = proc.Finished(("ssh",), 1, "", "Traceback: [Errno 13] Permission denied: '/x'")
    error = api._error(Login(Address("jetson", "x")), done)
    assert "ended before all was read" in error.what
    assert "Errno 13" in error.why


def test_files_that_are_not_there_are_told_before_anything_is_asked(store, tmp_path):
    login = Login(Address("jetson", "x"), identity=tmp_path / "none")
    with pytest.raises(ConfigError, match="none is no file"):
        api.probe(login, tmp_path / "out", store)


def test_a_file_that_is_no_record_is_not_to_be_written_over(tmp_path):
    wheel, pipe = tmp_path / "pkg.whl", tmp_path / "pipe"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("a.py", "")
    os.mkfifo(pipe)
    for path, problem in ((wheel, "is no record of a device"), (pipe, "is a named pipe")):
        with pytest.raises(ConfigError, match=problem) as found:
            read_record(path)
        assert "invoke probe" in found.value.fix
        assert path.name not in found.value.fix

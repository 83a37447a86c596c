import json
import zipfile

import pytest
from jetship.errors import CheckError
from jetship.pin import (
    PIN_FILE,
    Pin,
    PinnedCode,
    PinnedCuda,
    PinnedPython,
    PinnedTool,
    PinnedTorch,
)
from jetship.wheelarchive import pin_of
from pydantic import ValidationError

PIN = Pin(
    tool=PinnedTool(version="0.1.0"),
    target="sm62-debian-12",
    platform="debian-12",
    platform_kind="emulation",
    machine="aarch64",
    torch=PinnedTorch(version="2.7.1", cuda=None, cxx11_abi=True, headers="2.7.1+cpu"),
    cuda=PinnedCuda(
        version="11.8", code=(PinnedCode(arch="6.2", sass=True, ptx=False),), nvcc="11.8"
    ),
    python=PinnedPython(interpreter="cp311", abi="cp311"),
    glibc_floor="2.17",
)


def wheel_with(folder, **members):
    path = folder / "ops-1-py3-none-any.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in members.items():
            archive.writestr(f"ops-1.dist-info/{name.replace('_json', '.json')}", data)
    return path


def test_a_record_is_read_back_as_it_was_written():
    assert Pin.from_json(PIN.to_json()) == PIN
    assert PIN.to_json() == PIN.to_json()


def test_a_record_is_json_that_other_tools_can_read():
    data = PIN.to_json()
    assert data.endswith(b"}\n")
    record = json.loads(data)
    assert record["schema_version"] == 1
    assert record["torch"] == {
        "version": "2.7.1",
        "cuda": None,
        "cxx11_abi": True,
        "headers": "2.7.1+cpu",
    }
    assert record["cuda"]["nvcc"] == "11.8"
    assert record["cuda"]["code"] == [{"arch": "6.2", "sass": True, "ptx": False}]


def test_a_record_of_before_nvcc_and_headers_were_recorded_is_read():
    record = json.loads(PIN.to_json())
    del record["cuda"]["nvcc"], record["torch"]["headers"]
    found = Pin.from_json(json.dumps(record).encode())
    assert (found.cuda.nvcc, found.torch.headers) == (None, None)
    assert found.torch.version == PIN.torch.version


def test_a_record_cannot_be_changed():
    with pytest.raises(ValidationError):
        PIN.target = "sm72-debian-12"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"schema_version": 2}, "schema_version: Input should be 1"),
        ({"colour": "red"}, "colour: Extra inputs are not permitted"),
        ({"platform_kind": "toaster"}, "platform_kind: "),
        ({"torch": {"version": "2.7.1", "cuda": None}}, "key 'torch.cxx11_abi' is missing"),
    ],
)
def test_a_record_of_another_shape_is_refused(change, why):
    record = json.loads(PIN.to_json()) | change
    with pytest.raises(CheckError, match="not a pin record") as caught:
        Pin.from_json(json.dumps(record).encode())
    assert caught.value.why.startswith(f"jetship.json: {why}")
    assert caught.value.fix


def test_a_record_that_is_not_json_is_refused():
    with pytest.raises(CheckError) as caught:
        Pin.from_json(b"{")
    assert caught.value.why.startswith("jetship.json: Invalid JSON")


def test_a_wheel_gives_its_record(tmp_path):
    assert pin_of(wheel_with(tmp_path, jetship_json=PIN.to_json())) == PIN


def test_a_wheel_of_another_tool_has_none(tmp_path):
    path = wheel_with(tmp_path, METADATA=b"Name: ops\n")
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr(f"ops/{PIN_FILE}", PIN.to_json())
    assert pin_of(path) is None


def test_a_missing_wheel_is_named(tmp_path):
    with pytest.raises(CheckError, match=r"none\.whl does not exist") as caught:
        pin_of(tmp_path / "none.whl")
    assert caught.value.fix


def test_a_file_that_is_no_archive_is_named(tmp_path):
    path = tmp_path / "text.whl"
    path.write_text("text")
    with pytest.raises(CheckError, match=r"text\.whl is not a zip archive") as caught:
        pin_of(path)
    assert "zip" in caught.value.why


def test_every_damaged_byte_is_met_with_a_record_or_a_check_error(tmp_path):
    path = wheel_with(tmp_path, jetship_json=PIN.to_json())
    whole = path.read_bytes()
    for position in range(len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0xFF
        path.write_bytes(damaged)
        try:
            pin_of(path)
        except CheckError as error:
            assert error.fix  # noqa: PT017

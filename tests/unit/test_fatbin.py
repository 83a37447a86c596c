import contextlib
import struct
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jetship.fatbin import DeviceImage, FatbinError, parse_fatbins
from jetship.targets.model import Arch

sys.path.insert(0, str(Path(__file__).parents[1] / "data/check"))
from make_corpus import PTX, SASS, fatbin


def names(images: tuple[DeviceImage, ...]) -> list[str]:
    return [str(image) for image in images]


def test_images_of_one_container():
    images = parse_fatbins(fatbin((SASS, 62), (PTX, 72)))
    assert names(images) == ["sm_62", "compute_72"]
    assert images[0].arch == Arch(6, 2)
    assert not images[0].compressed


def test_containers_follow_each_other_with_padding():
    body = fatbin((SASS, 62)) + bytes(40) + fatbin((SASS, 110)) + bytes(8)
    assert names(parse_fatbins(body)) == ["sm_62", "sm_110"]


@pytest.mark.parametrize(
    ("flags", "text", "compressed"),
    [
        (0x11, "sm_90", False),
        (0x2011, "sm_90", True),
        (0x8011, "sm_90", True),
        (0x100011, "sm_90a", False),
        (0x208011, "sm_90f", True),
    ],
)
def test_flags(flags, text, compressed):
    (image,) = parse_fatbins(fatbin((SASS, 90), flags=flags))
    assert (str(image), image.compressed) == (text, compressed)


def test_unknown_kinds_prove_nothing():
    (image,) = parse_fatbins(fatbin((8, 62)))
    assert image.kind == "other"


def test_device_code_that_was_never_linked():
    (image,) = parse_fatbins(fatbin((SASS, 62)), linked=False)
    assert str(image) == "sm_62 (not linked)"


def test_no_device_code():
    assert parse_fatbins(b"") == parse_fatbins(bytes(64)) == ()


def test_every_truncation_is_an_error():
    body = fatbin((SASS, 62), (PTX, 62))
    for size in range(1, len(body)):
        with pytest.raises(FatbinError):
            parse_fatbins(body[:size])


@pytest.mark.parametrize(
    "body",
    [
        b"garbage!" * 8,
        struct.pack("<IHHQ", 0xBA55ED50, 1, 0, 0),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 1 << 60),
        struct.pack("<IHHQ", 0xBA55ED50, 1, 16, 64) + bytes(64),
    ],
)
def test_garbage(body):
    with pytest.raises(FatbinError):
        parse_fatbins(body)


@given(st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=8))
@settings(max_examples=500)
def test_damage_ends_in_images_or_an_error(edits):
    body = bytearray(fatbin((SASS, 62), (PTX, 62)) + bytes(8) + fatbin((SASS, 72)))
    for place, value in edits:
        body[place % len(body)] = value
    with contextlib.suppress(FatbinError):
        parse_fatbins(bytes(body))

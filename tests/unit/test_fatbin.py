import contextlib
import struct
import sys
from pathlib import Path

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from jetship import fatbin as fatbins
from jetship._devicepayload import MAX_UNPACKED_BYTES
from jetship._lz4 import unpack
from jetship.elf import Section
from jetship.fatbin import DeviceImage, FatbinError, containers, images_in, parse_fatbins
from jetship.targets.model import Arch

sys.path.insert(0, str(Path(__file__).parents[1] / "data/check"))
from make_corpus import PTX, SASS, container, cubin, fatbin, image, ptx


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
    ("flags", "text"), [(0x11, "sm_90"), (0x100011, "sm_90a"), (0x200011, "sm_90f")]
)
def test_flags(flags, text):
    (found,) = parse_fatbins(fatbin((SASS, 90), flags=flags))
    assert (str(found), found.compressed) == (text, False)


def test_scrambled_code_says_nothing():
    (found,) = parse_fatbins(container(image(SASS, 90, flags=0x18011, packed=(b"?" * 40, 100))))
    assert (found.cuda, found.kernels) == (None, None)


def literals(data: bytes) -> bytes:
    """Return an LZ4 block without any match."""
    if len(data) < 15:
        return bytes([len(data) << 4]) + data
    more, last = divmod(len(data) - 15, 255)
    return b"\xf0" + b"\xff" * more + bytes([last]) + data


PACKINGS = {
    "": (0x11, None),
    "lz4": (0x2011, literals),
    "zstd": (0x8011, zstandard.ZstdCompressor().compress),
    "zstd of unknown size": (
        0x8011,
        zstandard.ZstdCompressor(write_content_size=False).compress,
    ),
}


def packed(kind: int, whole: bytes, packing: str, **more: object) -> bytes:
    flags, pack = PACKINGS[packing]
    return image(kind, 62, flags=flags, packed=(pack(whole) if pack else whole, len(whole)), **more)


@pytest.mark.parametrize("packing", PACKINGS)
class TestWhatAnImageSays:
    def test_a_cubin_of_cuda_12_and_older(self, packing):
        whole = cubin("_Z1av", "b", release=124)
        (found,) = parse_fatbins(container(packed(SASS, whole, packing)))
        assert (found.cuda, found.kernels, found.ptx_isa) == ("12.4", ("_Z1av", "b"), None)
        assert (found.compressed, found.unpacked_size >= len(whole)) == (bool(packing), True)

    @pytest.mark.parametrize("before", [0, 300_000])
    def test_a_cubin_of_cuda_13(self, packing, before):
        note = b"ptxas\0Cuda compilation tools, release 13.0, V13.0.88\0"
        head = bytearray(cubin("k", release=1))
        head[8] = 8
        whole = bytes(head) + bytes(before) + note
        (found,) = parse_fatbins(container(packed(SASS, whole, packing)))
        assert (found.cuda, found.kernels) == ("13.0", ("k",))

    def test_a_cubin_of_a_kind_yet_unknown(self, packing):
        whole = bytearray(cubin("k"))
        whole[8] = 9
        (found,) = parse_fatbins(container(packed(SASS, bytes(whole), packing)))
        assert found.cuda is None

    def test_ptx(self, packing):
        whole = ptx("_Z1av", "b$1", isa="8.4")
        (found,) = parse_fatbins(container(packed(PTX, whole, packing, isa="8.4")))
        assert (found.ptx_isa, found.kernels, found.cuda) == ("8.4", ("_Z1av", "b$1"), None)

    @pytest.mark.parametrize(
        ("text", "isa"),
        [
            (b"// of a compiler\n//\n.version 8.7\n.target sm_62\n", "8.7"),
            (b".target sm_62\n", None),
            (b".version 0.0\n", None),
        ],
    )
    def test_ptx_is_of_the_release_that_its_text_names(self, packing, text, isa):
        (found,) = parse_fatbins(container(packed(PTX, text, packing, isa="7.8")))
        assert found.ptx_isa == isa

    def test_no_cubin(self, packing):
        for whole in (b"", b"\x7fELF", ptx("k"), b"\x7fELF\2\1".ljust(64, b"\0")):
            with pytest.raises(FatbinError, match=r"no cubin|for no GPU"):
                parse_fatbins(container(packed(SASS, whole, packing)))


@pytest.mark.parametrize("packing", ["lz4", "zstd"])
def test_a_packed_image_of_another_size_than_it_says(packing):
    flags, pack = PACKINGS[packing]
    for size in (64, 5000):
        entry = image(PTX, 62, flags=flags, packed=(pack(bytes(100)), size))
        with contextlib.suppress(FatbinError):
            (found,) = parse_fatbins(container(entry))
            assert found.kernels == ()  # LZ4 that has more than is asked for


@pytest.mark.parametrize("packing", ["lz4", "zstd"])
def test_a_huge_image_is_not_unpacked(packing):
    flags, pack = PACKINGS[packing]
    entry = image(PTX, 62, flags=flags, packed=(pack(bytes(100)), MAX_UNPACKED_BYTES + 1))
    sections = (Section(".nv_fatbin", 0, len(container(entry))),)
    (found,) = images_in(container(entry), sections, budget=None)
    assert found.kernels is None


def test_a_frame_that_is_larger_than_it_says_is_left_early():
    bomb = zstandard.ZstdCompressor(level=19).compress(bytes(50 << 20))
    with pytest.raises(FatbinError, match="too long"):
        parse_fatbins(container(image(PTX, 62, flags=0x8011, packed=(bomb, 1000))))


class TestBudget:
    """Names of packed images cost time; those that a check has to name come first."""

    BODY = (
        container(packed(SASS, cubin("usual"), "lz4"), image(SASS, 72))
        + container(packed(SASS, cubin("odd"), "lz4"))
        + container(image(SASS, 72), packed(SASS, cubin("usual"), "lz4"))
    )

    def kernels(self, budget):
        found = images_in(self.BODY, (Section(".nv_fatbin", 0, len(self.BODY)),), budget=budget)
        return [one.kernels for one in found]

    def test_no_limit(self):
        names = [("usual",), ("_Z6kernelPf",), ("odd",), ("_Z6kernelPf",), ("usual",)]
        assert self.kernels(None) == self.kernels(1 << 20) == names

    def test_enough_for_one(self):
        names = [None, ("_Z6kernelPf",), ("odd",), ("_Z6kernelPf",), None]
        assert self.kernels(len(cubin("usual"))) == names

    def test_none_left(self):
        assert self.kernels(0) == [None, ("_Z6kernelPf",), None, ("_Z6kernelPf",), None]


def test_images_know_their_container():
    found = parse_fatbins(fatbin((SASS, 62), (PTX, 62)) + bytes(40) + fatbin((SASS, 72)))
    assert [names(group) for group in containers(found)] == [["sm_62", "compute_62"], ["sm_72"]]


def test_containers_of_two_sections_are_counted_on():
    one = fatbin((SASS, 62))
    sections = (Section(fatbins.UNLINKED_SECTION, 0, len(one)),
                Section(fatbins.FINAL_SECTION, len(one), len(one)))  # fmt: skip
    found = images_in(one + one, sections)
    assert [(image.container, image.linked) for image in found] == [(0, False), (1, True)]


def test_unknown_kinds_prove_nothing():
    (found,) = parse_fatbins(fatbin((8, 62)))
    assert (found.kind, found.kernels, found.cuda) == ("other", None, None)


def test_device_code_that_was_never_linked():
    (found,) = parse_fatbins(fatbin((SASS, 62)), linked=False)
    assert str(found) == "sm_62 (not linked)"


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


DAMAGED = (
    container(
        image(SASS, 62),
        image(PTX, 62),
        packed(SASS, cubin("a", "b"), "lz4"),
        packed(PTX, ptx("a", "b"), "lz4"),
    )
    + bytes(8)
    + container(packed(SASS, cubin("a", "b"), "zstd"), packed(PTX, ptx("a"), "zstd"))
)


@given(st.lists(st.tuples(st.integers(0, len(DAMAGED) - 1), st.integers(0, 255)), max_size=8))
@settings(max_examples=1000)
def test_damage_ends_in_images_or_an_error(edits):
    body = bytearray(DAMAGED)
    for place, value in edits:
        body[place] = value
    with contextlib.suppress(FatbinError):
        parse_fatbins(bytes(body))


@given(st.integers(1, len(DAMAGED) - 1))
def test_a_truncation_is_an_error_unless_whole_containers_are_left(size):
    whole = len(container(image(SASS, 62), image(PTX, 62), packed(SASS, cubin("a", "b"), "lz4"),
                          packed(PTX, ptx("a", "b"), "lz4")))  # fmt: skip
    if whole <= size <= whole + 8:
        assert len(parse_fatbins(DAMAGED[:size])) == 4
    else:
        with pytest.raises(FatbinError):
            parse_fatbins(DAMAGED[:size])


@given(st.binary(max_size=200), st.integers(0, 1000))
def test_any_bytes_unpack_or_are_refused(data, limit):
    with contextlib.suppress(ValueError):
        assert len(unpack(data, limit)) <= limit

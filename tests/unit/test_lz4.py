"""Unpacking LZ4 blocks, against an unpacker that goes byte by byte over the same sequences."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jetship._lz4 import LZ4Error, unpack


def _length(count: int) -> tuple[int, bytes]:
    """Return the half of a token, and the bytes that continue it."""
    if count < 15:
        return count, b""
    more, last = divmod(count - 15, 255)
    return 15, b"\xff" * more + bytes([last])


def block_of(sequences: list[tuple[bytes, int, int]], last: bytes) -> tuple[bytes, bytes]:
    """Return a block of (literals, distance, length of the match), and what it unpacks to."""
    block, plain = b"", bytearray()
    for literals, distance, count in sequences:
        plain += literals
        back = min(distance, len(plain))
        for _ in range(count):
            plain.append(plain[-back])
        high, more_literals = _length(len(literals))
        low, more_match = _length(count - 4)
        block += bytes([high << 4 | low]) + more_literals + literals
        block += back.to_bytes(2, "little") + more_match
    high, more = _length(len(last))
    return block + bytes([high << 4]) + more + last, bytes(plain) + last


SEQUENCE = st.tuples(st.binary(min_size=1, max_size=400), st.integers(1, 900), st.integers(4, 700))


@given(st.lists(SEQUENCE, max_size=8), st.binary(max_size=40))
@settings(max_examples=300)
def test_any_sequences(sequences, last):
    block, plain = block_of(sequences, last)
    assert unpack(block, len(plain)) == unpack(block, len(plain) + 99) == plain
    assert unpack(b"?" + block + b"?", len(plain), 1, len(block) + 1) == plain
    for limit in (0, 1, 64, len(plain) // 2):
        assert unpack(block, limit) == plain[:limit]


def test_the_head_needs_no_more_than_its_bytes():
    block, plain = block_of([(b"abcd", 4, 600), (b"x" * 300, 1, 5)], b"end")
    assert unpack(block[:20], 64) == plain[:64]


@pytest.mark.parametrize(
    ("block", "words"),
    [
        (b"\x40abc", "within its literals"),
        (b"\xf0\xff", "within a sequence"),
        (b"\x10a\x01", "within a sequence"),
        (b"\x10a\x00\x00", "from before its beginning"),
        (b"\x10a\x02\x00", "from before its beginning"),
    ],
)
def test_damage(block, words):
    with pytest.raises(LZ4Error, match=words):
        unpack(block, 100)


def test_a_length_of_gigabytes_makes_no_more_than_was_asked_for():
    assert len(unpack(b"\x1fa\x01\x00" + b"\xff" * 100_000 + b"\x00", 500)) == 500

"""Unpacking LZ4 blocks, as nvcc's fatbinary packs device code up to CUDA 12.

A block is a chain of sequences: a token whose halves are two lengths, literal bytes, and a
distance back to bytes that come again (lz4_Block_format.md of the LZ4 project). Written here
because only the head of most images is asked for, which no Python binding of the library gives.
"""

_MORE = 15
_SHORTEST_MATCH = 4


class LZ4Error(ValueError):
    """The bytes are not an LZ4 block."""


def unpack(block: bytes, limit: int) -> bytes:
    """Return the first `limit` unpacked bytes of a block, or all where it has fewer.

    Raises:
        LZ4Error: the block is damaged, as far as it was read.
    """
    out = bytearray()
    place, end = 0, len(block)
    try:
        while place < end and len(out) < limit:
            token = block[place]
            count, place = _length(block, token >> 4, place + 1)
            if place + count > end:
                raise LZ4Error("it ends within its literals")
            out += block[place : place + count]
            place += count
            if place == end:  # the last sequence has no match
                break
            back = block[place] | block[place + 1] << 8
            count, place = _length(block, token & 15, place + 2)
            _repeat(out, back, min(count + _SHORTEST_MATCH, limit - len(out)))
    except IndexError as error:
        raise LZ4Error("it ends within a sequence") from error
    return bytes(out[:limit])


def _length(block: bytes, count: int, place: int) -> tuple[int, int]:
    """Return a length that begins with half a token, and where reading goes on."""
    if count < _MORE:
        return count, place
    while (more := block[place]) == 255:
        count, place = count + 255, place + 1
    return count + more, place + 1


def _repeat(out: bytearray, back: int, count: int) -> None:
    """Append `count` bytes from `back` before the end; they may be among those appended."""
    start = len(out) - back
    if back == 0 or start < 0:
        raise LZ4Error("it repeats bytes from before its beginning")
    if back >= count:
        out += out[start : start + count]
    elif count > 0:
        again = out[start:]
        out += (again * (count // back + 1))[:count]

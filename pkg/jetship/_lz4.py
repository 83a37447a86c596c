"""Unpacking LZ4 blocks, as nvcc's fatbinary packs device code up to CUDA 12.

A block is a chain of sequences: a token whose halves are two lengths, literal bytes, and a
distance back to bytes that come again (lz4_Block_format.md of the LZ4 project). Written here
because only the head of most images is asked for, which no Python binding of the library gives.
"""

from jetship._elfbytes import Data

_MORE = 15
_SHORTEST_MATCH = 4


class LZ4Error(ValueError):
    """The bytes are not an LZ4 block."""


def unpack(data: Data, limit: int, start: int = 0, end: int | None = None) -> bytes:
    """Return the first `limit` unpacked bytes of a block, or all where it has fewer.

    Args:
        data: what the block lies in; no more of it is read than is needed.
        limit: how many bytes are asked for.
        start: where the block begins.
        end: where it ends (default: with the data).

    Raises:
        LZ4Error: the block is damaged, as far as it was read.
    """
    out = bytearray()
    place = start
    end = len(data) if end is None else end
    try:
        while place < end and len(out) < limit:
            token = data[place]
            count, place = _length(data, token >> 4, place + 1)
            if place + count > end:
                raise LZ4Error("it ends within its literals")
            out += data[place : place + min(count, limit - len(out))]
            place += count
            if place == end or len(out) == limit:  # the last sequence has no match
                break
            back = data[place] | data[place + 1] << 8
            count, place = _length(data, token & 15, place + 2)
            _repeat(out, back, min(count + _SHORTEST_MATCH, limit - len(out)))
    except IndexError as error:
        raise LZ4Error("it ends within a sequence") from error
    return bytes(out)


def _length(data: Data, count: int, place: int) -> tuple[int, int]:
    """Return a length that begins with half a token, and where reading goes on."""
    if count < _MORE:
        return count, place
    while (more := data[place]) == 255:
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

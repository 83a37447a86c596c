"""Which instructions of aarch64 a library's code has beyond the first release of the architecture.

Every instruction of aarch64 is a word of 4 bytes, so extensions are told by fixed bits. Words are
tested many at a time: a block of code is one large integer with a lane of 32 bits for each word,
and (word ^ value) & mask is added to 0x7fffffff, which sets the lane's top bit unless it was zero.
That is some 3 GB/s a test, where a loop over words is 200 times slower.

Encodings: Arm Architecture Reference Manual (DDI 0487), chapter C4; the tests compare them with
what GNU as writes.
"""

import functools
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from jetship.elf import Data, ElfFile, Section

_BLOCK = 1 << 14
# A library may be larger than the memory that a check may take: what was looked at is let go of.
_KEPT = 1 << 24
# So many instructions of one feature are enough to know, and no more are counted.
ENOUGH = 16
# Data between instructions shows in its neighbours: words that are no instruction at all.
_NEIGHBOURS = 8
_FEWEST_NEIGHBOURS = 2
_NO_INSTRUCTION = (0b0000, 0b0001, 0b0011)  # bits 28 to 25
_SVE = 0b0010
# One word in 16 of any data looks like SVE, whose code always has several side by side.
_FEWEST_SVE = 3
# How far from code its constants may lie; LDR reaches four times as far, no function does.
_POOL_REACH = 1 << 18
_LDR_LITERAL = (0x18000000, 0x3B000000)


@dataclass(frozen=True)
class _Encoding:
    """One group of instructions: a word is of it if (word & mask) == value.

    Bit 31 takes part only when the word is looked at by itself.
    """

    feature: str
    value: int
    mask: int


# What the data says must be the names of toolchains/cores.yaml.
_ENCODINGS = (
    _Encoding("sve", 0x04000000, 0x1E000000),
    _Encoding("sme", 0xD503417F, 0xFFFFF9FF),  # SMSTART, without which no other is of use
    _Encoding("lse", 0x08A07C00, 0x3FA07C00),  # CAS
    _Encoding("lse", 0x08207C00, 0xBFA07C00),  # CASP
    _Encoding("lse", 0x38200000, 0x3F208C00),  # LDADD and its like
    _Encoding("lse", 0x38208000, 0x3F20FC00),  # SWP
    _Encoding("rcpc", 0x38BFC000, 0x3FFFFC00),  # LDAPR
    _Encoding("rcpc2", 0x19000000, 0x3F200C00),  # LDAPUR, STLUR
    _Encoding("rdm", 0x2E008400, 0xBF20F400),
    _Encoding("rdm", 0x7E008400, 0xFF20F400),
    _Encoding("dotprod", 0x0E809400, 0x9FE0FC00),
    _Encoding("dotprod", 0x0F80E000, 0x9FC0F400),
    _Encoding("fcma", 0x2E00C400, 0xBF20E400),
    _Encoding("fcma", 0x2E00E400, 0xBF20EC00),
    _Encoding("fp16", 0x0E400400, 0x9F60C400),  # vectors
    _Encoding("fp16", 0x1EE00800, 0xFFE00C00),  # two sources
    _Encoding("fp16", 0x1FC00000, 0xFFC00000),  # three sources
    _Encoding("bf16", 0x2E40FC00, 0xBFE0FC00),  # BFDOT
    _Encoding("bf16", 0x6E40EC00, 0xFFE0FC00),  # BFMMLA
    _Encoding("bf16", 0x2EC0FC00, 0xBFE0FC00),  # BFMLAL
    _Encoding("bf16", 0x1E634000, 0xFFFFFC00),  # BFCVT
    _Encoding("bf16", 0x0EA16800, 0xBFFFFC00),  # BFCVTN
    _Encoding("i8mm", 0x4E80A400, 0xDFE0FC00),  # SMMLA, UMMLA
    _Encoding("i8mm", 0x4E80AC00, 0xFFE0FC00),  # USMMLA
    _Encoding("i8mm", 0x0E809C00, 0xBFE0FC00),  # USDOT
    _Encoding("sha3", 0xCE000000, 0xFFC08000),  # EOR3, BCAX
    _Encoding("paca", 0xD65F0BFF, 0xFFFFFBFF),  # RETAA, RETAB
    _Encoding("", 0xD5380000, 0xFFFFF000),  # MRS from an ID register: asks what the core can
)
FEATURES = tuple(dict.fromkeys(one.feature for one in _ENCODINGS if one.feature))
_LANE_TOP, _LANE_REST = 0x80000000, 0x7FFFFFFF
_RET = 0xD65F03C0
# Zero is padding, and ends the code before it.
_PADDING = 0
_IRELATIVE = (1032).to_bytes(4, "little")
_IFUNC = 10


def _sieves() -> tuple[tuple[int, int, tuple[_Encoding, ...]], ...]:
    """Return (value, mask, what it may be): few tests, each for several encodings.

    The vector instructions of most extensions share bits that no older one has together.
    """
    extra = [one for one in _ENCODINGS if one.value & one.mask & 0x1F208400 == 0x0E008400]
    shared = (0x0E008400, 0x1F208400, tuple(extra))
    alone = ((one.value & _LANE_REST, one.mask & _LANE_REST, (one,)) for one in _ENCODINGS)
    return (shared, *(row for row in alone if row[2][0] not in extra))


_SIEVES = _sieves()


@dataclass(frozen=True)
class Instructions:
    """The extensions that a library's code has, with how many instructions were counted of each.

    `known` is False where code cannot be told from data (no section table). `dispatch` says what
    in the library may choose code while it runs; then instructions alone prove nothing. Left out
    are the atomics that GCC and Rust put behind a question of their own.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    dispatch: tuple[str, ...] = ()
    known: bool = True


def instructions_of(data: Data, elf: ElfFile) -> Instructions:
    """Return what extensions the code of an aarch64 library has."""
    counts: dict[str, int] = {}
    for section in elf.sections:
        if section.executable:
            _count(data, section, counts)
    reads_registers = counts.pop("", 0) > 0
    dispatch = [*_dispatch(data, elf)]
    _let_go(data)
    dispatch += ["it reads the cores' ID registers"] if reads_registers else []
    return Instructions(counts, tuple(dispatch), known=bool(elf.sections))


def _count(data: Data, section: Section, counts: dict[str, int]) -> None:
    end = section.offset + section.size // 4 * 4
    for start in range(section.offset, end, _BLOCK):
        if (start - section.offset) % _KEPT == 0:
            _let_go(data)
        block = data[start : min(start + _BLOCK, end)]
        for place, feature in _hits(block, counts):
            if counts.get(feature, 0) >= ENOUGH:
                continue
            around = _Around(data, section.offset, end, start + place)
            if around.is_code(feature) and not (feature == "lse" and around.is_helper()):
                counts[feature] = counts.get(feature, 0) + 1


def _let_go(data: Data) -> None:
    """Give a mapped file's pages back; they are read again when they are asked for."""
    if isinstance(data, mmap.mmap):
        data.madvise(mmap.MADV_DONTNEED)


def _hits(block: bytes, counts: Mapping[str, int]) -> Iterator[tuple[int, str]]:
    """Yield place and feature of each word that is of an extension."""
    words = int.from_bytes(block, "little")
    for value, mask, encodings in _SIEVES:
        if all(counts.get(one.feature, 0) >= ENOUGH for one in encodings):
            continue
        for place, word in _marked(block, _matches(words, len(block) // 4, value, mask)):
            for encoding in encodings:
                if word & encoding.mask == encoding.value:
                    yield place, encoding.feature
                    break


@functools.lru_cache(maxsize=128)
def _lanes(count: int, value: int) -> int:
    return int.from_bytes(value.to_bytes(4, "little") * count, "little")


def _matches(words: int, count: int, value: int, mask: int) -> int:
    """Return the words' lanes with the top bit set in each that has these bits; 31 is ignored."""
    tops = _lanes(count, _LANE_TOP)
    others = (words ^ _lanes(count, value)) & _lanes(count, mask)
    return ((others + _lanes(count, _LANE_REST)) & tops) ^ tops


def _marked(block: bytes, lanes: int) -> Iterator[tuple[int, int]]:
    """Yield place and value of the words whose lanes are marked."""
    if not lanes:
        return
    marks = lanes.to_bytes(len(block), "little")[3::4]
    place = marks.find(b"\x80")
    while place >= 0:
        yield 4 * place, int.from_bytes(block[4 * place : 4 * place + 4], "little")
        place = marks.find(b"\x80", place + 1)


@dataclass(frozen=True)
class _Around:
    """The words around one of the code from `start` to `end`."""

    data: Data
    start: int
    end: int
    place: int

    def word(self, steps: int) -> int:
        """Return the word so many words further on; padding outside of the code."""
        at = self.place + 4 * steps
        if not self.start <= at < self.end:
            return _PADDING
        return int.from_bytes(self.data[at : at + 4], "little")

    def is_code(self, feature: str) -> bool:
        """Return whether the word is an instruction, not data between functions.

        Old compilers put constants there, and people who write assembly put tables. Of such a
        table one word in five is no instruction at all.
        """
        seen, like_sve = 0, 1
        for direction in (-1, 1):
            for steps in range(1, _NEIGHBOURS + 1):
                word = self.word(direction * steps)
                if word == _PADDING:
                    break
                kind = word >> 25 & 15
                if kind in _NO_INSTRUCTION:
                    return False
                seen += 1
                like_sve += kind == _SVE
        if seen < _FEWEST_NEIGHBOURS or (feature == "sve" and like_sve < _FEWEST_SVE):
            return False
        return not self._is_literal()

    def _is_literal(self) -> bool:
        """Return whether an LDR instruction near by loads the word as a constant."""
        first = max(self.start, self.place - _POOL_REACH)
        last = min(self.end, self.place + _POOL_REACH)
        for start in range(first, last, _BLOCK):
            block = self.data[start : min(start + _BLOCK, last)]
            words = int.from_bytes(block, "little")
            found = _matches(words, len(block) // 4, *_LDR_LITERAL)
            for place, word in _marked(block, found):
                steps = (word >> 5 & 0x7FFFF ^ 0x40000) - 0x40000  # signed, in words
                target = start + place + 4 * steps
                if target <= self.place < target + 16:  # the most that one LDR loads
                    return True
        return False

    def is_helper(self) -> bool:
        """Return whether this is one of the compilers' helpers for atomics.

        They ask __aarch64_have_lse_atomics first, by CBZ w16, and return right after it:
        -moutline-atomics, the default since GCC 10.
        """
        return self.word(-1) & 0xFF00001F == 0x34000010 and self.word(1) == _RET


def _dispatch(data: Data, elf: ElfFile) -> Iterator[str]:
    # GCC's and Rust's atomics ask by __getauxval, with two underscores, for themselves alone.
    if any(symbol.name == "getauxval" for symbol in elf.undefined):
        yield "it calls getauxval"
    else:
        for section in elf.sections:
            texts = section.name.startswith((".rodata", ".data"))
            if texts and _holds(data, section, b"getauxval\0"):
                yield "it looks for getauxval by name"
                break
    if any(_holds(data, one, b"/proc/cpuinfo\0") for one in elf.sections if one.name == ".rodata"):
        yield "it reads /proc/cpuinfo"
    if any(_has_ifunc(data, section) for section in elf.sections):
        yield "it has indirect functions (IFUNC)"


def _holds(data: Data, section: Section, text: bytes) -> bool:
    return data.find(text, section.offset, section.offset + section.size) >= 0


def _has_ifunc(data: Data, section: Section) -> bool:
    if section.name not in (".rela.plt", ".rela.dyn", ".rela.iplt", ".dynsym"):
        return False
    body = data[section.offset : section.offset + section.size]
    if section.name != ".dynsym":
        # 24 bytes a relocation; the type is in the fields 8 to 11.
        place = body.find(_IRELATIVE)
        while place >= 0:
            if place % 24 == 8:
                return True
            place = body.find(_IRELATIVE, place + 1)
        return False
    return any(info & 15 == _IFUNC for info in body[4::24])

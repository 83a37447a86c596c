import contextlib
import dataclasses
import struct
import sys
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.gnuversions import GNUVerDefSection, GNUVerNeedSection
from hypothesis import given, settings
from hypothesis import strategies as st
from jetship import proc
from jetship.elf import ElfError, parse_elf, read_elf, version_key

SCRIPT = Path(__file__).parents[1] / "data/check/make_corpus.py"
# Whatever this machine has: versions, copy relocations, GNU_UNIQUE and IFUNC symbols.
SYSTEM = [
    path
    for folder in ("/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu")
    for name in ("libc.so.6", "libstdc++.so.6", "libm.so.6", "libgcc_s.so.1")
    if (path := Path(folder) / name).exists()
][:4]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("corpus")
    done = proc.run([sys.executable, SCRIPT, folder])
    assert done.ok, done.stderr
    return folder


class Sample(bytes):
    """Bytes that hypothesis does not print in full."""

    def __repr__(self) -> str:
        return f"<{len(self)} bytes>"


@pytest.fixture(scope="module")
def good(corpus) -> bytes:
    return Sample((corpus / "members/good.so").read_bytes())


def test_facts_of_a_small_library(good):
    elf = parse_elf(good)
    assert (elf.machine, elf.bits, elf.little_endian, elf.type) == ("aarch64", 64, True, "shared")
    assert elf.needed == ("libc.so.6", "libc10.so")
    assert elf.soname is None
    assert elf.version_needs == {"libc.so.6": ("GLIBC_2.17",)}
    undefined = {symbol.name: symbol for symbol in elf.undefined}
    assert set(undefined) == {"puts", "PyModule_Create2", "_ZN3c106answerEv", "perhaps"}
    assert (undefined["puts"].version, undefined["puts"].library) == ("GLIBC_2.17", "libc.so.6")
    assert undefined["_ZN3c106answerEv"].version is None
    assert [name for name, symbol in undefined.items() if symbol.weak] == ["perhaps"]
    assert elf.exports == {"use": ("",)}


def test_version_definitions(corpus):
    elf = read_elf(corpus / "target/libc.so.6")
    assert elf.soname == "libc.so.6"
    assert elf.version_definitions == ("GLIBC_2.17", "GLIBC_2.36")
    assert elf.exports["puts"] == ("GLIBC_2.17", "")


def test_runpath(corpus):
    elf = read_elf(corpus / "members/own.so")
    assert "$ORIGIN/../pkg.libs" in (elf.runpath, elf.rpath)


def test_floor_is_compared_by_number(good):
    needs = {"libc.so.6": ("GLIBC_2.4", "GLIBC_2.17"), "libm.so.6": ("GLIBC_2.9", "GLIBC_PRIVATE")}
    elf = dataclasses.replace(parse_elf(good), version_needs=needs)
    assert elf.floor("GLIBC") == "2.17"
    assert elf.floor("GLIBCXX") is None
    assert version_key("2.9") < version_key("2.17")


@pytest.mark.parametrize("path", SYSTEM, ids=lambda path: path.name)
def test_the_same_facts_as_pyelftools(path):
    elf = read_elf(path)
    with path.open("rb") as stream:
        oracle = ELFFile(stream)
        dynamic = oracle.get_section_by_name(".dynamic")
        assert list(elf.needed) == [t.needed for t in dynamic.iter_tags("DT_NEEDED")]
        symbols = list(oracle.get_section_by_name(".dynsym").iter_symbols())[1:]
        undefined = {s.name for s in symbols if s["st_shndx"] == "SHN_UNDEF"}
        defined = {
            s.name
            for s in symbols
            if s["st_shndx"] != "SHN_UNDEF"
            and s["st_info"]["bind"] != "STB_LOCAL"
            and s["st_other"]["visibility"] in ("STV_DEFAULT", "STV_PROTECTED")
        }
        assert {symbol.name for symbol in elf.undefined} == undefined
        assert set(elf.exports) == defined
        for section in oracle.iter_sections():
            if isinstance(section, GNUVerNeedSection):
                needs = {
                    need.name: tuple(aux.name for aux in auxes)
                    for need, auxes in section.iter_versions()
                }
                assert elf.version_needs == needs
            if isinstance(section, GNUVerDefSection):
                names = [next(aux).name for _, aux in section.iter_versions()]
                assert list(elf.version_definitions) == names[1:]


def test_without_a_section_table_the_dynamic_facts_stay(good):
    whole = parse_elf(good)
    stripped = bytearray(good)
    stripped[40:48] = bytes(8)  # where the section table is
    bare = parse_elf(bytes(stripped))
    assert bare.sections == ()
    assert set(bare.undefined) >= {s for s in whole.undefined if not s.weak}
    assert bare.exports == whole.exports


def test_undefined_symbols_of_a_library_that_exports_nothing(tmp_path):
    # Its GNU hash table is empty, and without sections only the relocations tell of `f`.
    source = tmp_path / "a.c"
    source.write_text(
        'int f(void);\n__attribute__((visibility("hidden"))) int g(void) { return f(); }\n'
    )
    library = tmp_path / "a.so"
    assert proc.run(["gcc", "-shared", "-fPIC", "-nostdlib", "-o", library, source]).ok
    data = bytearray(library.read_bytes())
    data[40:48] = bytes(8)
    assert [symbol.name for symbol in parse_elf(bytes(data)).undefined] == ["f"]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"", "does not begin"),
        (b"PK\x03\x04", "does not begin"),
        (b"\x7fELF", "cut off"),
        (b"\x7fELF\x03\x01", "class 3"),
        (b"\x7fELF\x02\x01\x01", "cut off"),
    ],
)
def test_not_elf(data, message):
    with pytest.raises(ElfError, match=message):
        parse_elf(data)


def test_empty_file(tmp_path):
    (tmp_path / "a.so").touch()
    with pytest.raises(ElfError, match="empty"):
        read_elf(tmp_path / "a.so")


def test_foreign_machines_are_named():
    header = b"\x7fELF\x01\x01\x01" + bytes(9) + struct.pack("<HH", 3, 40) + bytes(32)
    elf = parse_elf(header)
    assert (elf.machine, elf.bits, elf.dynamic) == ("arm", 32, False)
    unheard = b"\x7fELF\x01\x02\x01" + bytes(9) + struct.pack(">HH", 9, 60000) + bytes(32)
    assert (parse_elf(unheard).machine, parse_elf(unheard).type) == ("machine 60000", "type 9")


@given(st.data())
@settings(max_examples=400)
def test_cut_off_anywhere_is_an_elf_error(good, data):
    size = data.draw(st.integers(0, len(good) - 1))
    with pytest.raises(ElfError):
        parse_elf(good[:size])


@given(st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(0, 255)), max_size=12))
@settings(max_examples=1500)
def test_damaged_bytes_give_facts_or_an_elf_error(good, edits):
    damaged = bytearray(good)
    # Most of a library is code; what is read lies in its first 1,200 bytes, and in the
    # dynamic segment and the section table at its end.
    for where, value in edits:
        damaged[int(where * 1200)] = value
        damaged[-1 - int(where * 4000)] = value
    with contextlib.suppress(ElfError):
        parse_elf(bytes(damaged))


def test_claims_that_would_take_hours_are_refused(good):
    elf = bytearray(good)
    tag = struct.pack("<QQ", 0x6FFFFFFF, 1)  # one needed library
    elf[elf.index(tag) + 8 : elf.index(tag) + 16] = struct.pack("<Q", 1 << 40)
    with pytest.raises(ElfError, match="version records"):
        parse_elf(bytes(elf))


def test_symbols_that_no_relocation_names_are_marked(corpus):
    elf = read_elf(corpus / "members/unused.so")
    assert [symbol.name for symbol in elf.undefined if not symbol.referenced] == ["nobody"]

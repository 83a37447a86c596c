"""Tables of many libraries in one file: what is packed is what is found."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jetship.check import mangled
from jetship.check.tablefile import DamagedTableError, SymbolTable, TabledExports, pack
from jetship.elf import ElfFile

NAMES = st.text("_ZN3c104cuda5torchKEvab@.", min_size=1, max_size=30)
VERSIONS = st.sampled_from([("",), ("V_1", ""), ("V_1",), ("V_1", "V_2", "")])
EXPORTS = st.dictionaries(NAMES, VERSIONS, max_size=300)


def library(exports, **more) -> ElfFile:
    return ElfFile(machine="aarch64", bits=64, little_endian=True, type="shared", dynamic=True,
                   exports=exports, **more)  # fmt: skip


@given(one=EXPORTS, other=EXPORTS)
def test_everything_that_is_packed_is_found_again(one, other):
    table = SymbolTable.load(
        pack([("lib", "a.so", library(one)), ("", "b.so", library(other))], {})
    )
    first, second = (TabledExports(table, index) for index in (0, 1))
    assert dict(first.items()) == one
    assert dict(second.items()) == other
    assert (len(first), len(second)) == (len(one), len(other))
    for name in {*one, *other}:
        assert first.get(name) == one.get(name)
        assert (name in second) == (name in other)
    assert "not a name" not in first
    assert table.find("\0") == table.find("~") == {}


CXX = [
    "_ZN3c104cuda9SetDeviceEa", "_ZN3c104cuda9SetDeviceEab", "_ZNK3c104cuda9SetDeviceEv",
    "_ZTVN3c104cuda9SetDeviceE", "_Z3c104cuda9SetDevicev", "_ZN3c104cuda10SetDevicesEv",
]  # fmt: skip


@pytest.mark.parametrize("others", [0, 1, 63, 64, 65, 500])
def test_all_names_of_one_spelling_are_found_wherever_the_blocks_end(others):
    filler = [f"_ZN3c104cuda9SetDevice{number:03}" for number in range(others)]
    more = [f"_ZNK3c10{number}" for number in range(others)]
    exports = dict.fromkeys([*filler, *more, *CXX], ("",))
    table = SymbolTable.load(pack([("", "a.so", library(exports))], {}))
    (qualified,) = {mangled.qualified_name(name) for name in CXX[:4]}
    wanted = {name for name in exports if mangled.qualified_name(name) == qualified}
    assert set(table.spelled(qualified)) == wanted
    assert wanted >= set(CXX[:4])
    assert set(TabledExports(table, 0).spelled(qualified)) == wanted
    assert not table.spelled("3c104gone")


def test_the_first_library_of_a_name_counts():
    packed = pack(
        [
            ("lib", "a.so", library({"one": ("",)}, soname="a.so", needed=("c.so",))),
            ("usr/lib", "a.so", library({"two": ("",)})),
        ],
        {"torch": "2.1.0"},
    )
    table = SymbolTable.load(packed)
    (row,) = table.libraries
    assert (row.folder, row.soname, row.needed) == ("lib", "a.so", ("c.so",))
    assert table.facts == {"torch": "2.1.0"}
    assert table.find("two") == {}


def test_names_that_would_break_the_lines_are_left_out():
    table = SymbolTable.load(pack([("", "a.so", library({"a b": ("",), "c": ("",)}))], {}))
    assert list(TabledExports(table, 0)) == ["c"]


def test_every_damage_is_noticed():
    names = dict.fromkeys((f"name{number}" for number in range(500)), ("",))
    whole = pack([("", "a.so", library(names))], {})
    numbers = random.Random(5)  # noqa: S311 - the same places in each run
    for _ in range(200):
        place = numbers.randrange(len(whole))
        bent = bytearray(whole)
        bent[place] ^= 1 << numbers.randrange(8)
        for damaged in (bytes(bent), whole[:place]):
            with pytest.raises(DamagedTableError):
                SymbolTable.load(damaged)

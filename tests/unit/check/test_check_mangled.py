from pathlib import Path

import pytest
from jetship.check.mangled import (
    demangle,
    in_torch,
    qualified_name,
    string_abi,
    without_string_abi,
)


@pytest.mark.parametrize(
    ("symbol", "name"),
    [
        ("_ZN3c104cuda9SetDeviceEab", "3c104cuda9SetDevice"),
        ("_ZNK3c104cuda9SetDeviceEa", "3c104cuda9SetDevice"),
        ("_ZTVN3c105ErrorE", "3c105Error"),
        ("_Z3foov", "3foo"),
        ("puts", None),
        ("_ZN", None),
        ("_ZN9999aE", None),
        ("", None),
    ],
)
def test_qualified_name(symbol, name):
    assert qualified_name(symbol) == name


@pytest.mark.parametrize(
    ("symbol", "abi"),
    [
        ("_ZN3c106detail14torchCheckFailEPKcS2_jRKSs", "pre-cxx11"),
        ("_ZN3c105printERKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "cxx11"),
        ("_ZN3c104nameB5cxx11Ev", "cxx11"),
        ("_ZN3c1010SsomethingEv", None),
        ("_ZN3c106answerEv", None),
        ("_ZN3c105ErrorC2ESs", "pre-cxx11"),
        ("_ZN3c105ErrorC1ESs", "pre-cxx11"),
        ("_ZN3c105countERKNS_3mapES2_OSs", "pre-cxx11"),
        ("_ZN3c105countIT0_Li2ESsEEvv", "pre-cxx11"),
        ("Ss", None),
    ],
)
def test_string_abi(symbol, abi):
    assert string_abi(symbol) == abi


def test_in_torch():
    assert in_torch("_ZN2at5emptyEv")
    assert in_torch("_ZNK5torch8autograd4NodeE")
    assert not in_torch("_ZN5boost4atanEv")


LONG = "basic_string<char, std::char_traits<char>, std::allocator<char> >"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (f"c10::f(std::__cxx11::{LONG})", f"c10::f(std::{LONG})"),
        ("c10::f(std::__cxx11::string const&)", "c10::f(std::string const&)"),
        ("c10::f[abi:cxx11]()", "c10::f()"),
    ],
)
def test_both_abis_look_alike_without_their_marks(one, other):
    assert without_string_abi(one) == without_string_abi(other)
    assert "cxx11" not in without_string_abi(one)


def test_demangle():
    names = ["_ZN3c106answerEv", "puts"]
    assert demangle(names, Path("c++filt")) == {"_ZN3c106answerEv": "c10::answer()"}


def test_a_demangler_that_fails_leaves_the_names_mangled():
    assert demangle(["_ZN3c106answerEv"], Path("false")) == {}

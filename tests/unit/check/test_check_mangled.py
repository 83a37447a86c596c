from pathlib import Path

import pytest
from jetship.check.mangled import demangle, in_torch, qualified_name, string_abi


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
        ("Ss", None),
    ],
)
def test_string_abi(symbol, abi):
    assert string_abi(symbol) == abi


def test_in_torch():
    assert in_torch("_ZN2at5emptyEv")
    assert in_torch("_ZNK5torch8autograd4NodeE")
    assert not in_torch("_ZN5boost4atanEv")


def test_demangle():
    names = ["_ZN3c106answerEv", "puts"]
    assert demangle(names, Path("c++filt")) == {"_ZN3c106answerEv": "c10::answer()"}


def test_a_demangler_that_fails_leaves_the_names_mangled():
    assert demangle(["_ZN3c106answerEv"], Path("false")) == {}

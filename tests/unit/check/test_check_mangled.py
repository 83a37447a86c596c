from pathlib import Path

import pytest
from jetship.check import mangled
from jetship.check.mangled import (
    demangle,
    in_torch,
    qualified_name,
    string_abi,
    without_string_abi,
)
from jetship.errors import ToolMissingError

STRING = "basic_string<char, std::char_traits<char>, std::allocator<char> >"


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


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            f"c10::f(std::__cxx11::{STRING})",
            f"c10::f(std::{STRING})",
        ),
        ("c10::f(std::__cxx11::string const&)", "c10::f(std::string const&)"),
        ("c10::f[abi:cxx11]()", "c10::f()"),
    ],
)  # fmt: skip
def test_both_abis_look_alike_without_their_marks(one, other):
    assert without_string_abi(one) == without_string_abi(other)
    assert "cxx11" not in without_string_abi(one)


def test_demangle():
    names = ["_ZN3c106answerEv", "puts"]
    assert demangle(names, Path("c++filt")) == {"_ZN3c106answerEv": "c10::answer()"}


def test_a_demangler_that_fails_leaves_the_names_mangled():
    assert demangle(["_ZN3c106answerEv"], Path("false")) == {}


def test_the_demangler_of_this_machines_cxx_library_says_what_cxxfilt_does():
    names = [
        "_ZN3c104cuda9SetDeviceEab", "_ZNK2at6Tensor3addERKS0_",
        "_ZN3c105ErrorC2ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE", "_Zwrong", "puts",
    ]  # fmt: skip
    own = mangled.demangle(names, mangled.BUILT_IN)
    program = mangled.demangle(names, Path("c++filt"))
    assert own["_ZN3c104cuda9SetDeviceEab"] == "c10::cuda::SetDevice(signed char, bool)"
    assert own == {name: text for name, text in program.items() if text != name}


def test_a_machine_without_cxx_library_is_told(monkeypatch):
    mangled._built_in.cache_clear()  # what works is kept, what fails is not
    monkeypatch.setattr(mangled.ctypes, "CDLL", lambda _: (_ for _ in ()).throw(OSError("none")))
    with pytest.raises(ToolMissingError, match=r"has no libstdc\+\+"):
        mangled.demangle(["_Z1fv"], mangled.BUILT_IN)

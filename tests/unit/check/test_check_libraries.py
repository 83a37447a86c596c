import dataclasses
import shutil
from pathlib import Path

import make_corpus
import pytest
from jetship.check.libraries import Library, Scope, TargetLibraries
from jetship.datafiles import data_dir
from jetship.elf import ElfFile, Undefined, read_elf
from jetship.errors import CheckError
from jetship.toolchain.model import Toolchain


@pytest.fixture
def toolchain(tmp_path, corpus, target) -> Toolchain:
    root = tmp_path / "toolchain"
    system, torch = root / "sysroot/usr/lib/aarch64-linux-gnu", root / "site-packages/torch/lib"
    for folder in (system, torch, root / "stubs", root / "site-packages/torch.libs"):
        folder.mkdir(parents=True)
    for name in ("libc.so.6", "libpython3.11.so.1.0", "libcudart.so.11.0"):
        shutil.copy(corpus / "target" / name, system)
    for name in ("libc10.so", "libtorch_cpu.so"):
        shutil.copy(corpus / "target" / name, torch)
    shutil.copy(corpus / "elsewhere/libown.so", root / "site-packages/torch.libs/libown-1a.so")
    shutil.copy(corpus / "elsewhere/libc10_cuda.so", root / "stubs")
    (system / "libc.so").write_text("/* GNU ld script */\n")
    return Toolchain(target.platform, root, "11.8")


def test_tables_of_a_toolchain(toolchain):
    libraries = TargetLibraries.of(toolchain)
    assert set(libraries.libraries) == {
        "libc.so.6", "libpython3.11.so.1.0", "libcudart.so.11.0", "libc10.so", "libtorch_cpu.so",
        "libown.so",
    }  # fmt: skip
    assert libraries.stubs == {"libc10_cuda.so"}
    assert libraries.interpreter == "libpython3.11.so.1.0"


def test_links_to_the_build_machine_are_not_followed(toolchain, corpus):
    system = toolchain.sysroot / "usr/lib/aarch64-linux-gnu"
    (system / "libstranger.so.1").symlink_to(corpus / "elsewhere/libstranger.so.1")
    (toolchain.sysroot / "lib").symlink_to("/usr/lib")
    assert set(TargetLibraries.of(toolchain).libraries) & {"libstranger.so.1", "libm.so.6"} == set()


def test_libraries_of_another_machine_prove_nothing(toolchain, corpus):
    shutil.copy(corpus / "members/x86.so", toolchain.torch / "lib/libx86.so")
    assert "libx86.so" not in TargetLibraries.of(toolchain).libraries


def test_damaged_toolchain(toolchain):
    (toolchain.torch / "lib/libbroken.so").write_bytes(b"\x7fELF\x02\x01\x01")
    with pytest.raises(CheckError, match=r"libbroken\.so of the toolchain is damaged"):
        TargetLibraries.of(toolchain)


def test_scope_is_what_is_needed_and_what_that_needs(libraries, corpus):
    scope = libraries.scope(read_elf(corpus / "members/unlinked.so"))
    names = [library.name for library in scope.libraries[1:]]
    assert names == ["libc.so.6", "libc10.so", "libpython3.11.so.1.0"]
    scope = libraries.scope(read_elf(corpus / "members/stranger.so"))
    assert scope.untabled == ("libstranger.so.1",)


def puts(version: str | None, library: str | None = "libc.so.6") -> Undefined:
    return Undefined("puts", version, library, weak=False, kind="func")


def test_versions_are_part_of_a_symbol(libraries):
    libc = libraries.libraries["libc.so.6"]
    assert libc.answers(puts("GLIBC_2.17"))
    assert libc.answers(puts(None, None))
    assert not libc.answers(puts("GLIBC_2.36"))


def test_a_library_without_versions_answers_any_unless_it_is_the_named_one(libraries):
    c10 = libraries.libraries["libc10.so"]
    symbol = Undefined("_ZN3c106answerEv", "V_1", "libelse.so", weak=False, kind="func")
    assert c10.answers(symbol)
    named = Undefined("_ZN3c106answerEv", "V_1", "libc10.so", weak=False, kind="func")
    assert not c10.answers(named)


OLD, NEW = make_corpus.OLD_STRING, make_corpus.NEW_STRING


def asked(name: str) -> Undefined:
    return Undefined(name, None, None, weak=False, kind="func")


def made_elsewhere(*names: str, abi: str | None = "pre-cxx11") -> Scope:
    """A scope with one library of another build: "pre-cxx11" is not the target's ABI."""
    elf = ElfFile(machine="aarch64", bits=64, little_endian=True, type="shared", dynamic=True,
                  soname="libc10.so", exports=dict.fromkeys(names, ("",)))  # fmt: skip
    library = Library("libc10.so", elf, "derived", other_abi=abi)
    return Scope((library,), (), Path("c++filt"))


# One function a row: as a build for the old C++ ABI names it, and as one for the new does.
TWINS = [
    (f"_ZN3c105printE{OLD}", f"_ZN3c105printE{NEW}"),
    ("_ZN3c104nameEv", "_ZN3c104nameB5cxx11Ev"),
    ("_ZN3c105ErrorC2ESs", "_ZN3c105ErrorC2ENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"),
    (
        "_ZN3c105namesESt6vectorISsSaISsEE",
        "_ZN3c105namesESt6vectorINSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEESaIS6_EE",
    ),
    (
        "_ZN3c105writeERSt19basic_ostringstreamIcSt11char_traitsIcESaIcEE",
        "_ZN3c105writeERNSt7__cxx1119basic_ostringstreamIcSt11char_traitsIcESaIcEEE",
    ),
]


@pytest.mark.parametrize(("old", "new"), TWINS)
def test_a_build_of_the_other_abi_answers_by_the_names_that_people_read(old, new):
    scope = made_elsewhere(old)
    assert scope.find(asked(new)).name == "libc10.so"
    assert made_elsewhere(old, abi=None).find(asked(new)) is None
    assert dataclasses.replace(scope, demangler=None).find(asked(new)) is None
    assert dataclasses.replace(scope, demangler=Path("false")).find(asked(new)) is None


@pytest.mark.parametrize("old", [old for old, _ in TWINS if "Ss" in old])
def test_a_name_of_the_other_abi_is_no_name_of_the_targets_own_build(old):
    assert made_elsewhere(old).find(asked(old)) is None
    assert made_elsewhere(old, abi=None).find(asked(old)).name == "libc10.so"


def test_another_signature_is_no_twin():
    scope = made_elsewhere(f"_ZN3c105printE{OLD}i", f"_ZN3c106printsE{OLD}")
    assert scope.find(asked(f"_ZN3c105printE{NEW}")) is None


def test_names_without_strings_are_the_same_in_both_abis():
    scope = made_elsewhere("_ZN3c106answerEv")
    assert scope.find(asked("_ZN3c106answerEv")).grade == "derived"
    assert scope.find(asked("puts")) is None


@pytest.fixture
def derived(toolchain) -> Toolchain:
    """A toolchain whose platform is known from other builds only."""
    (toolchain.torch / "version.py").write_text("__version__ = '2.1.0'\n")
    platform = toolchain.platform.model_copy(update={"evidence": "derived"})
    return dataclasses.replace(toolchain, platform=platform)


def test_the_libraries_of_a_derived_platform_say_so(derived):
    libraries = TargetLibraries.of(derived).libraries
    assert {library.grade for library in libraries.values()} == {"derived"}
    # The stand-in for libc10 has names of the new ABI, as the platform's torch has.
    assert libraries["libc10.so"].other_abi is None
    old = derived.platform.torch.model_copy(update={"cxx11_abi": False})
    platform = derived.platform.model_copy(update={"torch": old})
    found = TargetLibraries.of(dataclasses.replace(derived, platform=platform)).libraries
    assert found["libc10.so"].other_abi == "cxx11"
    assert found["libc.so.6"].other_abi is None


def test_names_that_were_written_down_stand_for_a_library_that_this_build_lacks(
    derived, toolchain, corpus
):
    shutil.copy(corpus / "elsewhere/libc10_cuda.so", toolchain.stubs / "libtorch_cuda.so")
    found = TargetLibraries.of(derived)
    whole, some = (found.libraries[name] for name in ("libc10_cuda.so", "libtorch_cuda.so"))
    assert (whole.partial, some.partial) == (False, True)
    assert (whole.grade, some.grade) == ("derived", "derived")
    assert whole.other_abi == "pre-cxx11"
    assert len(whole.elf.exports) > 200
    assert found.stubs == {"libc10_cuda.so", "libtorch_cuda.so"}
    assert set(TargetLibraries.of(toolchain).libraries) & found.stubs == set()


def test_a_torch_of_which_nothing_was_written_down_proves_nothing(derived):
    (derived.torch / "version.py").write_text("__version__ = '2.0.99+cpu'\n")
    assert "libc10_cuda.so" not in TargetLibraries.of(derived).libraries


def test_every_derived_platform_whose_torch_has_no_cuda_has_its_tables(catalog):
    tables = {path.parent.name for path in data_dir("toolchains").glob("symbols/*/libc10_cuda*")}
    for platform in catalog.platforms:
        torch = platform.toolchain.torch
        if platform.evidence == "derived" and torch and "CPU build" in torch.part.title:
            release = torch.part.wheels[0].requirements[0].partition("==")[2]
            assert f"torch-{release}" in tables


def library(name: str, *exports: str, grade="derived", defines=("GLIBC_2.17",)) -> Library:
    elf = ElfFile(machine="aarch64", bits=64, little_endian=True, type="shared", dynamic=True,
                  soname=name, version_definitions=defines,
                  exports=dict.fromkeys(exports, ("GLIBC_2.17", "")))  # fmt: skip
    return Library(name, elf, grade)


def at_glibc(target, version: str):
    abi = target.platform.abi.model_copy(update={"glibc": version})
    return target.platform.model_copy(update={"abi": abi})


@pytest.mark.parametrize(
    ("glibc", "grade", "found"),
    [("2.35", "derived", True), ("2.33", "derived", False), ("2.35", "exact", False)],
)
def test_the_c_library_since_2_34_has_what_an_older_stand_in_has_beside_it(
    target, glibc, grade, found
):
    libc = library("libc.so.6", "puts", grade=grade)
    libdl = library("libdl.so.2", "dladdr", grade=grade)
    python = library("libpython3.11.so.1.0", "PyModule_Create2", defines=())
    written = (libc, libdl, python)
    here = TargetLibraries.assembled(at_glibc(target, glibc), (), written, (), Path("c++filt"))
    needs_libc = dataclasses.replace(libc.elf, needed=("libc.so.6",))
    assert (here.scope(needs_libc).find(asked("dladdr")) is not None) == found


def test_modules_find_what_every_python_is_linked_to(target):
    written = (library("libc.so.6"), library("libdl.so.2", "dladdr"))
    platform = at_glibc(target, "2.31")
    here = TargetLibraries.assembled(platform, (), written, (), Path("c++filt"))
    assert here.interpreter is None
    alone = library("module.so").elf
    assert here.scope(alone).find(asked("dladdr")).name == "libdl.so.2"

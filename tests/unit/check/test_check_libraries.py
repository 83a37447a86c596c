import shutil

import pytest
from jetship.check.libraries import TargetLibraries
from jetship.elf import Undefined, read_elf
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
    return Toolchain(target.platform, root)


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

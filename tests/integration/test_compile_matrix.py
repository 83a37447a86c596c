"""The op pack's sources against old and new releases of torch: compiled, linked, looked at.

What is compiled is kept by the compiler cache, so only a first run takes a minute or two. It
downloads some 800 MB, and with -m long a GB.
"""

import os
import re
from pathlib import Path

import pytest
from compile_matrix import (
    LIBRARIES,
    LISTED,
    PAGE,
    RELEASES,
    SOURCES,
    Compiled,
    Release,
    compile_release,
)
from independent import elf, needed_libraries
from jetship import proc
from product import invoke

STANDARDS = {"1.10": "14", "1.13": "14", "2.1": "17", "2.7": "17", "2.11": "17", "2.15": "20"}
# Between older and newer releases, which an ordinary run compiles. For 2.7, test_op_pack.py builds
# the wheel.
BETWEEN = ("1.13", "2.7", "2.11")
OPERATORS = (
    "gelu", "gelu_backward", "bias_gelu_dropout", "bias_gelu_dropout_backward", "fused_attn_nms",
    "fused_attn_nms_scored",
)  # fmt: skip
CPU_BUILDS = ("1.10", "1.13", "2.1", "2.7")


def rows() -> list[object]:
    return [
        pytest.param(
            release, id=release.name, marks=pytest.mark.long if release.name in BETWEEN else ()
        )
        for release in RELEASES
    ]


@pytest.fixture(scope="module", params=rows())
def release(request) -> Release:
    return request.param


@pytest.fixture(scope="module")
def compiled(release, tmp_path_factory) -> Compiled:
    return compile_release(release, tmp_path_factory.mktemp(release.name))


def test_no_compiler_and_no_linker_says_a_word(compiled):
    assert compiled.said == dict.fromkeys(compiled.said, "")


def test_every_source_of_the_folders_is_compiled(compiled):
    csrc = PAGE.parents[2] / "csrc"
    sources = {
        str(path.relative_to(csrc))
        for folder in ("bindings", "kernels")
        for path in (csrc / folder).rglob("*")
        if path.suffix in (".cpp", ".cu")
    }
    assert sources | set(LIBRARIES) == set(compiled.said)


def test_the_standard_is_the_one_of_the_release(compiled):
    assert compiled.standard == STANDARDS[compiled.release.name]


def test_every_undefined_symbol_is_in_the_libraries_of_the_release(compiled):
    at_hand = defined_at_hand(compiled)
    for name, library in compiled.libraries.items():
        asked = undefined(compiled, library)
        assert len([symbol for symbol in asked if re.match("_ZNK?(2at|3c10|5torch)", symbol)]) > 30
        missing = asked - at_hand
        if compiled.release.name in CPU_BUILDS:
            missing = {symbol for symbol in missing if not is_of_cuda(symbol)}
        if name == "jit_load()":
            missing = {symbol for symbol in missing if not re.match("_?Py", symbol)}
        assert missing == set(), name


def test_the_cpu_library_asks_for_nothing_of_cuda(compiled):
    library = compiled.libraries["jetops/_C, CPU only"]
    assert [name for name in needed_libraries(library.read_bytes()) if "cuda" in name] == []
    assert {symbol for symbol in undefined(compiled, library) if is_of_cuda(symbol)} == set()


def test_the_shipped_library_needs_no_python(compiled):
    library = compiled.libraries["jetops/_C"]
    assert "libtorch_python.so" not in needed_libraries(library.read_bytes())
    assert not [name for name in undefined(compiled, library) if re.match("_?Py", name)]
    assert "PyInit__C" in defined(compiled, library)


@pytest.mark.parametrize("name", LIBRARIES)
def test_every_operator_has_its_schema_and_its_kernels_in_it(compiled, name):
    data = compiled.libraries[name].read_bytes()
    for operator in OPERATORS:
        assert f"{operator}(Tensor ".encode() in data
    # Each file that registers something does so by a static initialiser, which has its name.
    registering = [source for source in LIBRARIES[name] if source in registering_sources()]
    assert elf(data).get_section_by_name(".init_array")["sh_size"] >= 8 * len(registering)


def test_the_page_has_what_came_of_it(compiled):
    assert compiled.row in PAGE.read_text().splitlines()


def registering_sources() -> set[str]:
    csrc = PAGE.parents[2] / "csrc"
    return {
        source
        for key in ("COMMON", "CUDA", "NO_CUDA")
        for source in SOURCES[key]
        if re.search(r"^JETOPS_LIBRARY", (csrc / source).read_text(), re.MULTILINE)
    }


def is_of_cuda(symbol: str) -> bool:
    return "4cuda" in symbol or symbol.startswith(("cuda", "__cuda"))


def undefined(compiled: Compiled, library: Path) -> set[str]:
    """Return what a library must find elsewhere, weak symbols apart."""
    return {name for name, kind in names(compiled, library) if kind == "U"}


def defined(compiled: Compiled, library: Path) -> set[str]:
    return {name for name, kind in names(compiled, library) if kind not in "Uw"}


def names(compiled: Compiled, library: Path) -> list[tuple[str, str]]:
    """Return a library's dynamic symbols and their letters, by the toolchain's nm."""
    nm = compiled.toolchain.bin / f"{compiled.toolchain.multiarch}-nm"
    done = proc.run([nm, "-D", library])
    rows = [line.split()[-2:] for line in done.stdout.splitlines()]
    return [(name.partition("@")[0], kind) for kind, name in rows]


def defined_at_hand(compiled: Compiled) -> set[str]:
    toolchain = compiled.toolchain
    system = toolchain.sysroot / "usr/lib" / toolchain.multiarch
    folders = (system, toolchain.sysroot / "lib" / toolchain.multiarch)
    runtimes = (
        "libc.so.6",
        "libm.so.6",
        "libstdc++.so.6",
        "libgcc_s.so.1",
        "ld-linux-aarch64.so.1",
    )
    libraries = {folder / name for folder in folders for name in runtimes}
    libraries |= {toolchain.cuda_home / "lib64/libcudart.so"}
    libraries |= set((toolchain.torch / "lib").glob("lib*.so"))
    found = {path.resolve() for path in libraries if path.exists()}
    assert len(found) > len(runtimes)
    return {name for path in found for name in defined(compiled, path)}


@pytest.mark.long
@pytest.mark.parametrize("target", ["sm62-torch-1.10", "sm72-torch-1.13", "sm110-torch-2.15"])
def test_the_releases_own_cpp_extension_builds_a_wheel_that_passes(target, tmp_path):
    words = ("--target", target, "--targets-file", LISTED, "--dist", tmp_path, "--json")
    (row,) = invoke("build", *words, PIP_CONSTRAINT=os.devnull).good().json["wheels"]
    assert (row["target"], row["outcome"]) == (target, "pass")

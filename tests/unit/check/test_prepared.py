"""Tables of a target's libraries from the cache: made once, made anew where they are damaged."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from jetship.check import mangled, prepared
from jetship.check.prepared import target_libraries
from jetship.errors import ToolMissingError
from jetship.targets.catalog import Catalog
from jetship.targets.model import Target
from jetship.targets.resolve import resolve, resolve_id
from jetship.toolchain.own import Given
from jetship.toolchain.ownparts import OwnParts
from jetship.toolchain.sources import PartTree


@pytest.fixture
def made(monkeypatch, tmp_path, corpus) -> list[str]:
    """Let parts be made of the corpus; the names of those that were are told."""
    names = []
    folders = {"sysroot": "usr/lib/aarch64-linux-gnu", "torch": "torch/lib", "cuda": "lib64"}
    libraries = {"sysroot": ["libc.so.6"], "torch": ["libc10.so"], "cuda": ["libcudart.so.11.0"]}

    def make(named, _store) -> PartTree:
        names.append(named.name)
        kind = named.part.kind
        root = tmp_path / "parts" / named.name
        (root / folders[kind]).mkdir(parents=True, exist_ok=True)
        for library in libraries[kind]:
            shutil.copy(corpus / "target" / library, root / folders[kind])
        if kind == "torch":
            version = named.part.wheels[0].requirements[0].partition("==")[2]
            (root / "torch/version.py").write_text(f"__version__ = '{version}+cpu'\n")
        return PartTree(named.part, root)

    monkeypatch.setattr(prepared, "make_part", make)
    return names


def of(catalog: Catalog, arch: str, platform: str) -> Target:
    return resolve(catalog, arch=arch, platform=platform)[0]


def test_only_the_parts_with_libraries_are_made_and_each_once(made, catalog, store):
    tx2 = of(catalog, "6.2", "debian-12")
    first = target_libraries(tx2, store)
    assert made == ["sysroot-bookworm", "torch-2.7.1-cp311"]
    again = target_libraries(tx2, store)
    assert len(made) == 2
    assert set(first.libraries) == set(again.libraries) >= {"libc.so.6", "libc10.so"}
    assert first.stubs == {"libc10_cuda.so", "libtorch_cuda.so"}
    assert first.demangler == mangled.BUILT_IN
    target_libraries(of(catalog, "11.0", "jetpack-7.2"), store)
    assert made[2:] == ["torch-2.11.0-cp312"], "the sysroot is that of debian-12"


def test_the_runtime_is_exact_where_it_was_read_from_the_pinned_package(made, catalog, store):
    libraries = target_libraries(of(catalog, "6.2", "debian-12"), store).libraries
    runtime = libraries["libcudart.so.11.0"]
    assert (runtime.grade, runtime.partial) == ("exact", False)
    assert runtime.elf.exports["cudaMalloc"] == ("libcudart.so.11.0", "")
    assert "libcublas.so.11" not in libraries, "that torch has no CUDA, so nothing brings it"


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize(
    ("target", "names", "partial"),
    [
        ("sm62-jetpack-4.6", {"libcudart.so.10.2", "libnvrtc.so.10.2"}, False),
        ("sm72-jetpack-5.1", {"libcudart.so.11.0", "libcublas.so.11", "libcusolver.so.11"}, True),
        ("sm87-jetpack-6.2", {"libcudart.so.12", "libcublas.so.12", "libcufft.so.11"}, True),
        ("sm110-jetpack-7.0", {"libcudart.so.13", "libcudnn.so.9", "libnccl.so.2"}, False),
    ],
)
def test_cudas_own_libraries_are_derived(catalog, store, target, names, partial):
    libraries = target_libraries(resolve_id(catalog, target), store).libraries
    found = {name: libraries[name] for name in names}
    assert {one.grade for one in found.values()} == {"derived"}
    assert {one.partial for one in found.values()} == {partial}


def test_a_part_of_the_users_own_is_read(made, catalog, store, monkeypatch):
    """Its runtime is in none of the tables."""
    monkeypatch.setattr(prepared.symboltables, "known_runtimes", frozenset)
    target_libraries(of(catalog, "6.2", "debian-12"), store)
    assert made[2:] == ["cuda-11.8"]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda _: b"", lambda data: data[1:]])
def test_a_damaged_table_is_made_anew(made, catalog, store, damage, capsys):
    tx2 = of(catalog, "6.2", "debian-12")
    target_libraries(tx2, store)
    (path,) = (store.root / "trees").glob("symbols-site-packages-*/symbols")
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    again = target_libraries(tx2, store)
    assert made[2:] == ["torch-2.7.1-cp311"]
    assert path.read_bytes() == whole
    assert "libc10.so" in again.libraries
    assert "is made anew" in capsys.readouterr().err


@pytest.fixture
def sysroot(tmp_path, corpus) -> Path:
    folder = tmp_path / "own/usr/lib/aarch64-linux-gnu"
    folder.mkdir(parents=True)
    shutil.copy(corpus / "target/libc.so.6", folder)
    return tmp_path / "own"


@pytest.mark.usefixtures("made")
def test_a_folder_of_the_users_own_is_exact_and_read_again_when_it_changes(
    catalog, store, sysroot, corpus, monkeypatch
):
    given = {"sysroot": Given(sysroot, "own", exact=True)}
    monkeypatch.setattr(prepared, "given_links", lambda *_: given)
    orin, own = of(catalog, "8.7", "jetpack-6.2"), OwnParts(sysroot=sysroot)
    libraries = target_libraries(orin, store, own).libraries
    assert (libraries["libc.so.6"].grade, libraries["libc10.so"].grade) == ("exact", "derived")
    shutil.copy(corpus / "elsewhere/libstranger.so.1", sysroot / "usr/lib/aarch64-linux-gnu")
    assert "libstranger.so.1" in target_libraries(orin, store, own).libraries


def test_a_platform_whose_torch_is_not_to_be_had_says_so(made, catalog, store):
    with pytest.raises(ToolMissingError, match="lacks 1 part: torch"):
        target_libraries(of(catalog, "6.2", "jetpack-4.2"), store)
    assert made == []


def test_the_grade_of_several_is_the_lowest(made, catalog, store):
    libraries = target_libraries(of(catalog, "8.7", "jetpack-6.2"), store)
    mixed = dict(libraries.libraries)
    mixed["libc.so.6"] = dataclasses.replace(mixed["libc.so.6"], grade="exact")
    libraries = dataclasses.replace(libraries, libraries=mixed)
    assert libraries.grade_of(["libc.so.6"]) == "exact"
    assert libraries.grade_of(["libc.so.6", "libcublas.so.12"]) == "derived"
    assert libraries.grade_of(["libgone.so"]) == "none"

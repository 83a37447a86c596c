import json
from pathlib import Path

import pytest
from jetship import proc
from jetship.errors import ConfigError, ToolMissingError
from jetship.targets.model import Target
from jetship.targets.resolve import resolve_id
from jetship.toolchain import export as exports
from jetship.toolchain.export import MARKER, export, facts_of, facts_text, quoted, require_own
from jetship.toolchain.model import Toolchain


def files_of(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(name)
    return root


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture(autouse=True)
def _abi_of_libc10(monkeypatch):
    """Let the torch of the toolchain have the new ABI, without an ELF file that shows it."""
    monkeypatch.setattr(exports, "_cxx11_abi", lambda _: True)


@pytest.fixture
def orin(catalog) -> Target:
    return resolve_id(catalog, "sm87-jetpack-6.2")


@pytest.fixture
def toolchain(orin, tmp_path) -> Toolchain:
    """A toolchain as the cache has it: a folder with links to its parts."""
    trees = tmp_path / "trees"
    root = files_of(trees / "toolchain", "bin/aarch64-linux-gnu-g++", "stubs/libc10_cuda.so")
    parts = {
        "sysroot": files_of(trees / "sysroot-1", "usr/include/stdio.h"),
        "cuda": files_of(trees / "cuda-1", "bin/nvcc", "lib64/libcudadevrt.a"),
        "site-packages": files_of(
            trees / "torch-1",
            "torch/include/ATen/ATen.h",
            "torch/lib/libc10.so",
            "torch/share/cmake/Caffe2/Caffe2Config.cmake",
            "torch/share/cmake/Torch/TorchConfig.cmake",
            "torch/share/cmake/Torch/TorchConfigVersion.cmake",
            "torch.libs/libgomp.so",
            "functorch/__init__.py",
        ),
    }
    for name, path in parts.items():
        (root / name).symlink_to(f"../{path.name}")
    (root / "links").mkdir()
    (root / "links/libstdc++.so").symlink_to("../sysroot/usr/include/stdio.h")
    (root / "site-packages/torch/version.py").write_text("__version__ = '2.5.1'\n")
    return Toolchain(orin.platform, root, "12.4")


def test_the_facts_are_those_of_the_target(toolchain, orin):
    assert facts_text(facts_of(toolchain, orin)) == (
        "# Written by jetship: the target's facts for the CMake files of this folder.\n"
        'set(JETSHIP_TARGET "sm87-jetpack-6.2")\n'
        'set(JETSHIP_MACHINE "aarch64")\n'
        'set(JETSHIP_TRIPLET "aarch64-linux-gnu")\n'
        'set(JETSHIP_CXX11_ABI "1")\n'
        'set(JETSHIP_CUDA "12.4")\n'
        'set(JETSHIP_CUDA_ARCHITECTURES "87-real")\n'
        'set(JETSHIP_TORCH_CUDA_ARCH_LIST "8.7")\n'
        'set(JETSHIP_LIBRARY_FOLDERS "cuda/lib64;stubs")\n'
        'set(JETSHIP_TORCH_VERSION "2.5.1")\n'
        'set(JETSHIP_TORCH_HAS_CUDA "ON")\n'
        'set(JETSHIP_TORCH_OTHER_ABI "OFF")\n'
    )


@pytest.mark.parametrize(
    ("target_id", "architectures", "has_cuda"),
    [
        ("sm62-debian-12", "62-real", "OFF"),
        ("sm62.sm72ptx-debian-12", "62-real;72", "OFF"),
        ("cpu-jetpack-6.2", "", "OFF"),
        ("sm87-jetpack-6.2", "87-real", "ON"),
    ],
)
def test_device_code_in_the_words_of_cmake(toolchain, catalog, target_id, architectures, has_cuda):
    facts = facts_of(toolchain, resolve_id(catalog, target_id))
    assert facts["JETSHIP_CUDA_ARCHITECTURES"] == architectures
    assert facts["JETSHIP_TORCH_HAS_CUDA"] == has_cuda


def test_another_abi_than_the_targets_is_told(toolchain, orin, monkeypatch):
    monkeypatch.setattr(exports, "_cxx11_abi", lambda _: False)
    facts = facts_of(toolchain, orin)
    assert (facts["JETSHIP_CXX11_ABI"], facts["JETSHIP_TORCH_OTHER_ABI"]) == ("1", "ON")


def test_a_value_means_itself_in_cmake():
    assert quoted('a "b" ${C} \\d') == '"a \\"b\\" \\${C} \\\\d"'


def test_an_export_is_links_around_files_of_its_own(toolchain, orin, tmp_path):
    done = export(toolchain, orin, tmp_path / "out/orin")
    folder = tmp_path / "out/orin"
    assert (done.folder, done.toolchain_file) == (folder, folder / "aarch64-linux-gnu.cmake")
    assert (folder / "cuda").readlink() == tmp_path / "trees/cuda-1"
    assert (folder / "links/libstdc++.so").read_text() == "usr/include/stdio.h"
    shown = folder / "site-packages/torch/share/cmake"
    assert "JETSHIP_CXX11_ABI" in (shown / "Torch/TorchConfig.cmake").read_text()
    assert (shown / "Torch-upstream/TorchConfig.cmake").read_text().endswith("TorchConfig.cmake")
    assert (shown / "Torch/TorchConfigVersion.cmake").is_symlink()
    assert not (folder / "site-packages/functorch").exists()
    assert names_in(folder.parent) == ["orin"]


def test_copies_need_no_cache(toolchain, orin, tmp_path):
    folder = export(toolchain, orin, tmp_path / "out", copy=True).folder
    (tmp_path / "trees").rename(tmp_path / "gone")
    moved = folder.rename(tmp_path / "moved")
    links = [path for path in moved.rglob("*") if path.is_symlink()]
    assert [path.name for path in links] == ["libstdc++.so"]
    assert links[0].read_text() == "usr/include/stdio.h"
    assert json.loads((moved / MARKER).read_text())["copy"] is True


def test_exporting_again_replaces_all(toolchain, orin, tmp_path):
    folder = export(toolchain, orin, tmp_path / "out").folder
    (folder / "target.cmake").write_text("changed by hand")
    export(toolchain, orin, folder)
    assert "JETSHIP_TARGET" in (folder / "target.cmake").read_text()
    assert names_in(tmp_path) == ["out", "trees"]
    assert (tmp_path / "trees/cuda-1/bin/nvcc").exists(), "only links are removed"


def test_an_export_with_something_of_the_users_in_it_is_refused(toolchain, orin, tmp_path):
    folder = export(toolchain, orin, tmp_path / "out").folder
    (folder / "mine.txt").touch()
    with pytest.raises(ConfigError, match=r"that was not exported: mine\.txt"):
        export(toolchain, orin, folder)
    assert (folder / "mine.txt").exists()


def test_a_failed_export_leaves_the_one_before(toolchain, orin, tmp_path, monkeypatch):
    folder = export(toolchain, orin, tmp_path / "out").folder
    monkeypatch.setattr(exports, "facts_text", lambda _: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        export(toolchain, orin, folder)
    assert (folder / "target.cmake").is_file()
    assert names_in(tmp_path) == ["out", "trees"]


def test_what_jetship_did_not_export_stays(toolchain, orin, tmp_path):
    files_of(tmp_path / "mine", "thesis.txt")
    for path in (tmp_path / "mine", tmp_path / "mine/thesis.txt"):
        with pytest.raises(ConfigError, match="was not exported by jetship"):
            export(toolchain, orin, path)
    (tmp_path / "empty").mkdir()
    require_own(tmp_path / "empty")
    with pytest.raises(ConfigError, match="has a space"):
        require_own(tmp_path / "my folder")


def test_a_torch_without_files_for_cmake_is_refused(toolchain, orin, tmp_path):
    (toolchain.torch / "share/cmake/Torch/TorchConfig.cmake").unlink()
    with pytest.raises(ConfigError, match="has no share/cmake/Torch") as caught:
        export(toolchain, orin, tmp_path / "out")
    assert "--torch-wheel" in caught.value.fix


def test_a_missing_device_runtime_is_made(toolchain, orin, tmp_path, programs):
    (toolchain.cuda_home / "lib64/libcudadevrt.a").unlink()

    def answer(words: list[str], _: dict) -> proc.Finished:
        name = words[words.index("-o") + 1] if "-o" in words else words[2]
        Path(name).touch()
        return proc.Finished(tuple(words), 0)

    programs(answer)
    folder = export(toolchain, orin, tmp_path / "out").folder
    assert names_in(folder / "stubs") == ["libc10_cuda.so", "libcudadevrt.a"]
    programs(status=1, stderr="cannot execute")
    with pytest.raises(ToolMissingError, match="cross compiler"):
        export(toolchain, orin, folder)

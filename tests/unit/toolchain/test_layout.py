"""Where the files of unpacked sources go, on trees of a few files."""

import os

import pytest
from jetship import proc
from jetship.errors import DownloadError
from jetship.toolchain import layout

LIBS = "usr/lib/aarch64-linux-gnu"
NVCC = "usr/lib/nvidia-cuda-toolkit"
CROSS = "usr/lib/gcc-cross/aarch64-linux-gnu/11"
PROGRAM = "#!/bin/sh\n"
SHOW = "#!/bin/sh\nprintf '%s\\n' \"$@\"\n"


@pytest.fixture
def sources(tmp_path):
    folder = tmp_path / "sources"
    folder.mkdir()
    return folder


@pytest.fixture
def root(tmp_path):
    """A part's folder, as the store makes it."""
    folder = tmp_path / "part"
    folder.mkdir()
    return folder


@pytest.fixture
def debian_cuda(sources, grow, link):
    """CUDA as Debian packs it: nvcc in a folder of its own, the rest in /usr/bin."""
    programs = {f"usr/bin/{name}": SHOW for name in layout.CUDA_PROGRAMS}
    grow(sources / "debian-bookworm-amd64", {
        f"{NVCC}/bin/nvcc": PROGRAM,
        f"{NVCC}/bin/cicc": SHOW,
        f"{NVCC}/bin/crt/link.stub": "",
        f"{NVCC}/libdevice/libdevice.10.bc": "",
        **programs,
    })  # fmt: skip
    grow(sources / "debian-bookworm-arm64", {
        f"{LIBS}/libcudart.so.11.8.89": "the target's libcudart",
        f"{LIBS}/libcudart.so.11.0": link("libcudart.so.11.8.89"),
    })  # fmt: skip
    return sources


def names_below(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


def test_a_compiler_loses_its_links_to_libraries_that_are_left_out(sources, root, grow, link):
    grow(sources / "debian-bookworm-amd64", {
        "usr/bin/aarch64-linux-gnu-g++-11": PROGRAM,
        f"{CROSS}/libstdc++.so": link("../../../../aarch64-linux-gnu/lib/libstdc++.so.6"),
        f"{CROSS}/libgcc_s.so": "(script)",
        f"{CROSS}/libcc1.so": link("libgcc_s.so"),
    })  # fmt: skip
    layout.lay_out_compiler(sources, root)
    assert names_below(root / CROSS) == {"libgcc_s.so", "libcc1.so"}
    assert os.access(root / "usr/bin/aarch64-linux-gnu-g++-11", os.X_OK)


def test_a_sysroot_is_as_debian_has_it(sources, root, grow, link):
    grow(sources / "debian-bullseye-arm64", {f"{LIBS}/libc.so.6": "libc", "lib": link("usr/lib")})
    layout.lay_out_sysroot(sources, root)
    assert (root / "lib/aarch64-linux-gnu/libc.so.6").read_text() == "libc"
    assert (root / "lib").readlink().as_posix() == "usr/lib"


def test_a_sysroot_whose_packages_have_all_in_usr_gets_its_link(sources, root, grow):
    grow(sources / "debian-trixie-arm64", {f"{LIBS}/libc.so.6": "libc", "usr/include/x.h": ""})
    layout.lay_out_sysroot(sources, root)
    assert (root / "lib").readlink().as_posix() == "usr/lib"
    assert not os.path.lexists(root / "lib64")


def test_a_cpu_build_of_torch_gets_the_header_that_it_leaves_out(sources, root, grow):
    grow(sources / "wheels-aarch64-cp311", {"torch/version.py": "x"})
    layout.lay_out_torch(sources, root)
    header = (root / layout.CUDA_CMAKE_MACROS).read_text()
    assert "#define C10_CUDA_BUILD_SHARED_LIBS" in header


def test_a_cuda_build_of_torch_keeps_its_header(sources, root, grow):
    grow(sources / "wheels-aarch64-cp311", {layout.CUDA_CMAKE_MACROS.as_posix(): "its own"})
    layout.lay_out_torch(sources, root)
    assert (root / layout.CUDA_CMAKE_MACROS).read_text() == "its own"


def test_a_cuda_home_is_made_of_debians_scattered_nvcc(debian_cuda, root):
    layout.lay_out_cuda(debian_cuda, root)
    assert {
        "bin/nvcc", "bin/nvcc.profile", "bin/ptxas", "bin/cudafe++", "bin/cudafe++.real",
        "bin/crt/link.stub", "nvvm/bin/cicc", "nvvm/bin/cicc.real",
        "nvvm/libdevice/libdevice.10.bc", "lib64/libcudart.so", "lib64/libcudart.so.11.0",
        "lib64/libcudart.so.11.8.89",
    } <= names_below(root)  # fmt: skip
    assert (root / "lib64/libcudart.so").read_text() == "the target's libcudart"
    assert (root / "lib64/libcudart.so").readlink().as_posix() == "libcudart.so.11.0"
    links = [path for path in root.rglob("*") if path.is_symlink()]
    assert not any(path.readlink().is_absolute() for path in links)


def test_headers_of_wheels_lie_beside_debians_nvcc(debian_cuda, root, grow):
    grow(debian_cuda / "wheels-x86_64-cp311", {
        "nvidia/cuda_runtime/include/cuda.h": "new",
        "nvidia/cuda_cccl/include/cuda/std/array": "",
        "nvidia_cuda_runtime_cu11.dist-info/METADATA": "",
    })  # fmt: skip
    layout.lay_out_cuda(debian_cuda, root)
    assert (root / "include/cuda.h").read_text() == "new"
    assert (root / "include/cuda/std/array").is_file()


def test_debians_own_headers_are_taken_where_it_has_them(debian_cuda, root, grow):
    grow(debian_cuda / "debian-bookworm-amd64", {"usr/include/cuda_runtime.h": "debian's"})
    layout.lay_out_cuda(debian_cuda, root)
    assert (root / "include/cuda_runtime.h").read_text() == "debian's"


def test_a_cuda_home_is_made_of_wheels_alone(sources, root, grow):
    grow(sources / "wheels-x86_64-cp311", {
        "nvidia/cu13/bin/nvcc": PROGRAM[1:],
        "nvidia/cu13/bin/cudafe++": PROGRAM,
        "nvidia/cu13/nvvm/bin/cicc": PROGRAM,
        "nvidia/cu13/nvvm/libdevice/libdevice.10.bc": "",
        "nvidia/cu13/include/cuda.h": "",
    })  # fmt: skip
    grow(sources / "wheels-aarch64-cp311", {"nvidia/cu13/lib/libcudart.so.13": "libcudart"})
    layout.lay_out_cuda(sources, root)
    assert os.access(root / "bin/nvcc", os.X_OK), "wheels carry programs that are not executable"
    assert (root / "include/cuda.h").is_file()
    assert (root / "nvvm/libdevice/libdevice.10.bc").is_file()
    assert (root / "lib64/libcudart.so").readlink().as_posix() == "libcudart.so.13"


@pytest.mark.parametrize("compiler", ["bin/cudafe++", "nvvm/bin/cicc"])
def test_cudas_compilers_are_told_of_paths_in_the_project_only(debian_cuda, root, compiler):
    layout.lay_out_cuda(debian_cuda, root)

    def said(*words, **variables):
        env = {"PATH": os.defpath} | variables
        return proc.run([root / compiler, *words], env=env).stdout.splitlines()

    words = ["-a", "--orig_src_path_name", "/src/ops/x.cu", "a b", "/src/y"]
    assert said(*words) == words
    inside = said(*words, JETSHIP_SOURCES="/src")
    assert inside == ["-a", "--orig_src_path_name", "/ops/x.cu", "a b", "/src/y"]
    assert said(*words, JETSHIP_SOURCES="/other") == words


def test_nvcc_finds_the_rest_of_cuda_from_where_it_lies(debian_cuda, root):
    layout.lay_out_cuda(debian_cuda, root)
    profile = (root / "bin/nvcc.profile").read_text()
    assert "TOP              = $(_HERE_)/.." in profile
    assert '"-I$(TOP)/include"' in profile
    assert str(root) not in profile


def test_packages_of_other_repositories_are_laid_out_as_debians(sources, root, grow):
    grow(sources / "apt-ubuntu-jammy+l4t-r36.4-arm64", {f"{LIBS}/libc.so.6": "libc"})
    grow(sources / "debian-bookworm-arm64", {f"{LIBS}/libother.so": "other"})
    layout.lay_out_sysroot(sources, root)
    assert {f"{LIBS}/libc.so.6", f"{LIBS}/libother.so"} <= names_below(root)


def test_a_cuda_of_packages_that_are_not_debians_is_told(sources, root, grow):
    grow(sources / "apt-cuda-amd64", {"usr/local/cuda-11.4/bin/nvcc": PROGRAM})
    with pytest.raises(DownloadError, match="have no nvcc where Debian has it") as caught:
        layout.lay_out_cuda(sources, root)
    assert "--cuda-home" in caught.value.fix


def test_a_cuda_without_libcudart_for_the_target_is_told(debian_cuda, root):
    for path in (debian_cuda / f"debian-bookworm-arm64/{LIBS}").iterdir():
        path.unlink()
    with pytest.raises(DownloadError, match="no libcudart for the target") as caught:
        layout.lay_out_cuda(debian_cuda, root)
    assert "invoke pins" in caught.value.fix


def test_a_base_is_a_root_folder_and_site_packages(sources, root, grow):
    grow(sources / "debian-bookworm-arm64", {
        "usr/bin/dash": PROGRAM,
        "usr/share/base-passwd/passwd.master": "root:*:0:0:root:/root:/bin/bash\n",
        "usr/share/base-passwd/group.master": "root:*:0:\n",
    })  # fmt: skip
    grow(sources / "wheels-aarch64-cp311", {"torch/version.py": "x"})
    layout.lay_out_base(sources, root)
    rootfs = root / "rootfs"
    assert (rootfs / "etc/passwd").read_text().startswith("root:")
    assert (rootfs / "etc/group").read_text().startswith("root:")
    assert (rootfs / "usr/bin/sh").readlink().as_posix() == "dash"
    assert (rootfs / "tmp").stat().st_mode & 0o7777 == 0o1777
    assert (root / "site-packages/torch/version.py").is_file()


def test_sources_that_have_the_same_folders_are_merged(sources, root, grow, link):
    grow(sources / "debian-a-arm64", {"usr/a": "1", "lib": link("usr/lib")})
    grow(sources / "debian-b-arm64", {"usr/b": "2", "usr/c": link("b")})
    layout.lay_out_sysroot(sources, root)
    assert names_below(root) == {"usr", "usr/a", "usr/b", "usr/c", "lib"}
    assert (root / "usr/c").readlink().as_posix() == "b"


def test_every_kind_of_part_has_a_layout(catalog):
    assert {named.part.kind for named in catalog.parts.values()} == set(layout.LAYOUTS)


def test_math_libraries_are_their_headers_alone(sources, root, grow):
    grow(sources / "wheels-aarch64-cp311", {
        "nvidia/cublas/include/cublas_v2.h": "",
        "nvidia/cusparse/include/cusparse.h": "",
    })  # fmt: skip
    layout.lay_out_cuda_math(sources, root)
    assert names_below(root) == {"include", "include/cublas_v2.h", "include/cusparse.h"}


def test_math_libraries_lie_beside_the_headers_of_a_whole_toolkit(tmp_path, grow, link):
    toolkit = grow(tmp_path / "toolkit", {
        "bin/nvcc": PROGRAM,
        "include/cuda.h": "the toolkit's",
        "lib64/libcudart.so": link("libcudart.so.11.0"),
    })  # fmt: skip
    math = grow(tmp_path / "math", {"include/cublas_v2.h": "more", "include/cuda.h": "another"})
    (tmp_path / "joined").mkdir()
    layout.join_cuda(toolkit, [math], tmp_path / "joined")
    joined = tmp_path / "joined"
    assert (joined / "include/cublas_v2.h").read_text() == "more"
    assert (joined / "include/cuda.h").read_text() == "the toolkit's"
    assert (math / "include/cuda.h").read_text() == "another"
    assert (joined / "lib64/libcudart.so").readlink().as_posix() == "libcudart.so.11.0"
    assert (joined / "bin/nvcc").samefile(toolkit / "bin/nvcc")
    assert os.access(joined / "bin/nvcc", os.X_OK)
    assert (toolkit / "include/cuda.h").read_text() == "the toolkit's"
    assert names_below(toolkit / "include") == {"cuda.h"}

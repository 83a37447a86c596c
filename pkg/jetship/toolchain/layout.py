"""What goes where in a part: from unpacked sources to the folder that toolchains link to.

Each function gets a folder with one folder a source, named debian-<suite>-<architecture>,
apt-<repositories>-<architecture> or wheels-<machine>-<abi>, and moves what is needed into the
part's own folder.
"""

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from jetship.errors import DownloadError
from jetship.store import write_atomically

# CUDA's compilers make the names of what is local to a .cu file from a digest of its path, so they
# are told the path within the project.
_CUDA_WRAPPER = """\
#!/bin/sh
# Written by jetship: {program}, which is told of paths within the project only.
before=
for word do
    shift
    if [ "$before" = --orig_src_path_name ] && [ -n "${{JETSHIP_SOURCES:-}}" ]; then
        case $word in "$JETSHIP_SOURCES"/*) word=${{word#"$JETSHIP_SOURCES"}} ;; esac
    fi
    before=$word
    set -- "$@" "$word"
done
exec "${{0%/*}}/{program}.real" "$@"
"""

# nvcc finds the rest of CUDA through this file, beside its own binary.
_NVCC_PROFILE = """\
TOP              = $(_HERE_)/..
CICC_PATH        = $(TOP)/nvvm/bin
NVVMIR_LIBRARY_DIR = $(TOP)/nvvm/libdevice
LD_LIBRARY_PATH += $(TOP)/lib:
PATH            += $(TOP)/nvvm/bin:$(_HERE_):
INCLUDES        += "-I$(TOP)/include" "-I$(TOP)/include/cccl" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/lib64"
"""

CUDA_PROGRAMS = ("cudafe++", "ptxas", "fatbinary", "cuobjdump", "nvlink", "bin2c", "cu++filt")

# PyTorch's build writes this header; its CPU wheels carry the headers that include it, not itself.
CUDA_CMAKE_MACROS = Path("torch/include/c10/cuda/impl/cuda_cmake_macros.h")
_CUDA_CMAKE_MACROS = b"""\
#pragma once
// Written by jetship: torch is linked as shared libraries.
#define C10_CUDA_BUILD_SHARED_LIBS
"""


def lay_out_compiler(sources: Path, root: Path) -> None:
    """A GCC: as Debian has it, without the links to target libraries that are left out."""
    _merge(_packages(sources, "amd64"), root)
    folders = [root / "usr/lib/gcc-cross", root / "usr/lib/gcc"]
    for link in sorted(link for folder in folders for link in folder.rglob("*.so")):
        if link.is_symlink() and not link.exists():
            link.unlink()


def lay_out_sysroot(sources: Path, root: Path) -> None:
    """A sysroot: as Debian has it.

    From Debian 13 on, packages have all in usr/, and lib is a link that base-files brings; the
    linker scripts in libc6-dev go through it.
    """
    _merge(_packages(sources), root)
    for name in ("lib", "lib64"):
        if (root / "usr" / name).is_dir() and not (root / name).exists():
            (root / name).symlink_to(f"usr/{name}")


def lay_out_torch(sources: Path, root: Path) -> None:
    """torch, with the one generated header that a CPU build leaves out."""
    _merge(_of(sources, "wheels-*"), root)
    complete_torch(root)


def complete_torch(site_packages: Path) -> None:
    """Give torch the one generated header that a CPU build leaves out."""
    header = site_packages / CUDA_CMAKE_MACROS
    if not header.exists():
        write_atomically(header, _CUDA_CMAKE_MACROS)


def lay_out_base(sources: Path, root: Path) -> None:
    """A base image: rootfs/ and site-packages/."""
    _merge(_packages(sources), root / "rootfs")
    _merge(_of(sources, "wheels-*"), root / "site-packages")
    complete_rootfs(root / "rootfs")


def lay_out_emulated(sources: Path, root: Path) -> None:
    """A base image with compilers in it, and nvcc's programs as a CUDA_HOME in /opt/cuda."""
    lay_out_base(sources, root)
    home = root / "rootfs/opt/cuda"
    _take_debian_nvcc(root / "rootfs", home)
    write_atomically(home / "bin/nvcc.profile", _NVCC_PROFILE.encode())
    for folder in ("include", "lib64"):
        (home / folder).mkdir(exist_ok=True)


def lay_out_cuda(sources: Path, root: Path) -> None:
    """A CUDA_HOME out of Debian's scattered nvcc, or of the index's wheels, or of both."""
    for packages in _packages(sources, "amd64"):
        _take_debian_nvcc(packages, root)
    for wheels in sorted(sources.glob("wheels-x86_64-*")):
        _take_wheels(wheels, root)
    for compiler in (root / "bin/cudafe++", root / "nvvm/bin/cicc"):
        compiler.rename(compiler.with_name(f"{compiler.name}.real"))
        write_program(compiler, _CUDA_WRAPPER.format(program=compiler.name))
    write_atomically(root / "bin/nvcc.profile", _NVCC_PROFILE.encode())
    _take_target_runtime(sources, root)


def lay_out_cuda_math(sources: Path, root: Path) -> None:
    """The headers of some of CUDA's math libraries: include/."""
    for include in sorted(sources.glob("wheels-*/nvidia/*/include")):
        shutil.copytree(include, root / "include", dirs_exist_ok=True)


def join_cuda(toolkit: Path, headers: Sequence[Path], root: Path) -> None:
    """A CUDA_HOME with more headers: nvcc looks beside its own binary, so it is there as well.

    The toolkit's files are hard links, where the disk can do that; they come last, so that nothing
    is written through them.
    """
    for folder in headers:
        shutil.copytree(folder / "include", root / "include", dirs_exist_ok=True)
    shutil.copytree(toolkit, root, symlinks=True, dirs_exist_ok=True, copy_function=_link_or_copy)


def _link_or_copy(source: str, destination: str) -> None:
    try:
        os.link(source, destination, follow_symlinks=False)
    except OSError:
        shutil.copy2(source, destination, follow_symlinks=False)


def _take_debian_nvcc(packages: Path, root: Path) -> None:
    private = packages / "usr/lib/nvidia-cuda-toolkit"
    if not (private / "bin/nvcc").is_file():
        raise DownloadError(
            "the packages of the CUDA part have no nvcc where Debian has it",
            why=f"usr/lib/{private.name}/bin/nvcc is not among them",
            fix="name Debian's nvidia-cuda-toolkit; a toolkit of NVIDIA's own packages is used "
            "where it is installed, with --cuda-home",
        )
    (root / "bin").mkdir(parents=True)
    shutil.copy2(private / "bin/nvcc", root / "bin/nvcc")
    if (private / "bin/crt").is_dir():
        shutil.copytree(private / "bin/crt", root / "bin/crt")
    for program in CUDA_PROGRAMS:
        if (packages / "usr/bin" / program).exists():
            shutil.copy2(packages / "usr/bin" / program, root / "bin" / program)
    (root / "nvvm/bin").mkdir(parents=True)
    shutil.copy2(private / "bin/cicc", root / "nvvm/bin/cicc")
    shutil.copytree(private / "libdevice", root / "nvvm/libdevice")
    if (packages / "usr/include/cuda_runtime.h").exists():
        shutil.copytree(packages / "usr/include", root / "include", dirs_exist_ok=True)


def _take_wheels(wheels: Path, root: Path) -> None:
    for include in sorted(wheels.glob("nvidia/*/include")):
        shutil.copytree(include, root / "include", dirs_exist_ok=True)
    for home in sorted(wheels.glob("nvidia/cu[0-9]*")):
        for name in ("bin", "nvvm"):
            if (home / name).is_dir():
                shutil.copytree(home / name, root / name, dirs_exist_ok=True)
    for program in (root / "bin").iterdir():
        # The index's wheels carry programs without the executable bit.
        if program.is_file():
            program.chmod(0o755)
    for program in (root / "nvvm/bin").iterdir():
        program.chmod(0o755)


def _take_target_runtime(sources: Path, root: Path) -> None:
    """Give the linker the target's libcudart as lib64/libcudart.so."""
    # x86-64 is the target only where nothing of the part is for aarch64.
    found = _runtimes(sources, "arm64", "aarch64") or _runtimes(sources, "amd64", "x86_64")
    if not found:
        raise DownloadError(
            "the CUDA part has no libcudart for the target",
            fix="name its package in the part's file and renew the lock with `invoke pins`",
        )
    lib64 = root / "lib64"
    lib64.mkdir()
    for path in found:
        shutil.copy2(path, lib64 / path.name, follow_symlinks=False)
    shortest = min((path.name for path in found), key=len)
    (lib64 / "libcudart.so").symlink_to(shortest)


def _runtimes(sources: Path, architecture: str, machine: str) -> list[Path]:
    debian = [
        path
        for packages in _packages(sources, architecture)
        for path in packages.glob("usr/lib/*/libcudart.so.*")
    ]
    wheels = sources.glob(f"wheels-{machine}-*/nvidia/*/lib/libcudart.so.*")
    return sorted([*debian, *wheels])


def write_program(path: Path, text: str) -> None:
    """Write an executable script."""
    write_atomically(path, text.encode())
    path.chmod(0o755)


def complete_rootfs(rootfs: Path) -> None:
    """Do what the maintainer scripts of a base system would do, without running them.

    Users and groups are base-passwd's own list, and /bin/sh is dash.
    """
    for name in ("passwd", "group"):
        master = rootfs / f"usr/share/base-passwd/{name}.master"
        if master.exists():
            write_atomically(rootfs / "etc" / name, master.read_bytes())
    shell = rootfs / "usr/bin/sh"
    if not shell.exists() and (rootfs / "usr/bin/dash").exists():
        shell.symlink_to("dash")
    temporary = rootfs / "tmp"
    temporary.mkdir(exist_ok=True)
    temporary.chmod(0o1777)


def _packages(sources: Path, architecture: str = "*") -> list[Path]:
    """Return the folders of Debian packages, those of Debian itself last."""
    return [*_of(sources, f"apt-*-{architecture}"), *_of(sources, f"debian-*-{architecture}")]


def _of(sources: Path, pattern: str) -> list[Path]:
    return sorted(sources.glob(pattern))


def _merge(folders: list[Path], root: Path) -> None:
    root.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for entry in folder.iterdir():
            if (root / entry.name).exists() and entry.is_dir():
                shutil.copytree(entry, root / entry.name, symlinks=True, dirs_exist_ok=True)
            else:
                os.rename(entry, root / entry.name)  # noqa: PTH104 - moves links as links


LAYOUTS: Mapping[str, Callable[[Path, Path], None]] = {
    "compiler": lay_out_compiler,
    "sysroot": lay_out_sysroot,
    "cuda": lay_out_cuda,
    "cuda_math": lay_out_cuda_math,
    "torch": lay_out_torch,
    "base": lay_out_base,
    "emulated": lay_out_emulated,
}

"""The layout of a toolchain: what goes where, and the small files that jetship adds."""

import os
import shutil
from pathlib import Path

from jetship import proc
from jetship.errors import DownloadError, ToolMissingError
from jetship.store import write_atomically
from jetship.toolchain.model import Toolchain

# Where GCC's own names (gcc, g++, as the build's PATH should find them) lead.
BINUTILS = ("ar", "as", "ld", "nm", "objcopy", "objdump", "ranlib", "readelf", "strip", "c++filt")

# The wrapper finds its folders from its own path, so the toolchain may lie anywhere. The cross
# GCC's libraries (mpfr, isl, ...) come with it; the C library is the build machine's. What it
# compiles gets no path of this machine into it: __FILE__ starts at /toolchain, or in the project.
_WRAPPER = """\
#!/bin/sh
# Written by jetship: {program} for {triplet}, against this toolchain's sysroot.
bin=${{0%/*}}
root=$(cd "$bin/.." && pwd -P)
LD_LIBRARY_PATH=$root/buildroot/usr/lib/x86_64-linux-gnu${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH
exec "$root/buildroot/usr/bin/{triplet}-{program}" {options}"$@"
"""

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
INCLUDES        += "-I$(TOP)/include" $(_SPACE_)
LIBRARIES        =+ $(_SPACE_) "-L$(TOP)/lib64"
"""

CUDA_PROGRAMS = (
    "cudafe++",
    "ptxas",
    "fatbinary",
    "cuobjdump",
    "nvlink",
    "bin2c",
    "cu++filt",
    "nvprune",
)

# PyTorch's build writes this header; its CPU wheels carry the headers that include it, not itself.
CUDA_CMAKE_MACROS = Path("include/c10/cuda/impl/cuda_cmake_macros.h")
_CUDA_CMAKE_MACROS = b"""\
#pragma once
// Written by jetship: torch is linked as shared libraries.
#define C10_CUDA_BUILD_SHARED_LIBS
"""


def link_target_runtimes(toolchain: Toolchain) -> None:
    """Point the cross GCC's development links (libstdc++.so, ...) at the sysroot's libraries.

    Debian's cross GCC brings target libraries of its own; the toolchain leaves them out, so
    that the sysroot alone decides which symbol versions a wheel asks for.
    """
    libraries = toolchain.sysroot / "usr/lib" / toolchain.multiarch
    for link in sorted((toolchain.root / "buildroot/usr/lib/gcc-cross").rglob("*.so")):
        if link.is_symlink() and not link.exists():
            real = libraries / link.readlink().name
            link.unlink()
            if real.exists():
                link.symlink_to(os.path.relpath(real, link.parent))


def write_wrappers(toolchain: Toolchain) -> None:
    """Write the programs that a build calls: the cross compiler, bound to the sysroot."""
    triplet = toolchain.multiarch
    version = toolchain.platform.toolchain.compiler.removeprefix("g++-")
    options = (
        '--sysroot="$root/sysroot" -ffile-prefix-map="$root"=/toolchain '
        '${JETSHIP_SOURCES:+"-ffile-prefix-map=$JETSHIP_SOURCES/="} '
    )
    for name in ("gcc", "g++", "cpp"):
        program = f"{name}-{version}"
        text = _WRAPPER.format(program=program, triplet=triplet, options=options)
        _write_program(toolchain.bin / f"{triplet}-{name}", text)
    for name in BINUTILS:
        text = _WRAPPER.format(program=name, triplet=triplet, options="")
        _write_program(toolchain.bin / f"{triplet}-{name}", text)


def _write_program(path: Path, text: str) -> None:
    write_atomically(path, text.encode())
    path.chmod(0o755)


def lay_out_cuda(toolchain: Toolchain, nvcc: Path, headers: Path) -> None:
    """Make a CUDA_HOME out of Debian's scattered nvcc and the index's header wheels.

    Args:
        toolchain: its cuda/ folder is written.
        nvcc: Debian's nvidia-cuda-toolkit, unpacked.
        headers: the nvidia-* wheels, unpacked.
    """
    home = toolchain.cuda_home
    private = nvcc / "usr/lib/nvidia-cuda-toolkit"
    (home / "bin").mkdir(parents=True)
    shutil.copy2(private / "bin/nvcc", home / "bin/nvcc")
    shutil.copytree(private / "bin/crt", home / "bin/crt")
    for program in CUDA_PROGRAMS:
        shutil.copy2(nvcc / "usr/bin" / program, home / "bin" / program)
    (home / "nvvm/bin").mkdir(parents=True)
    shutil.copy2(private / "bin/cicc", home / "nvvm/bin/cicc")
    shutil.copytree(private / "libdevice", home / "nvvm/libdevice")
    for compiler in (home / "bin/cudafe++", home / "nvvm/bin/cicc"):
        compiler.rename(compiler.with_name(f"{compiler.name}.real"))
        _write_program(compiler, _CUDA_WRAPPER.format(program=compiler.name))
    write_atomically(home / "bin/nvcc.profile", _NVCC_PROFILE.encode())
    for include in sorted(headers.glob("nvidia/*/include")):
        shutil.copytree(include, home / "include", dirs_exist_ok=True)
    _link_cuda_runtime(toolchain)


def _link_cuda_runtime(toolchain: Toolchain) -> None:
    """Give the linker the target's libcudart as CUDA_HOME/lib64/libcudart.so."""
    libraries = toolchain.sysroot / "usr/lib" / toolchain.multiarch
    found = sorted(libraries.glob("libcudart.so.*.*"), key=lambda path: len(path.name))
    if not found:
        raise DownloadError(
            f"the sysroot of {toolchain.platform.name} has no libcudart",
            fix="name its package in the platform's file and renew the lock with `invoke lock`",
        )
    lib64 = toolchain.cuda_home / "lib64"
    lib64.mkdir()
    (lib64 / "libcudart.so").symlink_to(os.path.relpath(found[0], lib64))


def complete_torch(toolchain: Toolchain) -> None:
    """Add the one generated header that a CPU build of torch leaves out."""
    header = toolchain.torch / CUDA_CMAKE_MACROS
    if not header.exists():
        write_atomically(header, _CUDA_CMAKE_MACROS)


def make_import_stubs(toolchain: Toolchain) -> None:
    """Make empty libraries for the CUDA half of torch where the target's build lacks it.

    They satisfy the linker's -lc10_cuda -ltorch_cuda and give the wheel its NEEDED entries;
    they define nothing, so they can never prove a symbol.

    Raises:
        ToolMissingError: the cross compiler does not run here.
    """
    toolchain.stubs.mkdir()
    for name in ("libc10_cuda.so", "libtorch_cuda.so"):
        if (toolchain.torch / "lib" / name).exists():
            continue
        done = proc.run(
            [toolchain.bin / f"{toolchain.multiarch}-gcc", "-shared", "-nostdlib", "-x", "c",
             f"-Wl,-soname,{name}", "-o", toolchain.stubs / name, os.devnull]
        )  # fmt: skip
        if not done.ok:
            raise ToolMissingError(
                "the cross compiler of the toolchain does not work on this machine",
                why=done.stderr.strip()[-300:],
                fix="it needs an x86-64 machine with glibc 2.36 or newer (Debian 12, Ubuntu 24.04)",
            )


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

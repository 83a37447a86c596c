"""The small files that bind a toolchain's parts together: programs, links, import stubs."""

import contextlib
import os
from collections.abc import Sequence

from jetship import proc
from jetship.elf import ElfError, read_elf
from jetship.errors import ToolMissingError
from jetship.store import write_atomically
from jetship.toolchain.layout import write_program
from jetship.toolchain.model import Toolchain

NEEDED_MACHINE = (
    "the toolchain's programs need an x86-64 machine with glibc 2.36 or newer "
    "(Debian 12, Ubuntu 24.04)"
)

# Where GCC's own names (gcc, g++, as the build's PATH should find them) lead.
BINUTILS = ("ar", "as", "ld", "nm", "objcopy", "objdump", "ranlib", "readelf", "strip", "c++filt")

# The wrapper finds its folders from its own path, so the toolchain may lie anywhere. The cross
# GCC's libraries (mpfr, isl, ...) come with it; the C library is the build machine's. What it
# compiles gets no path of this machine into it: __FILE__ starts at /toolchain, or in the project.
_WRAPPER = """\
#!/bin/sh
# Written by jetship: {program} for {triplet}.
bin=${{0%/*}}
root=$(cd "$bin/.." && pwd -P)
LD_LIBRARY_PATH=$root/buildroot/usr/lib/x86_64-linux-gnu${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH
exec "$root/buildroot/usr/bin/{triplet}-{program}" "$@"
"""

# What a setup.py names by its place on the target is looked for in the target's sysroot ("=" to
# GCC), and never on the build machine. A build may name a compiler cache; an object in it is this
# compiler's by the name of the compiler's part, which is made of its packages' digests.
_COMPILER = """\
#!/bin/sh
# Written by jetship: {program} for {triplet}, against this toolchain's sysroot.
bin=${{0%/*}}
root=$(cd "$bin/.." && pwd -P)
LD_LIBRARY_PATH=$root/buildroot/usr/lib/x86_64-linux-gnu${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}
export LD_LIBRARY_PATH
before=
for word do
    shift
    flag= path=
    case $before in
    -I | -L | -isystem | -iquote | -idirafter) path=$word ;;
    *)
        case $word in
        -[IL]/* | -isystem/* | -iquote/* | -idirafter/*) flag=${{word%%/*}} path=/${{word#*/}} ;;
        esac
        ;;
    esac
    before=$word
    case $path in
    /usr/local/cuda/* | /usr/local/cuda-[0-9]*/*)
        word=$flag${{CUDA_HOME:-$root/cuda}}/${{path#/usr/local/cuda*/}} ;;
    /usr/include* | /usr/lib* | /lib* | /usr/local/include* | /usr/local/lib*)
        word=$flag=$path ;;
    esac
    set -- "$@" "$word"
done
export CCACHE_COMPILERCHECK="string:{identity}"
exec ${{JETSHIP_CCACHE:+"$JETSHIP_CCACHE"}} "$root/buildroot/usr/bin/{triplet}-{program}" \
    {options}"$@"
"""

# Stands before libstdc++'s header of this name, which declares the templates that the library has
# instantiated.
_OWN_TEMPLATES = b"""\
// Written by jetship: declare no instantiation of libstdc++ as made elsewhere.
#include_next <bits/c++config.h>
#undef _GLIBCXX_EXTERN_TEMPLATE
#define _GLIBCXX_EXTERN_TEMPLATE 0
"""

# The linker looks for these names when a project says -lstdc++ or -fopenmp.
TARGET_RUNTIMES = {
    "libstdc++.so": "libstdc++.so.6",
    "libgomp.so": "libgomp.so.1",
    "libatomic.so": "libatomic.so.1",
}
CUDA_HALF_OF_TORCH = ("libc10_cuda.so", "libtorch_cuda.so")


def write_wrappers(toolchain: Toolchain, gcc: int) -> None:
    """Write the programs that a build calls: the cross compiler, bound to the sysroot."""
    triplet = toolchain.multiarch
    options = (
        '--sysroot="$root/sysroot" -L"$root/links" -ffile-prefix-map="$root"=/toolchain '
        '${JETSHIP_SOURCES:+"-ffile-prefix-map=$JETSHIP_SOURCES/="} '
    )
    if toolchain.platform.toolchain.own_templates:
        write_atomically(toolchain.root / "include/bits/c++config.h", _OWN_TEMPLATES)
        options += '-I"$root/include" '
    if (toolchain.root / "python").is_dir():
        # Debian's pyconfig.h includes <aarch64-linux-gnu/python3.8/pyconfig.h> of its own prefix.
        options += '-idirafter "$root/python/include" '
    identity = (toolchain.root / "buildroot").resolve().name
    for name in ("gcc", "g++", "cpp"):
        text = _COMPILER.format(
            program=f"{name}-{gcc}", triplet=triplet, options=options, identity=identity
        )
        write_program(toolchain.bin / f"{triplet}-{name}", text)
    for name in BINUTILS:
        text = _WRAPPER.format(program=name, triplet=triplet)
        write_program(toolchain.bin / f"{triplet}-{name}", text)


def link_target_runtimes(toolchain: Toolchain) -> None:
    """Give the linker the sysroot's libstdc++, libgomp and libatomic under their plain names.

    Debian's cross GCC brings target libraries of its own; its part leaves them out, so that
    the sysroot alone decides which symbol versions a wheel asks for.
    """
    links = toolchain.root / "links"
    links.mkdir()
    for name, soname in TARGET_RUNTIMES.items():
        for base in ("usr/lib", "lib"):
            real = toolchain.sysroot / base / toolchain.multiarch / soname
            if real.exists():
                (links / name).symlink_to(os.path.relpath(real, links))
                break


def make_import_stubs(toolchain: Toolchain, sonames: Sequence[str] = ()) -> None:
    """Make empty libraries for the CUDA half of torch where the target's build lacks it.

    They satisfy the linker's -lc10_cuda -ltorch_cuda and give the wheel its NEEDED entries;
    they define nothing, so they can never prove a symbol. A user's CUDA toolkit for x86-64 may
    also lack the target's libcudart: then it gets such a stub as well.

    Args:
        toolchain: its folder `stubs` is made.
        sonames: of other libraries that the target has and a project may link against.

    Raises:
        ToolMissingError: the cross compiler does not run here.
    """
    toolchain.stubs.mkdir()
    for name in CUDA_HALF_OF_TORCH:
        if not (toolchain.torch / "lib" / name).exists():
            _stub(toolchain, file=name, soname=name)
    if not _has_target_runtime(toolchain):
        _stub(toolchain, file="libcudart.so", soname=toolchain.platform.cuda.runtime_soname)
    for soname in sonames:
        _stub(toolchain, file=soname.partition(".so")[0] + ".so", soname=soname)


def _has_target_runtime(toolchain: Toolchain) -> bool:
    for folder in toolchain.cuda_libraries:
        library = folder / "libcudart.so"
        with contextlib.suppress(FileNotFoundError, ElfError):
            if read_elf(library).machine == toolchain.platform.machine:
                return True
    return False


def _stub(toolchain: Toolchain, *, file: str, soname: str) -> None:
    done = proc.run(
        [toolchain.bin / f"{toolchain.multiarch}-gcc", "-shared", "-nostdlib", "-x", "c",
         f"-Wl,-soname,{soname}", "-o", toolchain.stubs / file, os.devnull]
    )  # fmt: skip
    if not done.ok:
        raise ToolMissingError(
            "the cross compiler of the toolchain does not work on this machine",
            why=done.stderr.strip()[-300:],
            fix=NEEDED_MACHINE,
        )

"""Make the small libraries and wheels that the tests of the checker read.

    python make_corpus.py FOLDER

Everything is compiled by the machine's own gcc without any library, and then marked as
aarch64 in its header: no test runs the code, and all else in the file is what a cross
compiler would write. `target/` gets stand-ins for what a debian-12 target has, `members/`
the files that go into wheels.
"""

import struct
import sys
from dataclasses import dataclass
from pathlib import Path

from jetship import proc

AARCH64 = 183
SASS, PTX = 2, 1
OLD_STRING = "RKSs"
NEW_STRING = "RKNSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEE"

# Versions of the stand-in for glibc; the newer one has a version that debian-12 lacks.
VERSIONS = "GLIBC_2.17 { global: puts; local: *; }; GLIBC_2.36 { global: fresh; } GLIBC_2.17;"
NEWER = "GLIBC_2.38 { global: newer; } GLIBC_2.36;"


@dataclass(frozen=True)
class Source:
    """One shared library: what it defines, calls and is linked with."""

    file: str
    soname: str = ""
    defines: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    weak: tuple[str, ...] = ()
    links: tuple[str, ...] = ()
    versions: str = ""
    fatbin: bytes = b""
    flags: tuple[str, ...] = ()
    machine: int = AARCH64
    tail: str = ""

    def code(self) -> str:
        """Return the C source; a mangled C++ name is a valid C name."""
        lines = [f"int {name}(void) {{ return 1; }}" for name in self.defines]
        lines += [f"int {name}(void);" for name in self.calls]
        lines += [f"__attribute__((weak)) int {name}(void);" for name in self.weak]
        called = " + ".join(f"{name}()" for name in (*self.calls, *self.weak)) or "0"
        lines.append(f"int use(void) {{ return {called}; }}")
        if self.fatbin:
            data = ",".join(map(str, self.fatbin))
            attribute = '__attribute__((section(".nv_fatbin"), used))'
            lines.append(f"static const unsigned char fatbin[] {attribute} = {{{data}}};")
        return "\n".join([*lines, self.tail]) + "\n"


def fatbin(*images: tuple[int, int], flags: int = 0x11, payload: bytes = b"\x7fELF") -> bytes:
    """Return a container of device code: pairs of kind and the arch's number."""
    entries = b""
    for kind, number in images:
        body = payload.ljust(-(-len(payload) // 8) * 8, b"\0")
        head = struct.pack("<HHIQ12x", kind, 0x101, 64, len(body))
        entries += (head + struct.pack("<I8xQ", number, flags)).ljust(64, b"\0") + body
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


SM62 = fatbin((SASS, 62))
CALLS = ("puts", "PyModule_Create2", "_ZN3c106answerEv")
LINKS = ("libc.so.6", "libc10.so")

TARGET = (
    Source("libc.so.6", "libc.so.6", ("puts", "fresh"), versions=VERSIONS),
    Source("libpython3.11.so.1.0", "libpython3.11.so.1.0", ("PyModule_Create2",)),
    Source(
        "libc10.so",
        "libc10.so",
        (
            "_ZN3c106answerEv",
            f"_ZN3c105printE{NEW_STRING}",
            "_ZN3c106deviceEa",
            "_ZN3c104nameB5cxx11Ev",
        ),
        calls=("puts",),
        links=("libc.so.6",),
    ),
    Source("libtorch_cpu.so", "libtorch_cpu.so", ("_ZN2at5emptyEv",), links=("libc10.so",)),
    Source("libcudart.so.11.0", "libcudart.so.11.0", ("cudaMalloc",)),
)
# Only to link with: the target lacks them.
ELSEWHERE = (
    Source("newer/libc.so.6", "libc.so.6", ("puts", "fresh", "newer"), versions=VERSIONS + NEWER),
    Source("libc10_cuda.so", "libc10_cuda.so"),
    Source("libstranger.so.1", "libstranger.so.1", ("stranger",)),
    Source("libown.so", "libown.so", ("own",)),
)
ORIGIN = "-Wl,-rpath,$ORIGIN/../pkg.libs"
ROOM = "x" * 60  # a search path, for tests to write another into its place
MEMBERS = (
    Source("good.so", calls=CALLS, links=LINKS, weak=("perhaps",), fatbin=SM62),
    Source("plain.so", calls=CALLS, links=LINKS),
    Source("x86.so", calls=CALLS, links=LINKS, machine=62),
    Source("missing.so", calls=(*CALLS, "_ZN3c104goneEv"), links=LINKS),
    Source("unlinked.so", calls=(*CALLS, "_ZN2at5emptyEv"), links=LINKS),
    Source("abi.so", calls=(*CALLS, f"_ZN3c105printE{OLD_STRING}"), links=LINKS),
    Source("newabi.so", calls=(f"_ZN3c105printE{NEW_STRING}",), links=LINKS),
    Source("returned.so", calls=(*CALLS, "_ZN3c104nameEv"), links=LINKS),
    Source("unused.so", calls=CALLS, links=LINKS, tail='__asm__(".globl nobody");'),
    Source("drift.so", calls=(*CALLS, "_ZN3c106deviceEab"), links=LINKS),
    Source("newer.so", calls=("newer",), links=("newer/libc.so.6",)),
    Source("fresh.so", calls=("fresh",), links=("libc.so.6",)),
    Source("stranger.so", calls=("stranger",), links=("libstranger.so.1",)),
    Source("cudart.so", calls=("cudaMalloc",), links=("libcudart.so.11.0",)),
    Source(
        "cuda.so",
        calls=(*CALLS, "_ZN3c104cuda12device_countEv"),
        links=(*LINKS, "libc10_cuda.so"),
        fatbin=SM62,
    ),
    Source("cudagone.so", calls=("_ZN3c104goneEv",), links=(*LINKS, "libc10_cuda.so")),
    Source("cudaabi.so", calls=(f"_ZN3c104cuda4nameE{OLD_STRING}",), links=("libc10_cuda.so",)),
    Source("own.so", calls=("own",), links=("libown.so",), flags=(ORIGIN,)),
    Source("pathed.so", calls=CALLS, links=LINKS, flags=(f"-Wl,-rpath,{ROOM}",)),
    Source("astray.so", calls=("own",), links=("libown.so",)),
    Source("sm72.so", fatbin=fatbin((SASS, 72), (PTX, 50))),
    Source("sm62ptx.so", fatbin=fatbin((SASS, 62), (PTX, 62)) + bytes(24) + SM62),
    Source("badcode.so", fatbin=SM62[:-16]),
)


def make(folder: Path) -> None:
    """Compile all of the corpus into `folder`."""
    made = []
    for place, sources in (("target", TARGET), ("elsewhere", ELSEWHERE), ("members", MEMBERS)):
        for source in sources:
            path = folder / place / source.file
            compile_one(source, path, folder)
            made.append((path, source.machine))
    # Last of all, because the linker refuses libraries of another machine.
    for path, machine in made:
        patch(path, machine)


def compile_one(source: Source, to: Path, folder: Path) -> None:
    """Compile one library."""
    to.parent.mkdir(parents=True, exist_ok=True)
    text = to.with_name(to.name + ".c")
    text.write_text(source.code())
    argv = ["gcc", "-shared", "-fPIC", "-nostdlib", "-w", "-fno-builtin", "-Wl,--no-as-needed"]
    argv += [f"-Wl,-soname,{source.soname}"] if source.soname else []
    if source.versions:
        script = to.with_name(to.name + ".map")
        script.write_text(source.versions)
        argv.append(f"-Wl,--version-script,{script}")
    argv += ["-o", str(to), str(text), *source.flags]
    for link in source.links:
        found = [folder / place / link for place in ("target", "elsewhere")]
        argv.append(str(next(path for path in found if path.exists())))
    done = proc.run([*argv, "-Wl,--allow-shlib-undefined"])
    if not done.ok:
        raise SystemExit(f"{to.name}: {done.stderr}")


def patch(path: Path, machine: int) -> None:
    """Write the machine into an ELF header."""
    with path.open("r+b") as stream:
        stream.seek(18)
        stream.write(struct.pack("<H", machine))


if __name__ == "__main__":
    make(Path(sys.argv[1]))

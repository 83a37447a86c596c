"""Rules about how the loader treats each file: where it looks, what it has to permit."""

import posixpath
import re
from collections.abc import Iterator

from jetship.check.facts import Facts
from jetship.check.findings import Finding
from jetship.check.wheel import Member
from jetship.elf import ElfFile, version_key

# dlopen of a library that wants an executable stack fails since this release; NEWS of glibc 2.41.
_STACK_REFUSED_SINCE = "2.41"
# Where a file does not say (no PT_GNU_STACK), glibc's stackinfo.h decides: aarch64's says no.
_EXECUTABLE_BY_DEFAULT = {"aarch64": False, "x86_64": True}
# Where the system and JetPack put libraries; every other folder is somebody's own.
_OF_THE_TARGET = re.compile(
    r"/(?:lib|lib64|usr/lib|usr/lib64|usr/local/lib|opt/nvidia)(?:/.*)?"
    r"|/usr/local/cuda(?:-(?P<cuda>\d+(?:\.\d+)?))?(?:/.*)?"
)


def stack(facts: Facts) -> Iterator[Finding]:
    """No file wants the stack to be executable."""
    glibc = facts.platform.abi.glibc
    for member, file in facts.loadable:
        wants = file.executable_stack
        if wants is None:
            wants = _EXECUTABLE_BY_DEFAULT[facts.platform.machine]
        if not wants:
            yield Finding("stack", "pass", member.name, "it wants no executable stack")
            continue
        fix = "link with -Wl,-z,noexecstack, and give hand-written assembly the section "
        fix += ".note.GNU-stack; `patchelf --clear-execstack` mends a finished file"
        if version_key(glibc) >= version_key(_STACK_REFUSED_SINCE):
            reason = f"it wants an executable stack, and glibc {glibc} of the target refuses to "
            yield Finding("stack", "fail", member.name, f"{reason}load such a library", fix=fix)
            continue
        reason = f"it wants an executable stack, which glibc refuses since {_STACK_REFUSED_SINCE}"
        accepted = f"glibc {glibc} of the target loads it, and makes the whole program's executable"
        yield Finding("stack", "unknown", member.name, reason, fix=fix, accepted=accepted)


def text_relocations(facts: Facts) -> Iterator[Finding]:
    """The loader has to change no file's code."""
    for member, file in facts.loadable:
        if file.text_relocations:
            reason = "the loader has to write into its code (DT_TEXTREL), which a system that "
            reason += "protects code refuses"
            accepted = "glibc does so where no security policy of the device forbids it"
            fix = "compile all of it with -fPIC, static libraries that it takes in as well"
            yield Finding(
                "text-relocations", "unknown", member.name, reason, fix=fix, accepted=accepted
            )
        else:
            reason = "its code is used as it is in the file"
            yield Finding("text-relocations", "pass", member.name, reason)


def search_path(facts: Facts) -> Iterator[Finding]:
    """Each file looks for libraries in the wheel's own folders or the system's."""
    for member, file in facts.loadable:
        places = tuple(place for place in search_places(file) if not place.startswith("$ORIGIN"))
        strange = tuple(text for place in places if (text := _strange(place, facts)))
        if not strange:
            where = "its RPATH stays inside of the wheel" if search_places(file) else "no RPATH"
            yield Finding("search-path", "pass", member.name, where)
            continue
        yield Finding(
            "search-path",
            "unknown",
            member.name,
            f"the loader looks first in {' and in '.join(strange)}",
            places,
            "link it with -Wl,-rpath,'$ORIGIN/...' or without; `patchelf --set-rpath` mends a file",
            accepted="on a device that has no such folder this changes nothing",
        )


def search_places(file: ElfFile) -> tuple[str, ...]:
    """Return the folders of RUNPATH, or of RPATH where there is none, with $ORIGIN in one form."""
    text = file.rpath if file.runpath is None else file.runpath
    if text is None:
        return ()
    return tuple(place.replace("${ORIGIN}", "$ORIGIN") for place in text.split(":"))


def _strange(place: str, facts: Facts) -> str:
    if not place.startswith("/"):
        return f"{place or 'an empty entry'}, relative to whatever folder is current"
    match = _OF_THE_TARGET.fullmatch(posixpath.normpath(place))
    if match is None:
        return f"{place}, a folder of the machine that built it"
    cuda = facts.platform.cuda.version
    if (
        match["cuda"]
        and match["cuda"].split(".") != cuda.split(".")[: match["cuda"].count(".") + 1]
    ):
        return f"{place}, and the target has CUDA {cuda}"
    return ""


def twins(facts: Facts) -> Iterator[Finding]:
    """No two libraries of the wheel answer to one name."""
    needed = {name for _, file in facts.loadable for name in file.needed}
    found = False
    for name in sorted(needed):
        answering = [
            (member, file) for member, file in facts.loadable if name in (member.file, file.soname)
        ]
        if len({member.digest for member, _ in answering}) < 2:
            continue
        found = True
        yield _twins(name, answering)
    if not found:
        reason = "each name that a file needs is that of one library"
        yield Finding("twins", "pass", facts.wheel.file, reason)


def _twins(name: str, answering: list[tuple[Member, ElfFile]]) -> Finding:
    alike = len({frozenset(file.exports) for _, file in answering}) == 1
    return Finding(
        "twins",
        "unknown",
        name,
        f"{len(answering)} different libraries of the wheel answer to {name}, and the one that is "
        "loaded first serves for all",
        tuple(member.name for member, _ in answering),
        "give each a soname of its own (patchelf --set-soname), or keep one of them",
        accepted="both have the same symbols" if alike else None,
    )

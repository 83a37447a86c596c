"""Rules about each ELF file by itself: whole, for this machine, named right, not too new."""

import posixpath
import re
from collections.abc import Iterable, Iterator

from jetship.check.facts import Facts
from jetship.check.findings import Finding, Grade
from jetship.check.wheel import Member
from jetship.elf import ElfFile, version_key
from jetship.targets.model import Ceilings, Platform

_CEILINGS = {"GLIBC": "glibc", "GLIBCXX": "glibcxx", "CXXABI": "cxxabi", "GCC": "gcc"}

# System V, and GNU's with its versions (IFUNC and unique symbols); sysdeps/gnu/ldsodefs.h of glibc.
_ABIS = {(0, 0), (3, 0), (3, 1)}


def elf(facts: Facts) -> Iterator[Finding]:
    """Each library is a whole 64-bit little-endian shared library."""
    for member in facts.wheel.members:
        problem = _problem(member)
        if problem:
            fix = "build the wheel again; if it was copied, the copy is damaged"
            yield Finding("elf", "fail", member.name, problem, fix=fix)
        else:
            yield Finding("elf", "pass", member.name, "a whole 64-bit little-endian ELF file")


def _problem(member: Member) -> str:
    if member.elf is None:
        return f"it is damaged: {member.damage}"
    if (member.elf.bits, member.elf.little_endian) != (64, True):
        order = "little" if member.elf.little_endian else "big"
        return f"it is a {member.elf.bits}-bit {order}-endian file"
    if member.elf.abi not in _ABIS:
        system, version = member.elf.abi
        return f"it is marked for OS ABI {system}.{version}, which glibc's loader refuses"
    if member.is_library and member.elf.type != "shared":
        return f"it is named as a shared library and is of type {member.elf.type}"
    if member.is_library and not member.elf.dynamic:
        return "it has no dynamic segment, so nothing can load it"
    return ""


def machine(facts: Facts) -> Iterator[Finding]:
    """Each file is for the target's machine."""
    wanted = facts.platform.machine
    for member in facts.wheel.members:
        if member.elf is None:
            continue
        if member.elf.machine == wanted:
            yield Finding("machine", "pass", member.name, f"built for {wanted}")
            continue
        yield Finding(
            "machine",
            "fail",
            member.name,
            f"it is built for {member.elf.machine}, and the target is {wanted}",
            fix="the build used the build machine's compiler or library: look for a setup.py "
            "that sets CC, CXX or a library folder by itself",
        )


def suffix(facts: Facts) -> Iterator[Finding]:
    """The target's Python finds each extension module under its file name."""
    for member in facts.wheel.members:
        match = re.fullmatch(r"[^.]+\.((?:cpython|cp|pypy|graalpy|abi)[-\w]*)\.so", member.file)
        if match is None:
            continue
        problem = _suffix_problem(match[1], facts.platform)
        if problem:
            fix = f"name it {member.file.partition('.')[0]}.{_soabi(facts.platform)}.so: the build "
            fix += "took EXT_SUFFIX from the build machine's Python"
            yield Finding("suffix", "fail", member.name, problem, (match[1],), fix)
        else:
            reason = f"the target's Python imports .{match[1]}.so"
            yield Finding("suffix", "pass", member.name, reason)


def _soabi(platform: Platform) -> str:
    return f"cpython-{platform.python.abi.removeprefix('cp')}-{platform.machine}-linux-gnu"


def _suffix_problem(tag: str, platform: Platform) -> str:
    if tag in ("abi3", _soabi(platform)):
        return ""
    match = re.fullmatch(r"cpython-(\w+)-(\w+)-(.+)", tag)
    python = platform.python.abi.removeprefix("cp")
    if match is None:
        return f"its suffix .{tag}.so is not one that CPython {platform.python.version} looks for"
    wrong = [
        f"{what} {named} instead of {wanted}"
        for what, named, wanted in (
            ("CPython", match[1], python),
            ("machine", match[2], platform.machine),
            ("system", match[3], "linux-gnu"),
        )
        if named != wanted
    ]
    return f"its suffix names {' and '.join(wrong)}, so the target's Python never finds it"


def versions(facts: Facts) -> Iterator[Finding]:
    """No file asks for symbol versions newer than the target's libraries define."""
    for member, facts_of_file in facts.loadable:
        too_new = tuple(_too_new(facts_of_file, facts))
        if too_new:
            yield Finding(
                "versions",
                "fail",
                member.name,
                "it was linked against newer libraries than the target has: " + "; ".join(too_new),
                tuple(_users(facts_of_file, too_new)),
                "build it in a sysroot that is not newer than the target",
                grade=_grade(facts_of_file, facts),
            )
            continue
        reason = _floors(facts_of_file, facts.platform.abi)
        grade = _grade(facts_of_file, facts)
        yield Finding("versions", "pass", member.name, reason, grade=grade)


def _too_new(file: ElfFile, facts: Facts) -> Iterator[str]:
    for prefix, key in _CEILINGS.items():
        floor, ceiling = file.floor(prefix), getattr(facts.platform.abi, key)
        if floor is not None and version_key(floor) > version_key(ceiling):
            yield f"{prefix}_{floor} (the target has {prefix}_{ceiling})"
    for library, asked in file.version_needs.items():
        known = facts.libraries.libraries.get(library)
        # The loader only warns where a library defines no versions at all.
        if known is None or not known.elf.version_definitions:
            continue
        for version in sorted(set(asked) - set(known.elf.version_definitions)):
            if known.is_older_than(version) and has_version(version, facts.platform):
                continue
            yield f"{version} (the target's {library} does not define it)"


def has_version(version: str, platform: Platform) -> bool:
    """Return whether a version of the C or C++ library, "GLIBC_2.34", is one of the platform's."""
    prefix, _, number = version.partition("_")
    ceiling = _CEILINGS.get(prefix)
    if ceiling is None or not re.fullmatch(r"\d+(\.\d+)*", number):
        return False
    return version_key(number) <= version_key(getattr(platform.abi, ceiling))


def _users(file: ElfFile, too_new: tuple[str, ...]) -> Iterator[str]:
    named = {text.partition(" ")[0] for text in too_new}
    for symbol in file.undefined:
        if symbol.version in named:
            yield f"{symbol.name}@{symbol.version}"


def _floors(file: ElfFile, abi: Ceilings) -> str:
    parts = [
        f"{prefix}_{floor} of {getattr(abi, key)}"
        for prefix, key in _CEILINGS.items()
        if (floor := file.floor(prefix)) is not None
    ]
    return f"needs {', '.join(parts)}" if parts else "asks for no version of the C or C++ library"


def _grade(file: ElfFile, facts: Facts) -> Grade:
    known = all(name in facts.libraries.libraries for name in file.version_needs)
    return facts.libraries.grade_of(file.version_needs) if known else "none"


def libraries(facts: Facts) -> Iterator[Finding]:
    """Every library that a file needs is on the target or in the wheel."""
    for member, file in facts.loadable:
        known = facts.libraries.libraries
        astray = [name for name in file.needed if _astray(name, member, file, facts)]
        others = other_runtimes(file.needed, facts.platform)
        yield from _other_cuda(member.name, others, facts)
        absent = [name for name in file.needed if name not in known and name not in others]
        whys = {name: facts.platform.accepts_unknown(name) for name in absent}
        for why in dict.fromkeys(whys.values()):
            names = [name for name in absent if whys[name] == why]
            yield _unknown_libraries(member.name, names, why, facts)
        if astray:
            yield _astray_libraries(member, astray, facts)
        if not absent and not astray and not others:
            reason = f"libraries that it needs: {len(file.needed)}, all on the target or brought"
            grade = facts.libraries.grade_of(file.needed)
            yield Finding("libraries", "pass", member.name, reason, file.needed, grade=grade)


def other_runtimes(needed: Iterable[str], platform: Platform) -> tuple[str, ...]:
    """Return those of the names that are the runtime of another CUDA than the platform's."""
    have = platform.cuda.runtime_soname
    return tuple(name for name in needed if name.startswith("libcudart.so.") and name != have)


def _other_cuda(subject: str, names: Iterable[str], facts: Facts) -> Iterator[Finding]:
    """Refuse the runtime of another CUDA, whatever a toolkit at hand may have."""
    cuda = facts.platform.cuda
    for name in names:
        reason = f"it needs {name}, and CUDA {cuda.version} of the target has "
        reason += cuda.runtime_soname
        fix = f"build it with a toolkit of CUDA {cuda.version}"
        yield Finding("libraries", "fail", subject, reason, (name,), fix)


def _astray(name: str, member: Member, file: ElfFile, facts: Facts) -> bool:
    """Say whether only the wheel has the library, and the loader is not told where."""
    if name not in facts.libraries.own:
        return False
    places = _places(member, file.rpath if file.runpath is None else file.runpath)
    if file.runpath is None:  # then RPATH of those that led to it holds as well
        for other, its in _leading_to(member, facts):
            places |= _places(other, its.rpath if its.runpath is None else None)
    homes = {
        posixpath.normpath(f"./{posixpath.dirname(other.name)}")
        for other in facts.wheel.members
        if other.file == name
    }
    return not places & homes


def _places(member: Member, path: str | None) -> set[str]:
    """Return the folders of the wheel that an RPATH of the member names."""
    origin = f"./{posixpath.dirname(member.name)}"
    return {
        posixpath.normpath(entry.replace("${ORIGIN}", "$ORIGIN").replace("$ORIGIN", origin))
        for entry in (path or "").split(":")
        if "ORIGIN" in entry
    }


def _leading_to(member: Member, facts: Facts) -> list[tuple[Member, ElfFile]]:
    """Return the files of the wheel that need the member, or need what does."""
    found: list[tuple[Member, ElfFile]] = []
    names = [member.file]
    for name in names:
        for other, file in facts.loadable:
            if name in file.needed and all(other is not one for one, _ in found):
                found.append((other, file))
                names.append(other.file)  # grows while it is walked
    return found


def _astray_libraries(member: Member, names: list[str], facts: Facts) -> Finding:
    reason = f"no RPATH of it leads to {', '.join(names)}, which the wheel brings along"
    fix = "link it with -Wl,-rpath,'$ORIGIN/<the way to that folder>'"
    files = {
        file.soname: other.file
        for other, file in facts.loadable
        if file.soname in names and other.file != file.soname
    }
    if files:
        known = ", ".join(f"{name} only as {file}" for name, file in files.items())
        reason = f"the wheel has {known}, and the loader opens a file by the name that is needed"
        fix = "give the file its soname as name; a wheel cannot hold the symbolic link"
    return Finding("libraries", "unknown", member.name, reason, tuple(names), fix)


def _unknown_libraries(subject: str, names: list[str], why: str | None, facts: Facts) -> Finding:
    listed = ", ".join(names)
    if facts.libraries.stubs.issuperset(names):
        reason = f"it needs {listed}, of which only empty import stubs are at hand"
    else:
        reason = f"it needs {listed}, and nothing says that the target has that"
    return Finding(
        "libraries",
        "unknown",
        subject,
        reason,
        tuple(names),
        "put it into the wheel, link without it, or check for a platform that has it",
        accepted=why,
    )

"""The rule about symbols: whether the target's loader finds each one that a file leaves open."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jetship.check import mangled
from jetship.check.facts import Facts
from jetship.check.findings import Finding, Grade
from jetship.check.libraries import Library, Scope
from jetship.check.rules_elf import has_version, other_runtimes
from jetship.elf import Undefined

# Which of torch's CUDA libraries defines the names that begin so.
_CUDA_OWNERS = {"c10_cuda": ("3c104cuda",), "torch_cuda": ("2at4cuda", "5torch4cuda")}
_CUDA_LIBRARIES = tuple(f"lib{name}.so" for name in _CUDA_OWNERS)


@dataclass(frozen=True)
class _Open:
    """A symbol that no library at hand defines, and what is known about it."""

    symbol: Undefined
    kind: str  # "abi", "missing", "unknown", or "accepted"
    hint: str = ""
    without: tuple[str, ...] = ()  # for "unknown": what would have to be at hand

    def __str__(self) -> str:
        name, version = self.symbol.name, self.symbol.version
        return (f"{name}@{version}" if version else name) + self.hint


_SENTENCES = {
    "abi": "it was compiled with the other C++ ABI (std::string) than the target's torch",
    "missing": "no library that is loaded with it has {count} that it leaves open",
    "unknown": "the origin of {count} cannot be told without {libraries}",
    "accepted": "it takes {count} from libraries that this platform lacks: {libraries}",
}
_FIXES = {
    "abi": "compile it with -D_GLIBCXX_USE_CXX11_ABI={abi}, C++ and CUDA files alike, "
    "as `invoke build` does",
    "missing": "build it against torch {torch}, and link it with the libraries that define them",
    "unknown": "put these libraries into the wheel, or check for a platform that has them",
    "absent": "check it against the target's own: `invoke probe USER@HOST` reads those of a device "
    "for --libraries, or name an image of it with --image",
    "accepted": "nothing to do here; on a device these libraries have to be there",
}


def symbols(facts: Facts) -> Iterator[Finding]:
    """Every symbol that a file leaves open is in a library that is loaded with it."""
    for member, file in facts.loadable:
        scope = facts.libraries.scope(file)
        wanted = [s for s in file.undefined if s.referenced and not s.weak]
        # The rule about libraries has refused these: what they define is no question of its own.
        refused = {*other_runtimes(file.needed, facts.platform)} & {*scope.untabled}
        if refused:
            rest = tuple(name for name in scope.untabled if name not in refused)
            scope = replace(scope, untabled=rest)
            wanted = [s for s in wanted if not _is_of(s, refused)]
        owners = [(symbol, scope.find(symbol)) for symbol in wanted]
        opens = [_classify(symbol, scope, facts) for symbol, owner in owners if owner is None]
        found = [owner for _, owner in owners if owner is not None]
        if not opens:
            reason = f"{_symbols(len(found))} that it leaves open: all found on the target"
            yield Finding("symbols", "pass", member.name, reason, grade=_grade(found))
        for kind in _SENTENCES:
            rows = [row for row in opens if row.kind == kind]
            if rows:
                yield _finding(member.name, kind, rows, scope, facts)


def _is_of(symbol: Undefined, runtimes: set[str]) -> bool:
    """Return whether a symbol is CUDA's runtime's: those names begin so, and no other's do."""
    return symbol.library in runtimes or symbol.name.startswith(("cuda", "__cuda"))


def _grade(found: list[Library]) -> Grade:
    if not found:
        return "none"
    return "exact" if all(library.grade == "exact" for library in found) else "derived"


def _finding(subject: str, kind: str, rows: list[_Open], scope: Scope, facts: Facts) -> Finding:
    torch = facts.platform.torch
    without = tuple(dict.fromkeys(name for row in rows for name in row.without)) or scope.untabled
    values = {
        "count": _symbols(len(rows)),
        "libraries": ", ".join(without),
        "torch": torch.version,
        "abi": int(torch.cxx11_abi),
    }
    whys = [facts.platform.accepts_unknown(name) for name in scope.untabled]
    return Finding(
        "symbols",
        "fail" if kind in ("abi", "missing") else "unknown",
        subject,
        _SENTENCES[kind].format(**values),
        tuple(sorted(map(str, rows))),
        _FIXES["absent" if {*without} - {*scope.untabled} else kind].format(**values),
        accepted=next((why for why in whys if why), None) if kind == "accepted" else None,
    )


def _symbols(count: int) -> str:
    return "1 symbol" if count == 1 else f"{count} symbols"


def _classify(symbol: Undefined, scope: Scope, facts: Facts) -> _Open:
    """Say what an unresolved symbol means; an unknown is never more than that."""
    abi = mangled.string_abi(symbol.name)
    have = "cxx11" if facts.platform.torch.cxx11_abi else "pre-cxx11"
    near, owner = _near(symbol.name, scope)
    if abi and mangled.in_torch(symbol.name) and abi != have:
        return _Open(symbol, "abi", f"; {owner} has {near}" if near else "")
    if near and abi != have and mangled.abi_twins(symbol.name, near):
        return _Open(symbol, "abi", f"; {owner} has {near}")
    without = _stand_ins(symbol, scope, facts)
    kind = "unknown" if without else _kind(symbol, scope, facts)
    if kind == "accepted":
        return _Open(symbol, kind)
    if near:
        hint = f"; {owner} has another one of that name: {near}"
        return _Open(symbol, kind, hint, without)
    other = _other_versions(symbol, scope)
    if other:
        return _Open(symbol, kind, other, without)
    elsewhere = [
        library.name for library in facts.libraries.libraries.values() if library.answers(symbol)
    ]
    hint = f"; {elsewhere[0]} has it, but the file does not need that" if elsewhere else ""
    return _Open(symbol, kind, hint, without)


def _other_versions(symbol: Undefined, scope: Scope) -> str:
    """Say which versions of the name there are, where it is not the one that is asked for."""
    for library in scope.libraries:
        versions = sorted(set(library.elf.exports.get(symbol.name, ())) - {""})
        if symbol.version and versions:
            return f"; {library.name} has it only as {', '.join(versions)}"
    return ""


def _stand_ins(symbol: Undefined, scope: Scope, facts: Facts) -> tuple[str, ...]:
    """Return what the target has, but is not at hand or not whole, and may define the symbol."""
    interpreter = facts.libraries.interpreter
    if mangled.is_pythons(symbol.name) and interpreter is None:
        return (f"Python {facts.platform.python.version}",)
    for library in scope.libraries:
        version = symbol.version or ""
        # Versions above the platform's are refused by the rule about them.
        known = library.name == symbol.library and has_version(version, facts.platform)
        if known and library.is_older_than(version):
            return (f"the {library.name} of {facts.platform.name} itself",)
    partial = [library.name for library in scope.libraries if library.may_have(symbol)]
    return tuple(f"all names of {'Python' if name == interpreter else name}" for name in partial)


def _kind(symbol: Undefined, scope: Scope, facts: Facts) -> str:
    if not scope.untabled or symbol.library in scope.names:
        return "missing"
    if symbol.library is not None:
        return "unknown"
    absent_cuda = [name for name in scope.untabled if name in _CUDA_LIBRARIES]
    if absent_cuda and _is_cuda_name(symbol.name):
        accepted = all(facts.platform.accepts_unknown(name) for name in absent_cuda)
        return "accepted" if accepted else "unknown"
    # A name that torch's CUDA libraries do not define has to come from another one.
    return "unknown" if len(absent_cuda) < len(scope.untabled) else "missing"


def _is_cuda_name(name: str) -> bool:
    qualified = mangled.qualified_name(name) or ""
    return any(qualified.startswith(prefixes) for prefixes in _CUDA_OWNERS.values())


def _near(name: str, scope: Scope) -> tuple[str, str]:
    """Return a symbol of the same C++ name but another signature, and its library."""
    qualified = mangled.qualified_name(name)
    if qualified is None:
        return "", ""
    found = [
        (export, library.name)
        for library in scope.libraries
        for export in library.spelled(qualified)
    ]
    # The other ABI's twin explains more than just another overload.
    abi = mangled.string_abi(name)
    return min(found, key=lambda row: mangled.string_abi(row[0]) in (None, abi), default=("", ""))

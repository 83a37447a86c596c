"""What can be read from mangled C++ names without demangling them."""

import ctypes
import functools
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from jetship import proc
from jetship.errors import ToolMissingError

# The C++ library of this machine, which has a demangler of its own in it: apt needs it, so that it
# is wherever jetship runs.
BUILT_IN = Path("libstdc++.so.6")
# A batch stays far below the limit on the length of a command line.
_BATCH = 200
_LENGTH = re.compile(r"[1-9]\d{0,3}")
# What else has digits in it: substitutions, template parameters, constructors and literals.
_LENGTH_OR_CODE = re.compile(r"[ST][0-9A-Z]*_|[CD][0-5]|L[a-z]\d+E|([1-9]\d{0,3})")
_LONG_STRING = "std::basic_string<char, std::char_traits<char>, std::allocator<char> >"
_TORCH_NAMESPACES = ("c10", "at", "torch", "caffe2")


def qualified_name(symbol: str) -> str | None:
    """Return what two overloads share: "3c104cuda9SetDevice" of _ZN3c104cuda9SetDeviceEab.

    None where the name is not a C++ name that a plain prefix can be read from.
    """
    match = re.match(r"_Z(?:T[VIST])?(?:N[rVK]*)?(?=\d)", symbol)
    parts = _identifiers(symbol, match.end()) if match else []
    return "".join(f"{len(part)}{part}" for part in parts) or None


def in_torch(symbol: str) -> bool:
    """Return whether the name lies in one of torch's own C++ namespaces."""
    match = re.match(r"_Z(?:T[VIST])?(?:N[rVK]*)?(?=\d)", symbol)
    parts = _identifiers(symbol, match.end()) if match else []
    return bool(parts) and parts[0] in _TORCH_NAMESPACES


def is_pythons(symbol: str) -> bool:
    """Return whether the name is one of the C API of Python."""
    return symbol.startswith(("Py", "_Py"))


def string_abi(symbol: str) -> str | None:
    """Return which std::string the name speaks of: "cxx11", "pre-cxx11", or None for neither."""
    if "7__cxx11" in symbol or "B5cxx11" in symbol:
        return "cxx11"
    return "pre-cxx11" if symbol.startswith("_Z") and "Ss" in _skeleton(symbol) else None


def abi_twins(one: str, other: str) -> bool:
    """Return whether two symbols of one C++ name differ by the ABI of std::string.

    A function that only returns one has the tag B5cxx11 in its name with the new ABI.
    """
    if {string_abi(one), string_abi(other)} == {"cxx11", "pre-cxx11"}:
        return True
    return one != other and one.replace("B5cxx11", "") == other.replace("B5cxx11", "")


def without_string_abi(name: str) -> str:
    """Return a demangled name in which both ABIs of std::string look alike."""
    plain = name.replace("[abi:cxx11]", "").replace("std::__cxx11::", "std::")
    return plain.replace(_LONG_STRING, "std::string")


def demangle(symbols: Iterable[str], program: Path) -> Mapping[str, str]:
    """Return C++ names by mangled name, with a c++filt program or with `BUILT_IN`.

    Empty where the program does not work: then people see the mangled names.

    Raises:
        ToolMissingError: `BUILT_IN` is asked for, and this machine has none.
    """
    names = sorted({name for name in symbols if name.startswith("_Z")})
    if program == BUILT_IN:
        plain = {name: _demangled(name) for name in names}
        return {name: _shorter(text) for name, text in plain.items() if text}
    found: dict[str, str] = {}
    for start in range(0, len(names), _BATCH):
        batch = names[start : start + _BATCH]
        done = proc.run([program, *batch])
        lines = done.stdout.splitlines()
        if done.ok and len(lines) == len(batch):
            found.update(zip(batch, map(_shorter, lines), strict=True))
    return found


def _demangled(name: str) -> str:
    """Return one C++ name, or "" where it is none."""
    library, release = _built_in()
    status = ctypes.c_int()
    text = library(name.encode(), None, None, ctypes.byref(status))
    if not text:
        return ""
    try:
        return ctypes.string_at(text).decode("utf-8", "backslashreplace")
    finally:
        release(text)


@functools.cache
def _built_in() -> tuple[Callable[..., int | None], Callable[[int], None]]:
    """Return the demangler of the C++ library, and what frees its answers."""
    try:
        # https://itanium-cxx-abi.github.io/cxx-abi/abi.html#demangler
        demangler = ctypes.CDLL(str(BUILT_IN))["__cxa_demangle"]
    except (OSError, AttributeError) as error:
        raise ToolMissingError(
            f"this machine has no {BUILT_IN}, which reads C++ names",
            why=str(error),
            fix="install it: apt-get install libstdc++6",
        ) from error
    demangler.restype = ctypes.c_void_p
    release = ctypes.CDLL(None).free
    release.argtypes = [ctypes.c_void_p]
    return demangler, release


def _shorter(name: str) -> str:
    """Return a C++ name with std::string written as people write it."""
    return re.sub(
        r"std::(__cxx11::)?basic_string<char, std::char_traits<char>, std::allocator<char> ?>",
        r"std::\1string",
        name,
    )


def _identifiers(symbol: str, place: int) -> list[str]:
    """Return the length-prefixed identifiers that follow each other from `place` on."""
    found = []
    while match := _LENGTH.match(symbol, place):
        end = match.end() + int(match[0])
        if end > len(symbol):
            break
        found.append(symbol[match.end() : end])
        place = end
    return found


def _skeleton(symbol: str) -> str:
    """Return the name without its identifiers, which may hold any letters."""
    kept, place = [], 0
    while match := _LENGTH_OR_CODE.search(symbol, place):
        kept.append(symbol[place : match.start()])
        place = match.end() + int(match[1] or 0)
    return "|".join([*kept, symbol[place:]])

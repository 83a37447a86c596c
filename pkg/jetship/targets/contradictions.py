"""What a platform and its parts say differently: told as their file is read, not by a build."""

from collections.abc import Iterator

from packaging.version import InvalidVersion, Version

from jetship.targets.model import Platform
from jetship.targets.parts import NamedPart

Key = tuple[int | str, ...]
Contradiction = tuple[Key, NamedPart, str]


def contradictions(platform: Platform) -> Iterator[Contradiction]:
    """Yield the key of each part that does not fit the platform, the part, and what differs.

    Only what the part's own description says can be compared.
    """
    parts = platform.toolchain
    named: list[tuple[Key, NamedPart | None]] = [
        (("toolchain", role), getattr(parts, role))
        for role in ("compiler", "sysroot", "torch", "base", "emulated")
    ]
    named += [(("toolchain", "cuda", at), toolkit) for at, toolkit in enumerate(parts.cuda)]
    for key, part in named:
        if part is not None:
            said = _machine(platform, part) or _DIFFERENCES.get(str(key[1]), _none)(platform, part)
            if said:
                yield key, part, said


def _none(_platform: Platform, _named: NamedPart) -> str:
    return ""


def _machine(platform: Platform, named: NamedPart) -> str:
    machine = named.part.made_for
    if machine in (None, platform.machine):
        return ""
    return f"part {named.name} is for {machine}, and the platform is {platform.machine}"


def _glibc(platform: Platform, named: NamedPart) -> str:
    """Compare the C library, which is another one where the evidence is derived."""
    glibc, own = named.part.glibc, platform.abi.glibc
    if not glibc or glibc == own or platform.evidence == "derived":
        return ""
    return (
        f"part {named.name} has glibc {glibc}, and the platform {own}: name one with {own}, "
        "or write `evidence: derived`"
    )


def _cuda(platform: Platform, named: NamedPart) -> str:
    """Compare major releases: within one, the runtime library is the same."""
    version, own = named.part.version, platform.cuda.version
    if version.partition(".")[0] == own.partition(".")[0]:
        return ""
    return f"part {named.name} is CUDA {version}, and the platform's is {own}"


def _torch(platform: Platform, named: NamedPart) -> str:
    python, torch = platform.python.abi, platform.torch.version
    differing = []
    for wheel in named.part.wheels:
        if wheel.abi != python:
            differing.append(f"is for {wheel.abi}, and the platform's Python is {python}")
        for requirement in wheel.requirements:
            name, _, version = requirement.partition("==")
            if name == "torch" and not _same_torch(version, platform):
                differing.append(f"is torch {version}, and the platform's is {torch}")
    return "; ".join(f"part {named.name} {words}" for words in differing)


def _same_torch(version: str, platform: Platform) -> bool:
    """Return whether it is that release, or where the evidence is derived, another patch of it."""
    digits = 3 if platform.evidence == "exact" else 2
    try:
        releases = [Version(one).release[:digits] for one in (version, platform.torch.version)]
    except InvalidVersion:
        return True  # whoever reads that version says so
    return releases[0] == releases[1]


_DIFFERENCES = {"sysroot": _glibc, "cuda": _cuda, "torch": _torch}

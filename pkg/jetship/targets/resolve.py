"""From what people ask for (arch, board, platform, JetPack release) to targets."""

import contextlib
import re
from dataclasses import dataclass

from packaging.version import Version

from jetship.errors import ConfigError
from jetship.targets.arch import Arch, DeviceCode
from jetship.targets.catalog import Catalog
from jetship.targets.model import Board, Platform, Target, parse_target_id

DEFAULT_PLATFORM = "debian-12"


@dataclass(frozen=True)
class _Entry:
    position: int
    text: str


def resolve(
    catalog: Catalog,
    *,
    arch: str | None = None,
    board: str = "",
    platform: str = "",
    jetpack: str = "",
    fat: bool = False,
) -> tuple[Target, ...]:
    """Return one target an arch, or one for all archs together where `fat` is set.

    Args:
        catalog: the known boards and platforms.
        arch: compute capabilities as people write them: "6.2", "6.2,7.2", "6.2;7.2+PTX".
        board: a board's name; gives the arch where none is named.
        platform: a platform's name.
        jetpack: a JetPack release, in place of `platform`.
        fat: put the device code of all archs into one wheel.

    Raises:
        ConfigError: an entry is malformed, unknown, impossible together with the others, or
            leaves open which platform is meant; says what is possible.
    """
    found = catalog.board(board) if board else None
    if found is not None and arch is not None:
        # What contradicts itself is told before what is left open.
        _refuse_other_archs(catalog, found, arch)
    chosen = platform_for(catalog, found, platform=platform, jetpack=jetpack)
    if arch is None:
        if found is None:
            raise ConfigError(
                "neither an arch nor a board is named", fix="--arch 6.2, or --board tx2"
            )
        arch = found.arch
    code = tuple(_device_code(catalog, chosen, entry) for entry in _entries(arch))
    _refuse_repeated(code)
    if fat:
        return (Target(tuple(sorted(code, key=lambda c: c.arch)), chosen),)
    return tuple(Target((one,), chosen) for one in code)


def resolve_id(catalog: Catalog, text: str) -> Target:
    """Return the target that an id such as sm62-debian-12 names.

    Raises:
        ConfigError: it is no target id, or names what the catalog does not know or cannot make.
    """
    code, name = parse_target_id(text)
    if not code:
        return Target((), catalog.platform(name))
    archs = ",".join(str(one) for one in code)
    return resolve(catalog, arch=archs, platform=name, fat=True)[0]


def platform_for(catalog: Catalog, board: Board | None, *, platform: str, jetpack: str) -> Platform:
    """Return the platform that is named, or the one of the board, or the default one.

    Raises:
        ConfigError: it is unknown, does not run on the board, or the board has several that none
            of the others superseded.
    """
    if jetpack:
        released = catalog.platform_of_jetpack(jetpack)
        if platform and released.name != platform:
            raise ConfigError(
                f"JetPack {jetpack} is the platform {released.name}, not {platform}",
                fix="give one of --jetpack and --platform",
            )
        platform = released.name
    if not platform and board is not None:
        current = [
            name
            for name in board.platforms
            if catalog.platform(name).superseded_by not in board.platforms
        ]
        if len(current) > 1:
            raise ConfigError(
                f"several platforms run on {_one(board)}: {', '.join(board.platforms)}",
                fix=f"say which, such as --platform {board.platforms[-1]}",
            )
        platform = current[0]
    chosen = catalog.platform(platform or DEFAULT_PLATFORM)
    if board is not None and chosen.kind != "emulation" and chosen.name not in board.platforms:
        raise ConfigError(
            f"{chosen.name} does not run on {_one(board)}: {_range(catalog, board)}",
            fix=f"possible: {', '.join(board.platforms)}",
        )
    return chosen


def _one(board: Board) -> str:
    """Return a board's title as a sentence has it; a server's is a list of products."""
    return f"a {board.title}" if board.kind == "jetson" else board.title


def _range(catalog: Catalog, board: Board) -> str:
    """Say where a Jetson's platforms begin and end, and which ones a server has."""
    if board.kind != "jetson":
        return f"that GPU has the platforms {', '.join(board.platforms)}"
    first, last = (catalog.platform(board.platforms[index]) for index in (0, -1))
    if first is last:
        return f"it ends at {last.title}"
    return f"it begins at {first.title} and ends at {last.title}"


def _refuse_repeated(code: tuple[DeviceCode, ...]) -> None:
    archs = [one.arch for one in code]
    repeated = sorted({arch for arch in archs if archs.count(arch) > 1})
    if repeated:
        raise ConfigError(
            f"--arch names {', '.join(map(str, repeated))} more than once", fix="name each one once"
        )


def _refuse_other_archs(catalog: Catalog, board: Board, archs: str) -> None:
    """Refuse archs that the board does not have; what is no arch at all is told later."""
    own = Arch.parse(board.arch)
    asked: list[Arch] = []
    for entry in _entries(archs):
        with contextlib.suppress(ValueError):
            asked.append(DeviceCode.parse(entry.text).arch)
    other = [arch for arch in dict.fromkeys(asked) if arch != own]
    if other:
        facts = [catalog.arch_facts(arch) for arch in other]
        raise ConfigError(
            f"the GPU of {_one(board)} is {own}, not {', '.join(map(str, other))}",
            why="; ".join(known.note for known in facts if known and known.note),
            fix=f"leave --arch out, or say --arch {own}",
        )


def _entries(text: str) -> list[_Entry]:
    if not text.strip():
        raise ConfigError("--arch is empty", fix="name a compute capability, such as --arch 6.2")
    # "6.2, 7.2" has one separator, "6.2,,7.2" two with an empty entry between them.
    parts = re.split(r"\s*[,;]\s*|\s+", text.strip())
    entries = [_Entry(number, part) for number, part in enumerate(parts, start=1)]
    empty = next((entry for entry in entries if not entry.text), None)
    if empty is not None:
        raise ConfigError(
            f"--arch {text!r} has an empty entry at position {empty.position}",
            fix="remove the separator that stands too much",
        )
    return entries


def _device_code(catalog: Catalog, platform: Platform, entry: _Entry) -> DeviceCode:
    try:
        code = DeviceCode.parse(entry.text)
    except ValueError as error:
        raise ConfigError(
            f"--arch entry {entry.position}: {entry.text!r} is not a compute capability",
            why=_why_malformed(entry.text),
            fix=possible(catalog, platform),
        ) from error
    if code.arch not in platform.cuda.drives:
        raise _impossible(catalog, platform, entry, code.arch)
    return code


def _impossible(catalog: Catalog, platform: Platform, entry: _Entry, arch: Arch) -> ConfigError:
    """Say why a platform has no such arch, with what is known of the arch and of its boards."""
    boards = catalog.boards_of(arch)
    known = catalog.arch_facts(arch)
    if not boards and known is None:
        return ConfigError(
            f"--arch entry {entry.position}: no GPU of compute capability {arch} is known",
            fix=possible(catalog, platform),
        )
    why = []
    if known is not None and known.note and platform.kind != "server":
        why.append(known.note)
    if known is not None and known.last_cuda and _newer(platform.cuda.version, known.last_cuda):
        why.append(
            f"CUDA {platform.cuda.version} has no sm_{arch.number}: CUDA {known.last_cuda} is the "
            "last"
        )
    why += [f"{board.title} ({arch}): {_range(catalog, board)}" for board in boards]
    return ConfigError(
        f"CUDA {platform.cuda.version} of {platform.name} drives no GPU of compute capability "
        f"{arch}",
        why="; ".join(why),
        fix=f"{possible(catalog, platform)}; `invoke targets` lists which platform makes what",
    )


def _newer(version: str, than: str) -> bool:
    return Version(version) > Version(than)


def _why_malformed(text: str) -> str:
    if text.lower() in ("all", "common", "auto", "native"):
        return "a wheel is built for named targets, never for whatever a list happens to hold"
    digits = re.fullmatch(r"(?:sm|compute)?[-_]?([0-9]{1,2})([0-9])", text, re.IGNORECASE)
    if digits:
        return f"did you mean {digits[1]}.{digits[2]}?"
    if text.isalpha():
        return "family names do not say which GPU: Pascal alone has 6.0, 6.1 and 6.2 (TX2)"
    odd = next((place for place, sign in enumerate(text) if sign not in "0123456789.+PTXsm_"), None)
    if odd is not None:
        return f"character {odd + 1}, {text[odd]!r}, does not belong there"
    return "it is written as MAJOR.MINOR, with +PTX behind it to add PTX"


def possible(catalog: Catalog, platform: Platform) -> str:
    """Say which archs a platform can make, and for which boards."""
    drives = set(platform.cuda.drives)
    rows: dict[Arch, list[str]] = {}
    for board in catalog.boards:
        arch = Arch.parse(board.arch)
        if arch in drives:
            rows.setdefault(arch, []).append(board.title)
    listed = ", ".join(f"{arch} ({'; '.join(rows[arch])})" for arch in sorted(rows))
    return f"{platform.name} can make: {listed}"

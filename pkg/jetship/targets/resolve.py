"""From what people ask for (arch, board, platform, JetPack release) to targets."""

import contextlib
import re
from dataclasses import dataclass

from packaging.version import Version

from jetship.errors import ConfigError
from jetship.targets.arch import Arch, DeviceCode
from jetship.targets.catalog import Catalog
from jetship.targets.model import CPU_ONLY, Board, Platform, Target, parse_target_id

DEFAULT_PLATFORM = "debian-12"
# Said of an arch that stands in deploy.yaml, where its place is told.
WITHOUT_OPTION = "arch"


@dataclass(frozen=True)
class _Entry:
    """One arch of a list, and the name of the option or variable that has it."""

    position: int
    text: str
    said: str

    def __str__(self) -> str:
        if self.said == WITHOUT_OPTION:
            return self.said
        return f"{self.said} entry {self.position}"


def resolve(
    catalog: Catalog,
    *,
    arch: str | None = None,
    board: str = "",
    platform: str = "",
    jetpack: str = "",
    fat: bool = False,
    said: str = "--arch",
) -> tuple[Target, ...]:
    """Return one target an arch, or one for all archs together where `fat` is set.

    Args:
        catalog: the known boards and platforms.
        arch: compute capabilities as people write them: "6.2", "6.2,7.2", "6.2;7.2+PTX".
        board: a board's name; gives the arch where none is named.
        platform: a platform's name.
        jetpack: a JetPack release, in place of `platform`.
        fat: put the device code of all archs into one wheel.
        said: where `arch` was given, for errors.

    Raises:
        ConfigError: an entry is malformed, unknown, impossible together with the others, or
            leaves open which platform is meant; says what is possible.
    """
    found = board_for(catalog, board, platform=platform, jetpack=jetpack) if board else None
    if found is not None and arch is not None:
        # What contradicts itself is told before what is left open.
        _refuse_other_archs(catalog, found, _entries(arch, said))
    chosen = platform_for(catalog, found, platform=platform, jetpack=jetpack)
    if arch is None:
        if found is None:
            raise ConfigError(
                "neither an arch nor a board is named", fix="--arch 6.2, or --board tx2"
            )
        arch = found.arch
    code = _code(catalog, chosen, _entries(arch, said))
    _refuse_repeated(code, said)
    if fat:
        return (Target(tuple(sorted(code, key=lambda c: c.arch)), chosen),)
    return tuple(Target((one,), chosen) for one in code)


def resolve_id(catalog: Catalog, text: str) -> Target:
    """Return the target that an id such as sm62-debian-12 names; 6.2/debian-12 is the same.

    Raises:
        ConfigError: it is no target id, names several targets, or names what the catalog does not
            know or cannot make.
    """
    _refuse_several(text)
    if "/" in text:
        archs, _, name = text.rpartition("/")
        if archs == CPU_ONLY:
            return Target((), catalog.platform(name))
        return resolve(catalog, arch=archs, platform=name, fat=True, said="--target")[0]
    code, name = parse_target_id(text)
    if not code:
        return Target((), catalog.platform(name))
    archs = ",".join(str(one) for one in code)
    return resolve(catalog, arch=archs, platform=name, fat=True, said="--target")[0]


def resolve_ids(catalog: Catalog, text: str) -> tuple[Target, ...]:
    """Return the targets that one id or a list of ids names, each once.

    Raises:
        ConfigError: as `resolve_id`, of the first that is wrong.
    """
    found = [resolve_id(catalog, name) for name in _several(text) or [text]]
    return tuple({target.id: target for target in found}.values())


def _several(text: str) -> list[str]:
    """Return the ids of a list of them; nothing where the commas are those of archs."""
    names = [name for name in re.split(r"[\s,;]+", text) if name]
    whole = re.compile(rf"(?:sm[0-9]|{CPU_ONLY})[^/]*-|.+/")
    return names if len(names) > 1 and all(map(whole.match, names)) else []


def _refuse_several(text: str) -> None:
    names = _several(text)
    if names:
        raise ConfigError(
            f"--target takes one target, and {text!r} names {len(names)}",
            fix="run the task once for each, or name several archs: --arch 6.2,7.2 --platform NAME",
        )


def board_for(catalog: Catalog, name: str, *, platform: str, jetpack: str) -> Board:
    """Return a board by name; what was asked for with it shapes what an error proposes.

    Raises:
        ConfigError: no such board, or several.
    """
    on = None
    with contextlib.suppress(ConfigError):  # that is told once the board is known
        if platform or jetpack:
            on = platform_for(catalog, None, platform=platform, jetpack=jetpack)
    return catalog.board(name, on=on)


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
            f"{chosen.name} does not run on {_one(board)}: {_why_not(catalog, board, chosen)}",
            fix=f"possible: {', '.join(board.platforms)}",
        )
    return chosen


def _one(board: Board) -> str:
    """Return a board's title as a sentence has it; a server's is a list of products."""
    return f"a {board.title}" if board.kind == "jetson" else board.title


def _why_not(catalog: Catalog, board: Board, platform: Platform) -> str:
    """Say what keeps a platform from running on a board."""
    if board.cpu not in (None, platform.machine):
        return f"that is for {platform.machine}, and {board.title} is {board.cpu}"
    if board.kind == "jetson" and platform.kind == "server":
        return "that is a server's platform, and it is a Jetson"
    first, last = (catalog.platform(board.platforms[index]) for index in (0, -1))
    if board.kind == "jetson" and platform.l4t and first.l4t and last.l4t:
        if _numbers(platform.l4t[-1]) < _numbers(first.l4t[0]):
            return f"the first that jetship knows for it is {first.title}"
        if _numbers(platform.l4t[0]) > _numbers(last.l4t[-1]):
            return f"the last that jetship knows for it is {last.title}"
    return f"its platforms are {', '.join(board.platforms)}"


def _numbers(l4t: str) -> Version:
    return Version(l4t.removeprefix("r"))


def _refuse_repeated(code: tuple[DeviceCode, ...], said: str) -> None:
    archs = [one.arch for one in code]
    repeated = sorted({arch for arch in archs if archs.count(arch) > 1})
    if repeated:
        raise ConfigError(
            f"{said} names {', '.join(map(str, repeated))} more than once", fix="name each one once"
        )


def _refuse_other_archs(catalog: Catalog, board: Board, entries: list[_Entry]) -> None:
    """Refuse archs that the board does not have; what is no arch at all is told later."""
    own = Arch.parse(board.arch)
    asked: list[Arch] = []
    for entry in entries:
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


def _entries(text: str, said: str) -> list[_Entry]:
    if not text.strip():
        raise ConfigError(f"{said} is empty", fix="name a compute capability, such as 6.2")
    # "6.2, 7.2" has one separator, "6.2,,7.2" two with an empty entry between them.
    parts = re.split(r"\s*[,;]\s*|\s+", text.strip())
    entries = [_Entry(number, part, said) for number, part in enumerate(parts, start=1)]
    empty = next((entry for entry in entries if not entry.text), None)
    if empty is not None:
        raise ConfigError(
            f"{said} {text!r} has an empty entry at position {empty.position}",
            fix="remove the separator that stands too much",
        )
    return entries


def _code(catalog: Catalog, platform: Platform, entries: list[_Entry]) -> tuple[DeviceCode, ...]:
    """Read the entries; what is wrong with any of them is told at once."""
    code: list[DeviceCode] = []
    wrong: list[ConfigError] = []
    for entry in entries:
        try:
            code.append(_device_code(catalog, platform, entry))
        except ConfigError as error:
            wrong.append(error)
    if len(wrong) == 1:
        raise wrong[0]
    if wrong:
        raise ConfigError(
            "; ".join(error.what for error in wrong),
            why="; ".join(dict.fromkeys(error.why for error in wrong if error.why)),
            fix=possible(catalog, platform),
        )
    return tuple(code)


def _device_code(catalog: Catalog, platform: Platform, entry: _Entry) -> DeviceCode:
    try:
        code = DeviceCode.parse(entry.text)
    except ValueError as error:
        board = _board_called(catalog, entry.text)
        if board is not None:
            raise ConfigError(
                f"{entry}: {entry.text!r} is not a compute capability",
                why=f"{entry.text} is a board",
                fix=f"--board {board.name}",
            ) from error
        raise ConfigError(
            f"{entry}: {entry.text!r} is not a compute capability",
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
    if not boards and known is None and not catalog.toolkits_of(arch):
        return ConfigError(
            f"{entry}: no GPU of compute capability {arch} is known",
            fix=possible(catalog, platform),
        )
    # What the arch of a server is called says nothing new to who asks for a server's platform.
    note = known.note if known and (platform.kind != "server" or not boards) else ""
    why = [note, _why_unmade(catalog, platform, arch)]
    why += [f"{one.title} ({arch}): {_why_not(catalog, one, platform)}" for one in boards]
    subject = platform.name + " is for"
    if platform.kind == "emulation":
        subject = f"CUDA {platform.cuda.version} of {platform.name} drives"
    return ConfigError(
        f"{entry}: {subject} no GPU of compute capability {arch}",
        why="; ".join(filter(None, why)),
        fix=f"{possible(catalog, platform)}; `invoke targets` lists which platform makes what",
    )


def _why_unmade(catalog: Catalog, platform: Platform, arch: Arch) -> str:
    """Say which CUDA has the arch, where the platform's has not."""
    known = catalog.arch_facts(arch)
    if known is not None and known.last_cuda and _newer(platform.cuda.version, known.last_cuda):
        return (
            f"CUDA {platform.cuda.version} has no sm_{arch.number}: CUDA {known.last_cuda} is the "
            "last"
        )
    own = platform.toolchain.cuda
    others = catalog.toolkits_of(arch)
    if not own or not others or any(one.part.makes({arch}) for one in own):
        return ""
    newest = max((one.part.version for one in own), key=Version)
    first, last = others[0], others[-1]
    which = f"{first} is the first" if _newer(first, newest) else f"{last} is the last"
    return f"CUDA {newest} has no sm_{arch.number}: of jetship's toolkits, {which} that has"


def _newer(version: str, than: str) -> bool:
    return Version(version) > Version(than)


def _board_called(catalog: Catalog, text: str) -> Board | None:
    """Return the board of that name, unless it is the name of a whole family."""
    if text.lower() in {row.family.lower() for row in catalog.archs}:
        return None
    with contextlib.suppress(ConfigError):
        return catalog.board(text)
    return None


def _why_malformed(text: str) -> str:
    if text.lower() in ("all", "common", "auto", "native"):
        return "a wheel is built for named targets, never for whatever a list happens to hold"
    digits = re.fullmatch(r"(?:sm|compute)?[-_]?([0-9]{1,2})([0-9])", text, re.IGNORECASE)
    ptx = re.fullmatch(r"([0-9]{1,2}\.[0-9])\+[A-Z]+", text, re.IGNORECASE)
    meant = f"{digits[1]}.{digits[2]}" if digits else f"{ptx[1]}+PTX" if ptx else ""
    if meant:
        return f"did you mean {meant}?"
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
        if arch in drives and board.cpu in (None, platform.machine):
            rows.setdefault(arch, []).append(board.title)
    listed = ", ".join(f"{arch} ({'; '.join(rows[arch])})" for arch in sorted(rows))
    return f"{platform.name} can make: {listed}"

"""From what people write (`--arch "6.2,7.2"`, `--platform P`) to targets."""

import re
from dataclasses import dataclass

from jetship.errors import ConfigError
from jetship.targets.catalog import Catalog
from jetship.targets.model import Arch, DeviceCode, Platform, Target

DEFAULT_PLATFORM = "debian-12"


@dataclass(frozen=True)
class _Entry:
    position: int
    text: str


def resolve(
    catalog: Catalog, *, arch: str, platform: str = DEFAULT_PLATFORM, fat: bool = False
) -> tuple[Target, ...]:
    """Return one target an arch, or one for all archs together where `fat` is set.

    Args:
        catalog: the known boards and platforms.
        arch: compute capabilities as people write them: "6.2", "6.2,7.2", "6.2;7.2+PTX".
        platform: a platform's name.
        fat: put the device code of all archs into one wheel.

    Raises:
        ConfigError: an entry is malformed, unknown, or cannot be made by the platform's CUDA.
    """
    chosen = catalog.platform(platform)
    code = tuple(_device_code(catalog, chosen, entry) for entry in _entries(arch))
    repeated = sorted({str(c.arch) for c in code if [d.arch for d in code].count(c.arch) > 1})
    if repeated:
        raise ConfigError(
            f"--arch names {', '.join(repeated)} more than once", fix="name each one once"
        )
    if fat:
        return (Target(tuple(sorted(code, key=lambda c: c.arch)), chosen),)
    return tuple(Target((one,), chosen) for one in code)


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
            fix=_possible(catalog, platform),
        ) from error
    boards = catalog.boards_of(code.arch)
    makes = platform.cuda.makes
    if not boards and code.arch not in makes:
        raise ConfigError(
            f"--arch entry {entry.position}: no GPU of compute capability {code.arch} is known",
            fix=_possible(catalog, platform),
        )
    if code.arch not in makes:
        raise ConfigError(
            f"CUDA {platform.cuda.version} of {platform.name} cannot compile for {code.arch}"
            + (f" ({', '.join(board.title for board in boards)})" if boards else ""),
            why=f"its nvcc makes {', '.join(str(arch) for arch in makes)}",
            fix="choose another platform; `invoke targets` lists which platform makes what",
        )
    return code


def _why_malformed(text: str) -> str:
    if text.lower() in ("all", "common", "auto", "native"):
        return "a wheel is built for named targets, never for whatever a list happens to hold"
    digits = re.fullmatch(r"(?:sm|compute)?[-_]?(\d{1,2})(\d)", text, re.IGNORECASE)
    if digits:
        return f"did you mean {digits[1]}.{digits[2]}?"
    if text.isalpha():
        return "family names do not say which GPU: Pascal alone has 6.0, 6.1 and 6.2 (TX2)"
    return "it is written as MAJOR.MINOR, with +PTX behind it to add PTX"


def _possible(catalog: Catalog, platform: Platform) -> str:
    makes = set(platform.cuda.makes)
    rows: dict[Arch, list[str]] = {}
    for board in catalog.boards:
        arch = Arch.parse(board.arch)
        if arch in makes:
            rows.setdefault(arch, []).append(board.title)
    listed = ", ".join(f"{arch} ({'; '.join(rows[arch])})" for arch in sorted(rows))
    return f"{platform.name} can make: {listed}"

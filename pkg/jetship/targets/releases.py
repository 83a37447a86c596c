"""JetPack and L4T releases as people and boards write them, and the known one next to another."""

import re
from collections.abc import Iterable

# L4T counts from 28 on, JetPack has not got beyond 7.
_FIRST_L4T = 20


def normal(text: str) -> str:
    """Return a release in short: "5.1.2" of a JetPack, "r35.4.1" of an L4T, else the text.

    Taken are also the first line of a board's /etc/nv_tegra_release, and the versions of the
    packages nvidia-jetpack (6.2+b77) and nvidia-l4t-core (36.4.3-20250107174145).
    """
    told = re.search(r"\bR([0-9]+) \(release\), REVISION: ([0-9]+(?:\.[0-9]+)*)", text)
    if told:
        return f"r{told[1]}.{told[2]}"
    plain = re.sub(r"^(?:nvidia[\s-]+)?(?:jetpack|l4t)[\s-]*", "", text.strip().lower())
    plain = re.sub(r"[-+](?:b[0-9]+|[0-9]{8,})$", "", plain)
    number = re.match(r"[0-9]+", plain)
    return f"r{plain}" if number and int(number[0]) >= _FIRST_L4T else plain


def is_line(release: str) -> bool:
    """Return whether all releases below it may be meant: r36, r32.2, or a whole JetPack, 5.

    JetPack 5.0 is none: that is a release of its own.
    """
    return bool(re.fullmatch(r"r[0-9]+(?:\.[0-9]+)*|[0-9]+", release))


def of_line(line: str, releases: Iterable[str]) -> list[str]:
    """Return the releases that belong to a line."""
    return [release for release in releases if release.startswith(f"{line}.")]


def nearest(release: str, known: Iterable[str]) -> str:
    """Return the known release that is the nearest, or "" where `release` has no number.

    It shares as many leading numbers as any; of those, the next number counts, and of two that are
    as far, the older.
    """
    wanted = numbers(release)
    rows = sorted((found, one) for one in known if (found := numbers(one)))
    if not wanted or not rows:
        return ""
    shared = max(_shared(wanted, found) for found, _ in rows)
    rows = [row for row in rows if _shared(wanted, row[0]) == shared]
    older = [row for row in rows if row[0] <= wanted][-1:]
    newer = [row for row in rows if row[0] > wanted][:1]
    return min(older + newer, key=lambda row: abs(_at(row[0], shared) - _at(wanted, shared)))[1]


def numbers(release: str) -> tuple[int, ...]:
    """Return a release's numbers, (36, 4, 3) of r36.4.3, or none where it has no number."""
    match = re.match(r"r?([0-9]+(?:\.[0-9]+)*)", release)
    return tuple(map(int, match[1].split("."))) if match else ()


def _shared(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _at(found: tuple[int, ...], place: int) -> int:
    return found[place] if place < len(found) else 0

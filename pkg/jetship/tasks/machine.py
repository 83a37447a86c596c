"""The tasks `targets`, `doctor` and `pins`: what can be built, and what is missing for it."""

import difflib
import textwrap
from collections.abc import Iterator, Sequence
from typing import Any

from invoke.context import Context

from jetship import console
from jetship.errors import ToolMissingError
from jetship.store import Store, default_root
from jetship.targets.arch import Arch
from jetship.targets.catalog import Catalog
from jetship.targets.model import Board, Platform
from jetship.targets.parts import NamedPart
from jetship.tasks.command import Reported, command
from jetship.tasks.request import JSON_HELP, Known


@command(records={"known": Known}, help={"json": JSON_HELP})
def targets(_: Context, *, known: Known, json: bool = False) -> None:
    """List the platforms, and the boards that each can make device code for.

    `evidence` is exact where the files at hand are the target's own. `verified` are the facts that
    runs here have borne out; the others were read in public sources, which --json names.
    """
    catalog = known.catalog()
    if json:
        store = Store(default_root())
        console.emit_json(
            {
                "platforms": [_platform_row(catalog, one, store) for one in catalog.platforms],
                "boards": [board.model_dump() for board in catalog.boards],
            }
        )
        return
    _print_platforms(catalog)


def _platform_row(catalog: Catalog, platform: Platform, store: Store) -> dict[str, Any]:
    from jetship.toolchain.lock import fits
    from jetship.toolchain.sources import has_part

    return {
        "platform": platform.name,
        "title": platform.title,
        "kind": platform.kind,
        "machine": platform.machine,
        "cuda": platform.cuda.version,
        "torch": platform.torch.version,
        "torch_cuda": platform.torch.cuda,
        "cxx11_abi": platform.torch.cxx11_abi,
        "python": platform.python.version,
        "archs": {
            arch: [board.title for board in _carrying(catalog, platform, Arch.parse(arch))]
            for arch in platform.cuda.archs
        },
        "boards": [board.name for board in _boards_of(catalog, platform)],
        "jetpack": list(platform.jetpack),
        "l4t": list(platform.l4t),
        "glibc": platform.abi.glibc,
        "glibcxx": platform.abi.glibcxx,
        "evidence": platform.evidence,
        "base_images": list(platform.base_images),
        "notice": platform.notice,
        "advice": dict(platform.toolchain.advice),
        "own_parts_needed": platform.toolchain.lacking,
        "parts_ready": not platform.toolchain.lacking
        and all(fits(part) and has_part(part, store) for part in platform.toolchain.all),
        "facts": {
            name: {"source": one.source, "verified": one.verified}
            for name, one in platform.facts.items()
        },
    }


def _carrying(catalog: Catalog, platform: Platform, arch: Arch) -> list[Board]:
    """Return the boards that carry an arch, less those of another machine than the platform's."""
    boards = catalog.boards_of(arch)
    return [board for board in boards if board.cpu in (None, platform.machine)]


def _boards_of(catalog: Catalog, platform: Platform) -> list[Board]:
    """Return the boards that a platform makes device code for and, unless open, runs on."""
    return [
        board
        for arch in platform.cuda.drives
        for board in _carrying(catalog, platform, arch)
        if platform.kind == "emulation" or platform.name in board.platforms
    ]


_COLUMNS = ("platform", "CUDA", "torch", "Python", "glibc", "evidence", "verified")
_INDENT = "    "


def _print_platforms(catalog: Catalog) -> None:
    """Print a line for each platform, and under it its archs and boards."""
    rows = [
        (one.name, one.cuda.version, one.torch.version.partition("+")[0], one.python.version,
         one.abi.glibc, one.evidence, _verified(one))
        for one in catalog.platforms
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(_COLUMNS, *rows, strict=True)]
    console.emit(_aligned(_COLUMNS, widths))
    for platform, row in zip(catalog.platforms, rows, strict=True):
        console.emit(_aligned(row, widths))
        for text in (_archs_and_boards(catalog, platform), *_notes(platform)):
            console.emit(_wrapped(text))


def _verified(platform: Platform) -> str:
    """Say which of the facts jetship's own runs have borne out."""
    verified = [name for name, one in platform.facts.items() if one.verified]
    if len(verified) == len(platform.facts):
        return "all"
    return ", ".join(verified) or "none"


def _aligned(row: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()


def _wrapped(text: str) -> str:
    """Return a text as lines of the terminal's width, none of which ends within a word."""
    return textwrap.fill(
        text,
        console.stdout.width,
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
    ).replace(_NO_BREAK, " ")


def _notes(platform: Platform) -> Iterator[str]:
    if platform.notice:
        yield f"note: {platform.notice}"
    if "cuda" in platform.toolchain.advice:
        yield f"--cuda-home: {platform.toolchain.advice['cuda']}"


# Stands between what one line has to hold together: "6.2 tx2".
_NO_BREAK = "\N{NO-BREAK SPACE}"


def _archs_and_boards(catalog: Catalog, platform: Platform) -> str:
    names: dict[str, list[str]] = {}
    for board in _boards_of(catalog, platform):
        names.setdefault(board.arch, []).append(board.name)
    rows = [f"{arch}{_NO_BREAK}{'/'.join(boards)}" for arch, boards in names.items()]
    known = {str(arch) for arch in platform.cuda.drives if catalog.boards_of(arch)}
    rows += [f"{arch}{_NO_BREAK}(for{_NO_BREAK}CI)" for arch in sorted(known - set(names))]
    return ", ".join(rows)


@command(
    help={"fix": "install what is missing, through apt (as root or with sudo)", "json": JSON_HELP}
)
def doctor(_: Context, *, fix: bool = False, json: bool = False) -> None:
    """Say what this machine lacks for which task, and the command that mends it.

    Exit status 0 if everything is there, 4 if something is missing.
    """
    from jetship import doctor as checks

    results = checks.examine(Store(default_root()))
    if fix and any(not one.ok for one in results):
        checks.mend([one for one in results if not one.ok])
        results = checks.examine(Store(default_root()))
    if json:
        console.emit_json({"checks": [one.to_json() for one in results]})
    else:
        for one in results:
            console.emit(
                f"{'ok  ' if one.ok else 'LACK'} {one.name} ({one.needed_for}): {one.found}"
            )
            if not one.ok:
                console.emit(f"     fix: {one.fix}")
    lacking = [one.name for one in results if not one.ok]
    if lacking:
        error = ToolMissingError(f"this machine lacks: {', '.join(lacking)}", fix="see above")
        raise Reported(error) if json else error


@command(
    records={"known": Known},
    help={"part": "the name of a part (default: those whose lock file is missing or does not fit)"},
)
def pins(_: Context, *, known: Known, part: str = "") -> None:
    """Resolve a part's downloads anew, write their versions and digests, and show the change.

    For maintainers, and for parts of your own, whose lock files are written beside their file:
    the lock files are committed, and builds only use what is in them.

        invoke pins --part cuda-12.4
        invoke pins --targets-file my-boards.yaml
    """
    from jetship.toolchain.lock import lock_path, write_lock
    from jetship.toolchain.sources import lock_part

    catalog = known.catalog()
    chosen = [catalog.part(part)] if part else _unlocked(catalog)
    if not chosen:
        console.note("every part has a lock file that fits; name one with --part to renew it")
    for named in chosen:
        path = lock_path(named.name, named.folder)
        before = path.read_text() if path.exists() else ""
        lock = lock_part(named, Store(default_root())).asked_by(named.part)
        described_in = named.file.name if named.is_users else ""
        write_lock(named.name, lock, named.folder, described_in=described_in)
        shown = difflib.unified_diff(
            before.splitlines(),
            path.read_text().splitlines(),
            str(path),
            str(path),
            lineterm="",
            n=0,
        )
        console.emit("\n".join(shown) or f"{path}: nothing has changed")


def _unlocked(catalog: Catalog) -> list[NamedPart]:
    from jetship.toolchain.lock import fits

    return [named for named in catalog.parts.values() if not fits(named)]

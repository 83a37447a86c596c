"""The tasks `targets`, `doctor` and `pins`: what can be built, and what is missing for it."""

import difflib

from invoke.context import Context
from rich import box
from rich.table import Table

from jetship import console
from jetship import doctor as checks
from jetship.errors import ToolMissingError
from jetship.store import Store, default_root
from jetship.targets.arch import Arch
from jetship.targets.catalog import Catalog
from jetship.targets.model import Platform
from jetship.targets.parts import NamedPart
from jetship.tasks.command import Reported, command
from jetship.tasks.request import JSON_HELP, Known
from jetship.toolchain.lock import lock_path, write_lock
from jetship.toolchain.sources import has_part, lock_part


@command(records={"known": Known}, help={"json": JSON_HELP})
def targets(_: Context, *, known: Known, json: bool = False) -> None:
    """List the platforms, and the boards that each can make device code for."""
    catalog = known.catalog()
    store = Store(default_root())
    rows = [
        {
            "platform": platform.name,
            "title": platform.title,
            "kind": platform.kind,
            "cuda": platform.cuda.version,
            "torch": platform.torch.version,
            "python": platform.python.version,
            "archs": {
                arch: [board.title for board in catalog.boards_of(Arch.parse(arch))]
                for arch in platform.cuda.archs
            },
            "jetpack": list(platform.jetpack),
            "l4t": list(platform.l4t),
            "glibc": platform.abi.glibc,
            "evidence": platform.evidence,
            "parts_ready": all(has_part(part, store) for part in platform.toolchain.all),
        }
        for platform in catalog.platforms
    ]
    if json:
        console.emit_json({"platforms": rows})
        return
    table = Table(box=box.SIMPLE, pad_edge=False)
    for heading in ("platform", "CUDA", "torch", "Python", "glibc", "archs and boards", "evidence"):
        table.add_column(heading)
    for platform in catalog.platforms:
        table.add_row(
            platform.name,
            platform.cuda.version,
            platform.torch.version.partition("+")[0],
            platform.python.version,
            platform.abi.glibc,
            _archs_and_boards(catalog, platform),
            platform.evidence,
        )
    console.stdout.print(table)
    for platform in catalog.platforms:
        if platform.notice:
            console.stdout.print(f"{platform.name}: {platform.notice}", markup=False)
        if "cuda" in platform.toolchain.advice:
            console.stdout.print(
                f"{platform.name}: {platform.toolchain.advice['cuda']}", markup=False
            )


def _archs_and_boards(catalog: Catalog, platform: Platform) -> str:
    rows = []
    for arch in platform.cuda.drives:
        boards = [
            board.name
            for board in catalog.boards_of(arch)
            if platform.kind == "emulation" or platform.name in board.platforms
        ]
        if boards:
            rows.append(f"{arch} {'/'.join(boards)}")
        elif catalog.boards_of(arch):
            rows.append(f"{arch} (for CI)")
    return ", ".join(rows)


@command(
    help={"fix": "install what is missing, through apt (as root or with sudo)", "json": JSON_HELP}
)
def doctor(_: Context, *, fix: bool = False, json: bool = False) -> None:
    """Say what this machine lacks for which task, and the command that mends it.

    Exit status 0 if everything is there, 4 if something is missing.
    """
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
    help={"part": "the name of a part (default: those without a lock file)"},
)
def pins(_: Context, *, known: Known, part: str = "") -> None:
    """Resolve a part's downloads anew, write their versions and digests, and show the change.

    For maintainers, and for parts of your own, whose lock files are written beside their file:
    the lock files are committed, and builds only use what is in them.

        invoke pins --part cuda-12.4
        invoke pins --targets-file my-boards.yaml
    """
    catalog = known.catalog()
    chosen = [catalog.part(part)] if part else _without_lock(catalog)
    if not chosen:
        console.note("every part has a lock file; name one with --part to renew it")
    for named in chosen:
        path = lock_path(named.name, named.folder)
        before = path.read_text() if path.exists() else ""
        lock = lock_part(named, Store(default_root()))
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


def _without_lock(catalog: Catalog) -> list[NamedPart]:
    return [
        named
        for named in catalog.parts.values()
        if not lock_path(named.name, named.folder).exists()
    ]

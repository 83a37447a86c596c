"""The tasks `targets`, `doctor` and `lock`: what can be built, and what is missing for it."""

from invoke.context import Context
from rich.table import Table

from jetship import console
from jetship import doctor as checks
from jetship.errors import ToolMissingError
from jetship.store import Store, default_root
from jetship.targets.catalog import Catalog
from jetship.targets.model import Arch
from jetship.targets.resolve import DEFAULT_PLATFORM
from jetship.tasks.command import Reported, command
from jetship.tasks.request import JSON_HELP, PLATFORM_HELP
from jetship.toolchain.lock import write_lock
from jetship.toolchain.prepare import is_prepared, write_new_lock


@command(help={"json": JSON_HELP})
def targets(_: Context, *, json: bool = False) -> None:
    """List the platforms, and the boards that each can make device code for."""
    catalog = Catalog.load()
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
            "toolchain_ready": is_prepared(platform, store),
        }
        for platform in catalog.platforms
    ]
    if json:
        console.emit_json({"platforms": rows})
        return
    for platform in catalog.platforms:
        table = Table(title=f"{platform.name}: {platform.title}", title_justify="left")
        for heading in ("arch", "boards", "the boards themselves run"):
            table.add_column(heading)
        for arch in platform.cuda.makes:
            boards = catalog.boards_of(arch)
            table.add_row(
                str(arch),
                ", ".join(board.title for board in boards) or "(no board listed)",
                ", ".join(dict.fromkeys(board.newest for board in boards)),
            )
        console.stdout.print(table)
        if platform.notice:
            console.stdout.print(f"note: {platform.notice}", markup=False)


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


@command(help={"platform": PLATFORM_HELP})
def lock(_: Context, *, platform: str = DEFAULT_PLATFORM) -> None:
    """Resolve a platform's downloads anew and write their versions and digests.

    For maintainers: the lock file is committed, and builds only use what is in it.
    """
    chosen = Catalog.load().platform(platform)
    path = write_lock(chosen, write_new_lock(chosen, Store(default_root())))
    console.emit(str(path))

"""The task `build`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from jetship import console
from jetship.store import Store, default_root
from jetship.targets.arch import Arch
from jetship.targets.catalog import Catalog
from jetship.targets.model import Board, Platform, Target
from jetship.tasks.command import Reported, command
from jetship.tasks.request import (
    DEPLOY_FILE,
    DEPLOY_HELP,
    DIST_HELP,
    JSON_HELP,
    Asked,
    Given,
    Known,
    named_project,
    project_of,
    targets_of,
)

if TYPE_CHECKING:
    from jetship.check.findings import Report
    from jetship.pipeline import Produced


@command(
    records={"asked": Asked, "given": Given, "known": Known},
    help={
        "project": "folder of a setuptools project, an sdist file, or a requirement such as "
        "torch-scatter==2.1.2 (default: deploy.yaml's, or this folder)",
        "deploy": DEPLOY_HELP,
        "dist": DIST_HELP,
        "dry": "print what would be built, what of it is in the cache and what would be fetched; "
        "build and fetch nothing",
        "verify": "build once more in another folder, with an empty cache, and compare the bytes",
        "rebuild": "build even where nothing has changed since the last time",
        "json": JSON_HELP,
    },
)
def build(
    _: Context,
    *,
    asked: Asked,
    given: Given,
    known: Known,
    project: str = "",
    deploy: str = str(DEPLOY_FILE),
    dist: str = "dist",
    dry: bool = False,
    rebuild: bool = False,
    verify: bool = False,
    json: bool = False,
) -> None:
    """Cross-build a checked wheel for each arch.

    The project's C++ and CUDA are compiled here for the target's GPU, Python, torch and glibc.
    Nothing is emulated, and no torch needs to be installed. The wheel is checked against the
    target; only one that passes lands in dist/.

        invoke build --arch 6.2
        invoke build --arch 6.2,7.2 --project ~/my_ops
        invoke build --arch 6.2 --project torch-scatter==2.1.2
        invoke build --arch '7.2+PTX' --dry
        invoke build --board xavier --jetpack 5.1.2
    """
    catalog = known.catalog(deploy)
    targets = targets_of(catalog, asked, deploy=deploy)
    store = Store(default_root())
    own = given.supply(catalog, deploy)
    if dry:
        from jetship.tasks.buildplan import print_plan, what_is_named

        named, _settings = named_project(catalog, project, deploy)
        planned = what_is_named(named, store)
        _announce(catalog, targets)
        print_plan(targets, planned, own, store, json=json)
        return
    from jetship import pipeline

    opened, settings = project_of(catalog, project, deploy, store)
    _announce(catalog, targets)
    request = pipeline.Request(opened, Path(dist), own, settings, rebuild, verify)
    results = pipeline.produce(request, targets, store)
    if json:
        console.emit_json({"wheels": [_as_json(result) for result in results]})
    else:
        _print_wheels(results)
    failed = next((result.error for result in results if result.error), None)
    if failed is not None:
        raise Reported(failed) if json else failed


def _announce(catalog: Catalog, targets: tuple[Target, ...]) -> None:
    """Say, once a platform, what its wheels are for and which boards need another one."""
    for notice in dict.fromkeys(target.platform.notice for target in targets):
        if notice:
            console.warn(notice)
    for target in targets:
        for code in target.code:
            _announce_boards(catalog, target.platform, code.arch)


def _announce_boards(catalog: Catalog, platform: Platform, arch: Arch) -> None:
    """Say where an arch's boards run something else; of a server's platform, where all do."""
    boards = catalog.boards_of(arch)
    others = [board for board in boards if platform.name not in board.platforms]
    if platform.kind != "emulation":
        if not others or others != list(boards):
            return
        console.warn(
            f"a wheel for {platform.name} with code for {arch} is for emulation and CI: no board "
            f"with that GPU runs {platform.name}"
        )
    for board in others:
        console.note(_runs(catalog, board))


def _runs(catalog: Catalog, board: Board) -> str:
    if board.kind == "jetson":
        return f"{board.title} ({board.arch}) itself runs {catalog.newest_of(board)}"
    return f"for {board.title} ({board.arch}) itself: --platform {' or '.join(board.platforms)}"


def _as_json(result: "Produced") -> dict[str, Any]:
    wheel = result.wheel
    log = wheel.log if wheel else result.log
    return {
        "target": result.target.id,
        "wheel": str(wheel.path) if wheel else None,
        "sha256": wheel.sha256 if wheel else None,
        "seconds": round(wheel.seconds, 1) if wheel else None,
        "log": str(log) if log else None,
        "unchanged": wheel.cache is None if wheel else None,
        "objects_cached": wheel.cache.hits if wheel and wheel.cache else None,
        "objects_compiled": wheel.cache.misses if wheel and wheel.cache else None,
        "outcome": result.report.outcome if result.report else None,
        "report": result.report.to_json() if result.report else None,
        "error": result.error.to_json() if result.error else None,
    }


def _print_wheels(results: "list[Produced]") -> None:
    from jetship.check.text import render

    for result in results:
        if result.report is not None and result.error is not None:
            console.text(render(result.report))
        elif result.wheel is not None and result.report is not None:
            size = result.wheel.path.stat().st_size / 1024
            accepted = sum(finding.accepted is not None for finding in result.report.findings)
            built = "unchanged" if result.wheel.cache is None else "built"
            console.note(
                f"{size:.0f} KiB, {built} in {result.wheel.seconds:.0f} s; check passed"
                + (" on derived evidence" if result.report.is_derived else "")
                + (f", {_findings(accepted)} accepted for this platform only" if accepted else "")
                + f" (`invoke check {shlex.quote(str(result.wheel.path))}` shows all)"
            )
            _note_code(result.report)
            console.emit(str(result.wheel.path))


def _findings(number: int) -> str:
    return f"{number} finding{'s' if number > 1 else ''}"


def _note_code(report: "Report") -> None:
    """Say what wheel or torch has no device code, though the check passed."""
    for finding in report.findings:
        none = finding.rule == "device-code" and "no device code" in finding.reason
        if none or (finding.rule == "torch-code" and finding.outcome == "unknown"):
            console.note(f"{finding.subject}: {finding.reason}")

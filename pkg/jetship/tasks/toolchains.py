"""The task `toolchain`: what C++ projects build with, for CMake and by hand."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Any

from invoke.context import Context

from jetship import console
from jetship.errors import ConfigError
from jetship.store import Store, default_root
from jetship.targets.model import Target
from jetship.tasks.command import command
from jetship.tasks.request import (
    DEPLOY_FILE,
    DEPLOY_HELP,
    JSON_HELP,
    TOGETHER_HELP,
    Asked,
    Given,
    Known,
    targets_of,
)

if TYPE_CHECKING:
    from jetship.toolchain.export import Exported
    from jetship.toolchain.model import Toolchain


@command(
    records={"asked": Asked, "given": Given, "known": Known},
    help={
        "deploy": DEPLOY_HELP,
        "fat": TOGETHER_HELP,
        "export": "write a folder for CMake, as links into the cache; replaces an earlier export",
        "cuda-math": "also the headers of CUDA's math libraries, a large download: cuBLAS, "
        "cuSPARSE, cuSOLVER (ATen/cuda/CUDAContext.h includes them), cuRAND and cuFFT",
        "copy": "with --export: copies instead of links, so that the folder may be moved",
        "json": JSON_HELP,
    },
)
def toolchain(
    _: Context,
    *,
    asked: Asked,
    given: Given,
    known: Known,
    deploy: str = str(DEPLOY_FILE),
    export: str = "",
    copy: bool = False,
    cuda_math: bool = False,
    json: bool = False,
) -> None:
    """Prepare a target's toolchain, and say where it is or export it for CMake.

    Several archs go into one toolchain. Without --export, the folders are printed.

        invoke toolchain --arch 6.2
        invoke toolchain --arch 6.2 --export ~/tx2
        cmake -B build -DCMAKE_TOOLCHAIN_FILE=~/tx2/aarch64-linux-gnu.cmake
    """
    from jetship.toolchain import export as exports
    from jetship.toolchain.cache import remember_export
    from jetship.toolchain.prepare import plan, prepare

    catalog = known.catalog(deploy)
    targets = targets_of(catalog, asked.together, deploy=deploy)
    _require_sense(targets, export=export, copy=copy)
    if export:
        exports.require_own(Path(export).resolve())
    store = Store(default_root())
    own = given.supply(catalog, deploy)
    rows = []
    for target in targets:
        parts = own.of(target)
        math = plan(target, parts).math if cuda_math else ()
        prepared = prepare(target, store, parts, math=math)
        folder = exports.export(prepared, target, Path(export), copy=copy) if export else None
        if folder is not None and not copy:
            remember_export(store, folder.folder)
        rows.append(_row(target, prepared, folder, copy=copy))
    if json:
        console.emit_json({"toolchains": rows})
        return
    for row in rows:
        _print(row)


def _require_sense(targets: tuple[Target, ...], *, export: str, copy: bool) -> None:
    if copy and not export:
        raise ConfigError("--copy says how to export", fix="name a folder with --export")
    if export and len(targets) > 1:
        raise ConfigError(
            f"--export writes one toolchain, and {len(targets)} targets are named: "
            + ", ".join(target.id for target in targets),
            fix="choose one of them with --target, and export the others into folders of their own",
        )


def _row(
    target: Target, prepared: "Toolchain", exported: "Exported | None", *, copy: bool
) -> dict[str, Any]:
    from jetship.toolchain import export as exports

    return {
        "target": target.id,
        "toolchain": str(prepared.root),
        "compiler": str(prepared.bin / f"{prepared.multiarch}-g++"),
        "sysroot": str(prepared.sysroot),
        "cuda_home": str(prepared.cuda_home) if prepared.cuda_version else None,
        "cuda": prepared.cuda_version or None,
        "torch": str(prepared.torch),
        "facts": dict(exports.facts_of(prepared, target)),
        "export": str(exported.folder) if exported else None,
        "toolchain_file": str(exported.toolchain_file) if exported else None,
        "copy": copy if exported else None,
    }


def _print(row: dict[str, Any]) -> None:
    if row["export"]:
        kind = "copies" if row["copy"] else "links into the cache"
        console.note(f"{row['target']} in {row['export']} ({kind}); use it with")
        file = shlex.quote(str(row["toolchain_file"]))
        console.emit(f"cmake -B build -DCMAKE_TOOLCHAIN_FILE={file}")
        return
    console.emit(f"{row['target']}: {row['toolchain']}")
    cuda = f"{row['cuda_home']} ({row['cuda']})" if row["cuda"] else "none: no device code"
    for name, value in (
        ("compiler", row["compiler"]),
        ("sysroot", row["sysroot"]),
        ("CUDA", cuda),
        ("torch", row["torch"]),
    ):
        console.emit(f"    {name:<8}  {value}")
    console.note(f"for CMake: invoke toolchain --target {row['target']} --export DIR")

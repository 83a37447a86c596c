"""A toolchain as a folder of the user's, for C++ projects that are built with CMake.

The folder has the toolchain's parts as links into the cache, or as copies that may be moved;
the CMake toolchain file, which is the same for every target; and target.cmake, the facts of
this one. torch lies in it as a view of its own, with a TorchConfig.cmake in front of upstream's
that tells the truth about the target where the wheel at hand is another build of that release.
"""

import contextlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from jetship import proc
from jetship.datafiles import data_dir
from jetship.elf import read_elf
from jetship.errors import ConfigError, ToolMissingError
from jetship.store import disk_errors, write_atomically
from jetship.targets.model import Target
from jetship.toolchain.model import Toolchain
from jetship.toolchain.wrappers import NEEDED_MACHINE

MARKER = "jetship-export.json"
FACTS = "target.cmake"
TORCH_CONFIG = "TorchConfig.cmake"
# nvcc links every program to this library of device code. It matters to kernels that start
# kernels; an empty one serves all others.
DEVICE_RUNTIME = "libcudadevrt.a"
# What a C++ project takes of an unpacked wheel; the Python half of torch stays out.
TORCH_FOLDERS = ("include", "lib")


@dataclass(frozen=True)
class Exported:
    """A finished folder, and the file in it that CMake is told of."""

    folder: Path
    toolchain_file: Path


def export(toolchain: Toolchain, target: Target, folder: Path, *, copy: bool = False) -> Exported:
    """Write `folder` anew: it holds the old export or the new one, never a part.

    Args:
        toolchain: of the target.
        target: whose device code CMake shall make.
        folder: missing, empty, or exported before.
        copy: copies in place of links, so that the folder needs no cache and may be moved.

    Raises:
        ConfigError: `folder` holds something else, or torch has no files for CMake.
        DownloadError: the disk is full or read-only.
        ToolMissingError: the cross compiler does not run here.
    """
    folder = folder.resolve()
    require_own(folder)
    _require_configs(toolchain)
    fix, other = "free some space, or name a folder on another disk", "name another folder"
    disk = disk_errors(folder, what="the exported folder", fix=fix, elsewhere=other)
    with disk, _beside(folder) as made:
        _fill(made, toolchain, target, copy=copy)
        _swap(made, folder)
    return Exported(folder, folder / _toolchain_file(toolchain).name)


def require_own(folder: Path) -> None:
    """Make sure that nothing is lost when `folder` is written anew, and that CMake can use it.

    Raises:
        ConfigError: it is a file, or a folder with something that jetship did not export; or
            there is a space in its path.
    """
    if re.search(r"[\s;]", str(folder)):
        raise ConfigError(
            f"the path {folder} has a space in it",
            why="CMake cannot identify nvcc there",
            fix="name another folder with --export",
        )
    if not folder.exists():
        return
    if (folder / MARKER).is_file():
        _refuse_foreign(folder)
        return
    if not folder.is_dir() or any(folder.iterdir()):
        raise ConfigError(
            f"{folder} was not exported by jetship",
            why=f"it has no {MARKER}, and an export replaces all that is in the folder",
            fix="name a new or an empty folder with --export",
        )


def _refuse_foreign(folder: Path) -> None:
    """Refuse to replace an export into which somebody has put something of their own."""
    try:
        written = set(json.loads((folder / MARKER).read_text())["entries"])
    except (ValueError, KeyError, TypeError) as error:
        raise ConfigError(
            f"{folder / MARKER} does not say what was exported",
            fix="delete the folder, or name another one with --export",
        ) from error
    foreign = sorted({entry.name for entry in folder.iterdir()} - written - {MARKER})
    if foreign:
        raise ConfigError(
            f"{folder} has something in it that was not exported: {', '.join(foreign)}",
            why="an export replaces all that is in the folder",
            fix="move it elsewhere, or name another folder with --export",
        )


def _require_configs(toolchain: Toolchain) -> None:
    if not (toolchain.torch / "share/cmake/Torch" / TORCH_CONFIG).is_file():
        raise ConfigError(
            f"the torch of {toolchain.platform.name} has no share/cmake/Torch/{TORCH_CONFIG}",
            fix="pass a wheel that has the files for CMake with --torch-wheel",
        )


def facts_of(toolchain: Toolchain, target: Target) -> Mapping[str, str]:
    """Return what the CMake files have to know of a target, by the names of their variables."""
    torch = target.platform.torch
    folders = [path.relative_to(toolchain.root) for path in toolchain.cuda_libraries]
    return {
        "JETSHIP_TARGET": target.id,
        "JETSHIP_MACHINE": target.platform.machine,
        "JETSHIP_TRIPLET": toolchain.multiarch,
        "JETSHIP_CXX11_ABI": str(int(torch.cxx11_abi)),
        "JETSHIP_CUDA": toolchain.cuda_version,
        "JETSHIP_CUDA_ARCHITECTURES": ";".join(
            code.arch.number + ("" if code.ptx else "-real") for code in target.code
        ),
        "JETSHIP_TORCH_CUDA_ARCH_LIST": target.arch_list,
        "JETSHIP_LIBRARY_FOLDERS": ";".join(map(str, (*folders, "stubs"))),
        "JETSHIP_TORCH_VERSION": _torch_version(toolchain),
        "JETSHIP_TORCH_HAS_CUDA": _switch(on=bool(torch.cuda and target.code)),
        "JETSHIP_TORCH_OTHER_ABI": _switch(on=_cxx11_abi(toolchain) != torch.cxx11_abi),
    }


def facts_text(facts: Mapping[str, str]) -> str:
    """Return the text of target.cmake."""
    lines = [f"set({name} {quoted(value)})" for name, value in facts.items()]
    head = "# Written by jetship: the target's facts for the CMake files of this folder."
    return "\n".join([head, *lines]) + "\n"


def quoted(value: str) -> str:
    """Return a quoted argument of CMake that means `value` and nothing else."""
    return '"' + re.sub(r'([\\"$])', r"\\\1", value) + '"'


def _switch(*, on: bool) -> str:
    return "ON" if on else "OFF"


def _torch_version(toolchain: Toolchain) -> str:
    text = (toolchain.torch / "version.py").read_text()
    found = re.search(r"^__version__ = '(.+)'", text, re.MULTILINE)
    return found[1] if found else "unknown"


def _cxx11_abi(toolchain: Toolchain) -> bool:
    """Tell which std::string the torch of the toolchain has: by c10's own functions."""
    exports = read_elf(toolchain.torch / "lib/libc10.so").exports
    return any(name.startswith("_ZN3c10") and "7__cxx11" in name for name in exports)


def _toolchain_file(toolchain: Toolchain) -> Path:
    return data_dir("toolchains") / f"{toolchain.multiarch}.cmake"


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """Yield a new folder on the same disk; whatever is left of it goes away."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        made = scratch / "made"
        made.mkdir()
        yield made
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _swap(made: Path, folder: Path) -> None:
    """Put `made` where `folder` is; the old one goes with the scratch folder around `made`."""
    old = made.with_name("old")
    if folder.exists():
        require_own(folder)
        folder.rename(old)
    try:
        made.rename(folder)
    except OSError:
        if old.exists():
            old.rename(folder)
        raise


def _fill(made: Path, toolchain: Toolchain, target: Target, *, copy: bool) -> None:
    for entry in sorted(toolchain.root.iterdir()):
        if entry not in (toolchain.site_packages, toolchain.stubs):
            _take(entry, made / entry.name, copy=copy)
    (made / "stubs").mkdir()  # there is none to take where the target's torch is a CUDA build
    for stub in sorted(toolchain.stubs.iterdir()):
        _take(stub, made / "stubs" / stub.name, copy=copy)
    if not any((path / DEVICE_RUNTIME).exists() for path in toolchain.cuda_libraries):
        _make_device_runtime(toolchain, made / "stubs" / DEVICE_RUNTIME)
    _view_torch(toolchain, made / toolchain.site_packages.name, copy=copy)
    source = _toolchain_file(toolchain)
    write_atomically(made / source.name, source.read_bytes())
    write_atomically(made / FACTS, facts_text(facts_of(toolchain, target)).encode())
    entries = sorted(entry.name for entry in made.iterdir())
    record = {
        "target": target.id,
        "toolchain": str(toolchain.root),
        "copy": copy,
        "entries": entries,
    }
    write_atomically(made / MARKER, json.dumps(record, indent=2).encode())


def _make_device_runtime(toolchain: Toolchain, archive: Path) -> None:
    """Make an archive of one empty object."""
    empty = archive.with_suffix(".o")
    program = toolchain.bin / toolchain.multiarch
    steps: tuple[list[str | Path], ...] = (
        [f"{program}-gcc", "-x", "c", "-c", "-o", empty, os.devnull],
        [f"{program}-ar", "rcs", archive, empty],
    )
    for words in steps:
        done = proc.run(words)
        if not done.ok:
            raise ToolMissingError(
                "the cross compiler of the toolchain does not work on this machine",
                why=done.stderr.strip()[-300:],
                fix=NEEDED_MACHINE,
            )
    empty.unlink()


def _view_torch(toolchain: Toolchain, view: Path, *, copy: bool) -> None:
    """Show the unpacked wheel with our TorchConfig.cmake in front of upstream's."""
    libraries = toolchain.site_packages / "torch.libs"
    if libraries.is_dir():
        _take(libraries, view / libraries.name, copy=copy)
    for name in TORCH_FOLDERS:
        _take(toolchain.torch / name, view / "torch" / name, copy=copy)
    configs = toolchain.torch / "share/cmake"
    shown = view / "torch/share/cmake"
    for entry in sorted(configs.iterdir()):
        name = "Torch-upstream" if entry.name == "Torch" else entry.name
        _take(entry, shown / name, copy=copy)
    for entry in sorted((configs / "Torch").iterdir()):
        if entry.name != TORCH_CONFIG:
            _take(entry, shown / "Torch" / entry.name, copy=copy)
    ours = data_dir("toolchains") / TORCH_CONFIG
    write_atomically(shown / "Torch" / TORCH_CONFIG, ours.read_bytes())


def _take(source: Path, destination: Path, *, copy: bool) -> None:
    """Link or copy one entry; what a part itself links to stays a link."""
    destination.parent.mkdir(parents=True, exist_ok=True)
    real = source.resolve()
    if not copy:
        destination.symlink_to(real)
    elif real.is_dir():
        shutil.copytree(real, destination, symlinks=True)
    else:
        shutil.copy2(real, destination)

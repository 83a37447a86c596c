"""Whether what the user provides is what it has to be, before anything is made of it.

Every function gets `said`, the option and path as the user knows them, and begins its error
with that.
"""

import os
import re
import zipfile
from email.parser import BytesParser
from pathlib import Path

from packaging.tags import Tag, parse_tag
from packaging.version import InvalidVersion, Version

from jetship import console, proc
from jetship.elf import MAGIC, ElfError, ElfFile, read_elf, version_key
from jetship.errors import ConfigError, ToolMissingError
from jetship.nofile import why_no_file
from jetship.targets.model import Platform
from jetship.wheelarchive import DAMAGED

BUILD_MACHINE = "x86_64"
_TORCH_FIX = "name a torch-*.whl file"
# What every torch from 1.1 on has, and nothing can be compiled or checked without.
_NEEDED_OF_TORCH = ("torch/lib/libc10.so", "torch/lib/libtorch.so", "torch/include/")


def require_folder(path: Path, said: str, *, fix: str) -> None:
    """Refuse what is no folder.

    Raises:
        ConfigError: it does not exist, or is a file.
    """
    if not path.is_dir():
        problem = "is not a folder" if path.exists() else "does not exist"
        raise ConfigError(f"{said} {problem}", fix=fix)


def cuda_release(path: Path, said: str) -> tuple[str, str]:
    """Return the release of a CUDA toolkit, and all that its nvcc says of itself.

    Raises:
        ConfigError: it has no nvcc that runs here and says its release.
    """
    fix = "name the folder of a CUDA toolkit for x86-64, such as /usr/local/cuda-10.2"
    require_folder(path, said, fix=fix)
    nvcc = path / "bin/nvcc"
    if not nvcc.is_file():
        raise ConfigError(f"{said} has no bin/nvcc", fix=fix)
    with nvcc.open("rb") as stream:
        is_elf = stream.read(len(MAGIC)) == MAGIC
    if is_elf:
        machine = _elf(nvcc, f"bin/nvcc of {said}", fix).machine
        if machine != BUILD_MACHINE:
            raise ConfigError(
                f"bin/nvcc of {said} is for {machine}, and this machine is {BUILD_MACHINE}", fix=fix
            )
    if not os.access(nvcc, os.X_OK):
        raise ConfigError(f"bin/nvcc of {said} is not executable", fix=f"chmod +x {nvcc}")
    try:
        done = proc.run([nvcc, "--version"])
    except ToolMissingError as error:
        raise ConfigError(f"bin/nvcc of {said} cannot be run", why=error.why, fix=fix) from error
    release = re.search(r"release (\d+\.\d+)", done.stdout)
    if release is None:
        raise ConfigError(
            f"bin/nvcc of {said} does not say its release",
            why=(done.stderr or done.stdout).strip()[-200:],
            fix=f"{nvcc} --version has to work here; {fix}",
        )
    return release[1], done.stdout


def target_libc(path: Path, said: str, platform: Platform) -> Path:
    """Return the C library of a sysroot; warn of one that is newer than the platform's.

    Raises:
        ConfigError: it has none, or one that is not for the target's machine.
    """
    fix = f"name the root folder of a system for {platform.machine}, with Debian's layout"
    require_folder(path, said, fix=fix)
    names = [f"{base}/{platform.machine}-linux-gnu/libc.so.6" for base in ("usr/lib", "lib")]
    name = next((name for name in names if (path / name).exists()), None)
    if name is None:
        raise ConfigError(f"{said} has no {names[0]}", fix=fix)
    elf = _elf(path / name, f"{name} of {said}", fix)
    if elf.machine != platform.machine:
        raise ConfigError(
            f"{name} of {said} is for {elf.machine}, and {platform.name} is {platform.machine}",
            fix=fix,
        )
    versions = [
        match[1]
        for text in elf.version_definitions
        if (match := re.fullmatch(r"GLIBC_(\d+(?:\.\d+)*)", text))
    ]
    if not versions:
        raise ConfigError(f"{name} of {said} is not glibc: it defines no GLIBC_ version", fix=fix)
    newest = max(versions, key=version_key)
    if version_key(newest) > version_key(platform.abi.glibc):
        console.warn(
            f"glibc {newest} of {said} is newer than {platform.abi.glibc} of {platform.name}: "
            "a wheel that takes its new symbols does not load there, and the check refuses it"
        )
    return path / name


def _elf(path: Path, said: str, fix: str) -> ElfFile:
    try:
        return read_elf(path)
    except (ElfError, OSError) as error:
        raise ConfigError(f"{said} cannot be used", why=str(error), fix=fix) from error


def require_torch(wheel: Path, said: str, platform: Platform) -> None:
    """Refuse what is no wheel of the platform's torch.

    Raises:
        ConfigError: it is no wheel, holds no torch, or is for another Python, machine or release.
    """
    if problem := why_no_file(wheel):
        raise ConfigError(f"{said} {problem}", fix=_TORCH_FIX)
    if not zipfile.is_zipfile(wheel):
        why = "it is empty" if wheel.stat().st_size == 0 else "it is not a whole zip archive"
        raise ConfigError(f"{said} is not a wheel", why=why, fix=_TORCH_FIX)
    version, tags, names = _torch_facts(wheel, said)
    fix = f"name the wheel of torch {platform.torch.version} for {platform.python.tag} on "
    fix += (
        f"{platform.machine}; for another torch, describe a platform of your own (--targets-file)"
    )
    wanted = f"{platform.python.tag}-{platform.python.abi}-*_{platform.machine}"
    if not any(_fits(tag, platform) for tag in tags):
        found = ", ".join(sorted(map(str, tags))) or "nothing that it says"
        raise ConfigError(
            f"{said} is for {found}, and {platform.name} takes {wanted}",
            fix=fix,
        )
    if version.release != Version(platform.torch.version).release:
        raise ConfigError(
            f"{said} is torch {version}, and {platform.name} has torch {platform.torch.version}",
            why=f"its wheels ask pip for {platform.torch.pinned}",
            fix=fix,
        )
    lacking = [name for name in _NEEDED_OF_TORCH if not any(one.startswith(name) for one in names)]
    if lacking:
        raise ConfigError(
            f"{said} is no whole torch: it lacks {', '.join(lacking)}", fix="get it again"
        )


def _fits(tag: Tag, platform: Platform) -> bool:
    return (
        tag.interpreter == platform.python.tag
        and tag.abi == platform.python.abi
        and tag.platform.endswith(f"_{platform.machine}")
    )


def _torch_facts(wheel: Path, said: str) -> tuple[Version, set[Tag], list[str]]:
    """Return version, tags and the files of a torch wheel, whatever the name of its file."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            names = archive.namelist()
            if "torch/version.py" not in names:
                raise ConfigError(f"{said} holds no torch", fix=_TORCH_FIX)
            info = [name for name in names if re.fullmatch(r"torch-[^/]+\.dist-info/WHEEL", name)]
            if not info:
                raise ConfigError(
                    f"{said} does not say what it is for: it has no .dist-info/WHEEL",
                    fix=_TORCH_FIX,
                )
            about = BytesParser().parsebytes(archive.read(info[0]))
            metadata = BytesParser().parsebytes(
                archive.read(info[0].replace("/WHEEL", "/METADATA"))
            )
        tags = {tag for text in about.get_all("Tag", []) for tag in parse_tag(str(text).strip())}
        return Version(str(metadata["Version"])), tags, names
    except (*DAMAGED, KeyError, InvalidVersion) as error:
        raise ConfigError(f"{said} is damaged", why=str(error), fix="get it again") from error


def python_headers(path: Path, said: str, platform: Platform) -> Path:
    """Return patchlevel.h of the platform's Python.

    Raises:
        ConfigError: the headers are of another Python, or for another machine.
    """
    version = platform.python.version
    fix = (
        f"name the prefix of a Python {version} for {platform.machine}, as "
        f"libpython{version}-dev or python-build-standalone have it"
    )
    require_folder(path, said, fix=fix)
    folder = path / f"include/python{version}"
    header = folder / "patchlevel.h"
    if not header.is_file():
        raise ConfigError(f"{said} has no include/python{version}/patchlevel.h", fix=fix)
    found = _header_version(header.read_text(errors="replace"))
    if found != version:
        says = f"is of Python {found}" if found else "does not say its version"
        raise ConfigError(f"include/python{version}/patchlevel.h of {said} {says}", fix=fix)
    _require_configuration(folder, said, platform, fix)
    return header


def _header_version(text: str) -> str | None:
    parts = [
        re.search(rf"^\s*#\s*define\s+PY_{part}_VERSION\s+(\d+)", text, re.MULTILINE)
        for part in ("MAJOR", "MINOR")
    ]
    numbers = [part[1] for part in parts if part]
    return ".".join(numbers) if len(numbers) == len(parts) else None


def _require_configuration(folder: Path, said: str, platform: Platform, fix: str) -> None:
    """Refuse a pyconfig.h that tells that it is for another machine.

    Debian's leads to one of each machine; any other says whether the compiler took x86-64's
    assembler.
    """
    name = f"include/{folder.name}/pyconfig.h"
    if not (folder / "pyconfig.h").is_file():
        raise ConfigError(f"{said} has no {name}", fix=fix)
    text = (folder / "pyconfig.h").read_text(errors="replace")
    triplet = f"{platform.machine}-linux-gnu"
    if f"<{triplet}/{folder.name}/pyconfig.h>" in text:
        behind = folder.parent / triplet / folder.name / "pyconfig.h"
        if not behind.is_file():
            raise ConfigError(
                f"{said} is not for {platform.machine}: its {name} leads to "
                f"include/{triplet}/{folder.name}/pyconfig.h, which is not there",
                fix=fix,
            )
        return
    if not text.strip():
        raise ConfigError(f"{name} of {said} is empty", fix=fix)
    is_x86 = re.search(r"^\s*#\s*define\s+HAVE_GCC_ASM_FOR_X64\s+1", text, re.MULTILINE)
    is_other = "#undef HAVE_GCC_ASM_FOR_X64" in text
    if (is_x86 and platform.machine != "x86_64") or (is_other and platform.machine == "x86_64"):
        other = "x86_64" if is_x86 else "another machine than x86_64"
        raise ConfigError(
            f"{name} of {said} is for {other}, and {platform.name} is {platform.machine}", fix=fix
        )

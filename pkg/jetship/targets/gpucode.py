"""Which device code runs on which GPU, and under which driver."""

import functools
from collections.abc import Mapping
from typing import Literal, TypeAlias

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.targets.arch import Arch
from jetship.targets.catalog import Archs
from jetship.targets.model import Sourced
from jetship.yamlfile import Strict

Variant: TypeAlias = Literal["", "a", "f"]


class _Release(Sourced):
    """The PTX ISA version that a CUDA release writes, and its driver compiles."""

    cuda: str
    ptx: str


class _Releases(Strict):
    releases: tuple[_Release, ...]


def runs_machine_code(gpu: Arch, made_for: Arch, variant: Variant) -> bool:
    """Return whether a GPU runs machine code (sm_XY) as it is.

    Code runs on later GPUs of the same major number, "a" code on its own alone. A Jetson's GPU
    runs no code but its own, and its code runs on no other: CUDA C++ Programming Guide, binary
    compatibility. Of an arch that is not in toolchains/archs.yaml only the same is said to run.
    """
    if made_for == gpu:
        return True
    tegra = _tegra_by_arch()
    known_desktops = tegra.get(gpu) is False and tegra.get(made_for) is False
    return known_desktops and variant != "a" and _same_family(gpu, made_for)


def takes_ptx(gpu: Arch, made_for: Arch, variant: Variant) -> bool:
    """Return whether a driver can compile PTX (compute_XY) for a GPU, its ISA version aside.

    PTX is for its arch and all later ones; "a" PTX for its own alone, "f" for its family.
    Source: PTX ISA, the directive .target.
    """
    if variant == "a":
        return made_for == gpu
    return _same_family(gpu, made_for) if variant == "f" else made_for <= gpu


def newest_ptx(cuda: str) -> str | None:
    """Return the newest PTX ISA version that the driver of a CUDA release compiles, or None.

    Args:
        cuda: the release, as "12.6" or "12.6.68".
    """
    return _ptx_by_cuda().get(".".join(cuda.split(".")[:2]))


def first_cuda_with(ptx: str) -> str | None:
    """Return the first CUDA release that knows a PTX ISA version, or None."""
    return next((cuda for cuda, known in _ptx_by_cuda().items() if known == ptx), None)


def _same_family(gpu: Arch, made_for: Arch) -> bool:
    return made_for.major == gpu.major and made_for <= gpu


@functools.cache
def _tegra_by_arch() -> Mapping[Arch, bool]:
    rows = yamlfile.load(data_dir("toolchains") / "archs.yaml", Archs).archs
    return {Arch.parse(row.arch): row.tegra for row in rows}


@functools.cache
def _ptx_by_cuda() -> Mapping[str, str]:
    rows = yamlfile.load(data_dir("toolchains") / "ptx.yaml", _Releases).releases
    return {row.cuda: row.ptx for row in rows}

"""Parts that the user provides in place of the pinned ones: what they have to be."""

import hashlib
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from packaging.version import Version

from jetship import console
from jetship.errors import ConfigError, DownloadError, JetshipError
from jetship.probe.record import read_record, require_fitting
from jetship.store import Store, sha256_of
from jetship.targets.model import Platform
from jetship.toolchain import layout, ownchecks
from jetship.toolchain.model import CUDA_TARGET, SITE_PACKAGES, SYSROOT
from jetship.toolchain.ownparts import OwnParts
from jetship.toolchain.sources import unpack_wheels

if TYPE_CHECKING:
    from jetship.toolchain.imagetree import ImageTree

# What unpacking says of a damaged wheel; what the disk says is told apart from it.
_DAMAGED = (DownloadError, EOFError, ValueError, RuntimeError, zlib.error)


@dataclass(frozen=True)
class Given:
    """A folder to link into a toolchain, and what tells it from another one.

    `exact` says that it is the target's own, and not another build of the same release.
    """

    path: Path
    identity: str
    cuda_version: str = ""
    exact: bool = False


def examine(own_parts: OwnParts, platform: Platform) -> dict[str, Given]:
    """Look at all parts that the user gave; return the folders, by the name of their link.

    Raises:
        ConfigError: one is not what it should be; where several are not, names all of them.
        ToolMissingError, ImageError: an image is named, and the engine does not answer or fails.
    """
    links: dict[str, Given] = {}
    errors: list[JetshipError] = []
    if own_parts.image and own_parts.sysroot:
        errors.append(
            ConfigError(
                f"{own_parts.said('image')} and {own_parts.said('sysroot')} both give the "
                "target's sysroot",
                fix="leave one of them out",
            )
        )
    for name, link, look in _LOOKS:
        path = getattr(own_parts, name)
        if path is None:
            continue
        try:
            found = look(path, platform, own_parts.said(name))
        except JetshipError as error:
            errors.append(error)
        else:
            links |= {link: found} if found else {}
    if len(errors) == 1:
        raise errors[0]
    if errors:
        lines = [f"{error.what}: {error.why}" if error.why else error.what for error in errors]
        raise ConfigError(
            "\n  ".join([f"{len(errors)} of your own parts cannot be used", *lines]),
            fix="\n       ".join(dict.fromkeys(error.fix for error in errors if error.fix)),
        )
    return links


def own_cuda(path: Path, platform: Platform, said: str = "") -> Given:
    """Return a CUDA toolkit of the user's.

    Raises:
        ConfigError: it has no nvcc that runs here and says its release, or is of another CUDA
            than the platform's.
    """
    said = said or f"--cuda-home {path}"
    release, text = ownchecks.cuda_release(path, said)
    _require_same_cuda(release, platform, said)
    return Given(path.resolve(), f"{path.resolve()} {text}", release)


def _require_same_cuda(found: str, platform: Platform, said: str) -> None:
    """Refuse a toolkit whose runtime the platform does not have; warn of a newer one.

    Releases of one major version share libcudart's soname, from CUDA 11 on.
    """
    have = platform.cuda
    if have.model_copy(update={"version": found}).runtime_soname != have.runtime_soname:
        raise ConfigError(
            f"{said} is CUDA {found}, and {platform.name} has CUDA {have.version}",
            why=f"{platform.name} has {have.runtime_soname}, which a wheel of another CUDA "
            "does not look for",
            fix=f"name a toolkit of CUDA {have.version}",
        )
    if Version(found) > Version(have.version):
        console.warn(
            f"CUDA {found} of {said} is newer than {have.version} of {platform.name}: "
            "its PTX is not understood there"
        )


def own_sysroot(path: Path, platform: Platform, said: str = "") -> Given:
    """Return a sysroot of the user's.

    Raises:
        ConfigError: it has no C library of the target's machine.
    """
    found = ownchecks.target_libc(path, said or f"--sysroot {path}", platform)
    return Given(path.resolve(), f"{path.resolve()} {sha256_of(found)}", exact=True)


def own_image(tree: "ImageTree", platform: Platform, *, with_torch: bool) -> dict[str, Given]:
    """Return what an image of the target gives, by the name of its link.

    Raises:
        ConfigError: it lacks the C library of the target's machine, or torch.
    """
    given = own_sysroot(tree.root, platform, f"the image {tree.name}")
    folders = {SYSROOT: given.path, CUDA_TARGET: tree.cuda(platform)}
    if with_torch:
        folders[SITE_PACKAGES] = tree.torch(platform)
    return {
        name: Given(path, f"{tree.id} {path.relative_to(tree.root)}", exact=True)
        for name, path in folders.items()
        if path is not None
    }


def own_torch(wheel: Path, platform: Platform, store: Store, said: str = "") -> Given:
    """Return the user's torch wheel, unpacked into the cache.

    Raises:
        ConfigError: it is no wheel of the platform's torch, or is damaged.
        DownloadError: the disk is full.
    """
    said = said or f"--torch-wheel {wheel}"
    ownchecks.require_torch(wheel, said, platform)
    digest = sha256_of(wheel)

    def make(root: Path) -> None:
        with store.scratch() as scratch:
            try:
                unpack_wheels([wheel], scratch / "wheels-own")
            except _DAMAGED as error:
                why = getattr(error, "why", "") or str(error)
                raise ConfigError(f"{said} is damaged", why=why, fix="get it again") from error
            layout.lay_out_torch(scratch, root)

    return Given(store.tree("torch-own", digest, make), digest, exact=True)


def own_python(path: Path, platform: Platform, said: str = "") -> Given:
    """Return the user's Python headers.

    Raises:
        ConfigError: they are not of the platform's Python.
    """
    header = ownchecks.python_headers(path, said or f"--python-dev {path}", platform)
    return Given(
        path.resolve(), f"{path.resolve()} {hashlib.sha256(header.read_bytes()).hexdigest()}"
    )


def _look_at_torch(wheel: Path, platform: Platform, said: str) -> None:
    ownchecks.require_torch(wheel, said, platform)


def _look_at_libraries(path: Path, platform: Platform, said: str) -> None:
    require_fitting(read_record(path, said), platform, said)


def _look_at_image(name: str, platform: Platform, said: str) -> None:
    # Docker's library takes long to import, and few runs name an image.
    from jetship.toolchain.imagetree import look_at_image  # noqa: PLC0415

    try:
        look_at_image(name, platform)
    except ConfigError as error:
        if said.startswith("--"):
            raise  # the error names the image, as the option does
        place = said.removesuffix(f" {name}")
        raise ConfigError(f"{place}: {error.what}", why=error.why, fix=error.fix) from error


_LOOKS: tuple[tuple[str, str, Callable[[Any, Platform, str], Given | None]], ...] = (
    ("cuda_home", "cuda", own_cuda),
    ("sysroot", SYSROOT, own_sysroot),
    ("image", SYSROOT, _look_at_image),
    ("torch_wheel", SITE_PACKAGES, _look_at_torch),
    ("python_dev", "python", own_python),
    ("libraries", "", _look_at_libraries),
)

"""From a target to its toolchain: make its parts, link them together, try them out."""

import hashlib
import inspect
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from jetship import console, proc
from jetship.errors import ConfigError, ToolMissingError
from jetship.store import Store
from jetship.targets.model import Platform, Target
from jetship.targets.parts import NamedPart
from jetship.toolchain import layout, own, wrappers
from jetship.toolchain.lock import fits, require_fitting
from jetship.toolchain.model import Toolchain
from jetship.toolchain.own import Given
from jetship.toolchain.ownparts import NOTHING_OWN, OwnParts
from jetship.toolchain.sources import has_part, make_part


@dataclass(frozen=True)
class Plan:
    """Which part fills which role; None where the user's own does.

    `math` are the headers that go with `cuda`, which only some projects need.
    """

    compiler: NamedPart
    sysroot: NamedPart | None
    cuda: NamedPart | None
    torch: NamedPart | None
    math: tuple[NamedPart, ...] = ()

    @property
    def parts(self) -> tuple[NamedPart, ...]:
        """The parts that every project needs and that are made from pinned sources."""
        roles = (self.compiler, self.sysroot, self.cuda, self.torch)
        return tuple(part for part in roles if part)


def plan(target: Target, own_parts: OwnParts = NOTHING_OWN) -> Plan:
    """Choose the parts for a target.

    Raises:
        ToolMissingError: parts are not openly to be had and not given; names all of them, with
            where to get each and what to pass.
        ConfigError: no CUDA toolkit of the platform makes the target's archs, or a part's lock
            file is missing or was made of another description of it.
    """
    parts = target.platform.toolchain
    if missing := missing_parts(target, own_parts):
        raise _missing(target.platform, missing)
    toolkit = None if own_parts.cuda_home or not target.code else _toolkit(target)
    sysroot, torch = library_parts(target.platform, own_parts)
    chosen = Plan(
        compiler=parts.compiler,
        sysroot=sysroot,
        cuda=toolkit,
        torch=torch,
        math=tuple(
            one for one in parts.cuda_math if toolkit and one.part.version == toolkit.part.version
        ),
    )
    for part in (chosen.compiler, toolkit):
        if part:
            require_fitting(part)
    return chosen


def library_parts(
    platform: Platform, own_parts: OwnParts = NOTHING_OWN
) -> tuple[NamedPart | None, NamedPart | None]:
    """Choose the sysroot and the torch whose libraries a check looks at; None where given.

    Raises:
        ToolMissingError, ConfigError: as `plan`.
    """
    if missing := missing_parts(Target((), platform), own_parts):
        raise _missing(platform, missing)
    parts = platform.toolchain
    sysroot = None if own_parts.sysroot or own_parts.image else parts.sysroot
    torch = None if own_parts.torch_wheel or own_parts.image else parts.torch
    for part in (sysroot, torch):
        if part:
            require_fitting(part)
    return sysroot, torch


def missing_parts(target: Target, own_parts: OwnParts) -> list[tuple[str, str]]:
    """Return the roles that nothing fills, each with the option that would."""
    parts = target.platform.toolchain
    return [
        (role, option)
        for role, option, there in (
            ("sysroot", "--sysroot", own_parts.sysroot or own_parts.image or parts.sysroot),
            ("cuda", "--cuda-home", own_parts.cuda_home or parts.cuda or not target.code),
            ("torch", "--torch-wheel", own_parts.torch_wheel or own_parts.image or parts.torch),
        )
        if not there
    ]


def _missing(platform: Platform, missing: list[tuple[str, str]]) -> ToolMissingError:
    advice = platform.toolchain.advice
    them = "them" if len(missing) > 1 else "it"
    lines = [
        f"{option}: {advice.get(role, 'no open source of it is known')}"  # type: ignore[call-overload]
        for role, option in missing
    ]
    return ToolMissingError(
        f"the toolchain of {platform.name} lacks {len(missing)} part"
        f"{'s' if len(missing) > 1 else ''}: {', '.join(role for role, _ in missing)}",
        why=f"nobody but NVIDIA has {them}, so there is no open download",
        fix=f"get {them}, and name the place here or under `own_parts` of deploy.yaml\n"
        + "\n".join(f"       {line}" for line in lines),
    )


def _toolkit(target: Target) -> NamedPart:
    archs = {code.arch for code in target.code}
    toolkits = target.platform.toolchain.cuda
    for toolkit in toolkits:
        if toolkit.part.makes(archs):
            return toolkit
    listed = "; ".join(
        f"CUDA {toolkit.part.version}: {', '.join(toolkit.part.archs)}" for toolkit in toolkits
    )
    raise ConfigError(
        f"no CUDA toolkit of {target.platform.name} compiles for "
        f"{', '.join(str(arch) for arch in sorted(archs))} together",
        why=listed,
        fix="build a wheel for each arch, without --fat",
    )


def prepare(
    target: Target,
    store: Store,
    own_parts: OwnParts = NOTHING_OWN,
    *,
    math: Sequence[NamedPart] = (),
) -> Toolchain:
    """Return a target's toolchain, downloading and linking it together where it is missing.

    Two processes may call this at once: one works, the other waits and takes the result.

    Args:
        target: what is to be built for.
        store: the cache.
        own_parts: what the user has in place of the platform's parts.
        math: those of the plan's `math` whose headers are to be in CUDA_HOME.

    Raises:
        ConfigError: a path that the user gave is not what it should be.
        DownloadError: something cannot be fetched, verified or stored.
        ToolMissingError: a part is not to be had, or a program does not run on this machine.
    """
    platform = target.platform
    chosen = plan(target, own_parts)
    for part in math:
        require_fitting(part)
    given = given_links(platform, own_parts, store)  # before anything is downloaded
    # All are asked, so that a damaged lock file is told before anything is downloaded.
    if not all([has_part(part, store) for part in chosen.parts]):  # noqa: C419
        console.step(f"preparing the toolchain of {platform.name}")
    compiler = make_part(chosen.compiler, store)
    links = _part_links(chosen, store) | given
    links["buildroot"] = Given(compiler.path, compiler.path.name)
    if math:
        links["cuda"] = _with_math(links["cuda"], math, store)
    sonames = [soname for named in math for soname in named.part.libraries]
    root = _linked(platform, links, compiler.part.gcc or 0, store, sonames)
    torch = platform.toolchain.torch.part if platform.toolchain.torch else None
    toolchain = Toolchain(
        platform,
        root,
        links["cuda"].cuda_version if "cuda" in links else "",
        torch.build_constraints if torch else (),
        torch.build_requirements if torch else (),
        frozenset(name for name, given in links.items() if given.exact),
    )
    verify(toolchain)
    return toolchain


def is_prepared(target: Target, store: Store, own_parts: OwnParts = NOTHING_OWN) -> bool:
    """Return whether everything that `prepare` would download is there, and may be used."""
    try:
        parts = plan(target, own_parts).parts
        return all(fits(part) and has_part(part, store) for part in parts)
    except ToolMissingError:
        return False


def prepare_base(platform: Platform, store: Store) -> Path:
    """Return a folder with what the platform's base image holds, making it where it is missing.

    It has `rootfs/`, Debian packages unpacked for the target, and `site-packages/`, torch
    with its dependencies.

    Raises:
        ConfigError: the platform's base image is not made here; says which images there are.
        DownloadError, ToolMissingError: as `prepare`.
    """
    if platform.toolchain.base is None:
        known = ", ".join(platform.base_images[-3:]) or "none is known"
        raise ConfigError(
            f"the base image of {platform.name} is not made by jetship",
            why=platform.toolchain.advice.get("base", "its packages are NVIDIA's"),
            fix=f"name an image that the engine has with --base; known ones: {known}",
        )
    require_fitting(platform.toolchain.base)
    return make_part(platform.toolchain.base, store).path


def _part_links(chosen: Plan, store: Store) -> dict[str, Given]:
    """Return what is linked into the toolchain of pinned parts, by the name of the link."""
    links: dict[str, Given] = {}
    for name, part in (
        ("sysroot", chosen.sysroot),
        ("cuda", chosen.cuda),
        ("site-packages", chosen.torch),
    ):
        if part is not None:
            made = make_part(part, store)
            links[name] = Given(made.path, made.path.name, made.part.version)
    return links


def _with_math(toolkit: Given, math: Sequence[NamedPart], store: Store) -> Given:
    """Return the toolkit with the headers of math libraries in its include folder."""
    folders = [make_part(named, store).path for named in math]
    digest = hashlib.sha256(inspect.getsource(layout).encode())
    for folder in (toolkit.path, *folders):
        digest.update(f"{folder.name}\n".encode())

    def make(root: Path) -> None:
        layout.join_cuda(toolkit.path, folders, root)

    joined = store.tree(f"cuda-{toolkit.cuda_version}-math", digest.hexdigest(), make)
    return Given(joined, joined.name, toolkit.cuda_version)


def given_links(platform: Platform, own_parts: OwnParts, store: Store) -> dict[str, Given]:
    """Return what is linked into the toolchain of the user's own, by the name of the link.

    Raises:
        ConfigError, DownloadError, ToolMissingError, ImageError: as `prepare`.
    """
    links = own.examine(own_parts, platform)
    if own_parts.image:
        # Docker's library takes long to import, and few runs name an image.
        from jetship.toolchain.imagetree import export_image  # noqa: PLC0415

        tree = export_image(own_parts.image, platform, store)
        links |= own.own_image(tree, platform, with_torch=own_parts.torch_wheel is None)
    if own_parts.torch_wheel:
        said = own_parts.said("torch_wheel")
        links["site-packages"] = own.own_torch(own_parts.torch_wheel, platform, store, said)
    return links


def _linked(
    platform: Platform, links: dict[str, Given], gcc: int, store: Store, sonames: Sequence[str]
) -> Path:
    """Return the folder in which the parts are linked together."""

    def make(root: Path) -> None:
        for name, given in links.items():
            # Links between folders of the cache are relative, so that it can be moved.
            inside = given.path.is_relative_to(root.parent)
            (root / name).symlink_to(
                Path("..") / given.path.relative_to(root.parent) if inside else given.path
            )
        toolchain = Toolchain(platform, root, "")
        wrappers.write_wrappers(toolchain, gcc)
        wrappers.link_target_runtimes(toolchain)
        wrappers.make_import_stubs(toolchain, sonames)

    own_templates = platform.toolchain.own_templates
    words = (platform.name, platform.machine, gcc, own_templates, *sonames)
    digest = hashlib.sha256(" ".join(map(str, words)).encode())
    for name, given in sorted(links.items()):
        digest.update(f"{name} {given.identity}\n".encode())
    for module in (wrappers, sys.modules[__name__]):
        digest.update(inspect.getsource(module).encode())
    return store.tree(f"toolchain-{platform.name}", digest.hexdigest(), make)


def verify(toolchain: Toolchain) -> None:
    """Ask the compilers who they are, before anything is built with them.

    Raises:
        ToolMissingError: a compiler does not run here, or is not what the platform names.
    """
    compiler = toolchain.bin / f"{toolchain.multiarch}-g++"
    _expect(compiler, "-dumpmachine", toolchain.multiarch)
    if toolchain.cuda_version:
        _expect(toolchain.cuda_home / "bin/nvcc", "--version", f"release {toolchain.cuda_version}")


def _expect(program: Path, option: str, text: str) -> None:
    done = proc.run([program, option])
    if not done.ok or text not in done.stdout:
        raise ToolMissingError(
            f"{program.name} of the toolchain does not work on this machine",
            why=(done.stderr or done.stdout).strip()[-300:] or f"it does not say {text!r}",
            fix=wrappers.NEEDED_MACHINE,
        )

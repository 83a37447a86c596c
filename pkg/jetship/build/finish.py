"""From a setuptools wheel to a wheel that is bound to its target: tags, version, pins, guard."""

from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import Requirement
from packaging.tags import Tag
from packaging.utils import canonicalize_name
from packaging.version import Version

import jetship
from jetship.build.project import Project
from jetship.build.wheelfile import Wheel
from jetship.elf import MAGIC, ElfFile, parse_elf, version_key
from jetship.errors import BuildError
from jetship.fatbin import DeviceImage, images_in
from jetship.pin import (
    PIN_FILE,
    Pin,
    PinnedCode,
    PinnedCuda,
    PinnedPython,
    PinnedTool,
    PinnedTorch,
)
from jetship.targets.model import Target

GUARD = Path(__file__).parent / "guard.py"
NAMELESS = "unknown"  # what setuptools calls a project that gives no name
GUARD_NAME = "_jetship_guard.py"


@dataclass(frozen=True)
class CompiledWith:
    """The release of nvcc, and of the torch whose headers were at hand; None where there was none.

    Either may be older or another build than what the target has.
    """

    nvcc: str | None = None
    torch_headers: str | None = None


def finish(built: Wheel, target: Target, project: Project, compiled: CompiledWith) -> Wheel:
    """Return the wheel with its target's tags and label, torch pin, pin record and guard.

    Raises:
        BuildError: the project asks for another torch than the target's, or names a package
            for the import guard that is not in the wheel, or has no name.
    """
    if built.name.lower() == NAMELESS:
        raise BuildError(
            "the project has no name: setuptools calls its wheel `unknown`",
            why="neither setup() nor [project] of pyproject.toml was found to say one",
            fix="give name and version in [project] of pyproject.toml, or in setup() of setup.py",
        )
    wheel = built.with_tags(target_tags(built.tags, target))
    wheel = wheel.with_version(labelled(built.version, target))
    wheel = _pin_torch(wheel, target)
    if project.import_guard is not None:
        if not any(name.startswith(f"{project.import_guard}/") for name in wheel.members):
            raise BuildError(
                f"[tool.jetship] import-guard names {project.import_guard!r}, "
                "and the wheel has no such package",
                fix="name a package that the wheel brings, or remove the line",
            )
        wheel = wheel.with_member(f"{project.import_guard}/{GUARD_NAME}", GUARD.read_bytes())
    record = pin_of(wheel, target, compiled).to_json()
    return wheel.with_member(f"{wheel.dist_info}/{PIN_FILE}", record)


def target_tags(built: frozenset[Tag], target: Target) -> frozenset[Tag]:
    """Return the tags of the target for a wheel that the build machine's Python tagged.

    setuptools writes the interpreter that runs it; abi3 and none are the project's own choice
    and stay as they are.
    """
    python = target.platform.python
    tags = set()
    for tag in built:
        platform = tag.platform if tag.platform == "any" else f"linux_{target.platform.machine}"
        if tag.abi in ("abi3", "none"):
            tags.add(Tag(tag.interpreter, tag.abi, platform))
        else:
            tags.add(Tag(python.tag, python.abi, platform))
    return frozenset(tags)


def labelled(version: str, target: Target) -> str:
    """Return the version with the target's label as (a part of) its local version, PEP 440."""
    parsed = Version(version)
    local = f"{parsed.local}." if parsed.local else ""
    return str(Version(f"{parsed.public}+{local}{target.local_version}"))


def _pin_torch(wheel: Wheel, target: Target) -> Wheel:
    torch, markers = target.platform.torch, target.platform.markers
    metadata = wheel.metadata
    kept = []
    for text in metadata.all("Requires-Dist"):
        requirement = Requirement(text)
        applies = requirement.marker is None or requirement.marker.evaluate(markers)
        if canonicalize_name(requirement.name) != "torch" or not applies:
            kept.append(text)
        elif not torch.satisfies(requirement):
            raise BuildError(
                f"the project requires {text}, and {target.platform.name} has torch "
                f"{torch.version}",
                fix="choose a platform with that torch (`invoke targets`), or widen the "
                "project's requirement",
            )
    metadata = metadata.without("Requires-Dist")
    for text in [*kept, torch.pinned]:
        metadata = metadata.adding("Requires-Dist", text)
    return wheel.with_metadata(metadata)


def pin_of(wheel: Wheel, target: Target, compiled: CompiledWith) -> Pin:
    """Return the pin record of a finished wheel."""
    platform = target.platform
    tag = min(wheel.tags, key=str)
    libraries = _libraries(wheel)
    return Pin(
        tool=PinnedTool(version=jetship.__version__),
        target=target.id,
        platform=platform.name,
        platform_kind=platform.kind,
        machine=platform.machine,
        torch=PinnedTorch(
            version=platform.torch.version,
            cuda=platform.torch.cuda,
            cxx11_abi=platform.torch.cxx11_abi,
            headers=compiled.torch_headers,
        ),
        cuda=PinnedCuda(
            version=platform.cuda.version,
            code=_pinned_code(libraries),
            nvcc=compiled.nvcc,
        ),
        python=PinnedPython(interpreter=tag.interpreter, abi=tag.abi),
        glibc_floor=max(
            (floor for elf, _ in libraries if (floor := elf.floor("GLIBC"))),
            key=version_key,
            default=None,
        ),
    )


def _libraries(wheel: Wheel) -> list[tuple[ElfFile, tuple[DeviceImage, ...]]]:
    """Return the facts and the device code of every ELF file in the wheel."""
    found = []
    for member in wheel.members.values():
        if member.data[:4] == MAGIC:
            elf = parse_elf(member.data)
            found.append((elf, images_in(member.data, elf.sections)))
    return found


def _pinned_code(
    libraries: list[tuple[ElfFile, tuple[DeviceImage, ...]]],
) -> tuple[PinnedCode, ...]:
    """Say what device code the wheel really has, whatever the target asked for."""
    images = [image for _, found in libraries for image in found]
    return tuple(
        PinnedCode(
            arch=str(arch),
            sass=any(image.arch == arch and image.kind == "sass" for image in images),
            ptx=any(image.arch == arch and image.kind == "ptx" for image in images),
        )
        for arch in sorted({image.arch for image in images if image.kind in ("sass", "ptx")})
    )

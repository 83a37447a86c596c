"""What `build --dry` prints: what would be built, out of what that is there or has to come."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from packaging.requirements import Requirement

from jetship import console
from jetship.build.api import said_of_code
from jetship.build.includes import needed_math
from jetship.build.origin import find_project, requirement_in
from jetship.build.project import Project
from jetship.store import Store
from jetship.targets.model import Target
from jetship.targets.parts import NamedPart
from jetship.toolchain.lock import read_lock
from jetship.toolchain.own import examine
from jetship.toolchain.ownparts import OwnParts, OwnSupply
from jetship.toolchain.prepare import is_prepared, plan, prepare
from jetship.toolchain.sources import has_part

State = Literal["cached", "to unpack", "to fetch", "to fetch if included"]
_HEADINGS: dict[State, str] = {
    "cached": "in the cache",
    "to unpack": "downloaded, to be unpacked",
    "to fetch": "to be fetched",
    "to fetch if included": "to be fetched if the project includes them",
}


@dataclass(frozen=True)
class Need:
    """Something that a build is made of; `bytes` is what has to be downloaded, None if unknown."""

    title: str
    state: State
    bytes: int | None = 0
    part: str = ""

    def __str__(self) -> str:
        if self.bytes == 0 and self.state == "to fetch if included":
            return f"{self.title} (downloaded already)"
        return f"{self.title} ({self.bytes / 1e6:.0f} MB)" if self.bytes else self.title

    def to_json(self) -> dict[str, Any]:
        """Return the need as machines read it."""
        return {
            "part": self.part or None,
            "title": self.title,
            "state": self.state,
            "bytes": self.bytes,
        }


def what_is_named(text: str, store: Store) -> Project | Requirement:
    """Return the project, or the requirement whose sdist would have to be fetched to see it.

    Raises:
        ConfigError: as `find_project`.
    """
    requirement = requirement_in(text)
    return find_project(text, store) if requirement is None else requirement


def print_plan(
    targets: Sequence[Target],
    project: Project | Requirement,
    own: OwnSupply,
    store: Store,
    *,
    json: bool,
) -> None:
    """Print what would be built for each target, and build and fetch nothing.

    Raises:
        ToolMissingError: parts of a platform are not openly to be had and not given.
    """
    rows = [_row(target, project, own.of(target), store) for target in targets]
    needs = [tuple(_needs(target, project, own.of(target), store)) for target in targets]
    if json:
        together = zip(rows, needs, strict=True)
        console.emit_json(
            {"plan": [row | {"needs": [one.to_json() for one in all_]} for row, all_ in together]}
        )
        return
    for target, row, all_ in zip(targets, rows, needs, strict=True):
        download = any(need.part and need.state == "to fetch" for need in all_)
        console.emit(_line(target, row, own.of(target), download=download))
        for state, heading in _HEADINGS.items():
            if found := [str(need) for need in all_ if need.state == state]:
                console.emit(f"    {heading}: {'; '.join(found)}")


def _row(
    target: Target, project: Project | Requirement, parts: OwnParts, store: Store
) -> dict[str, Any]:
    toolkit = plan(target, parts).cuda  # raises where a part is missing
    given = examine(parts, target.platform)
    nvcc = toolkit.part.version if toolkit else ""
    if "cuda" in given:
        nvcc = given["cuda"].cuda_version
    return {
        "target": target.id,
        "project": project.title if isinstance(project, Project) else str(project),
        "arch_list": target.arch_list,
        "platform": target.platform.name,
        "cuda": target.platform.cuda.version,
        "nvcc": nvcc if target.code else None,
        "torch": target.platform.torch.version,
        "python": target.platform.python.version,
        "local_version": target.local_version,
        "own_parts": parts.named,
        "toolchain_ready": is_prepared(target, store, parts),
    }


def _line(target: Target, row: dict[str, Any], parts: OwnParts, *, download: bool) -> str:
    comes = "downloaded" if download else "unpacked"
    ready = "toolchain is ready" if row["toolchain_ready"] else f"toolchain will be {comes}"
    own_names = ", ".join(parts.named)
    ready += f", with your own {own_names}" if own_names else ""
    for_cuda = f"for CUDA {row['cuda']}, " if target.code else ""
    return (
        f"{row['target']}: {row['project']}, {said_of_code(target, str(row['nvcc']))}, "
        f"{for_cuda}torch {row['torch']}, Python {row['python']} -> "
        f"+{row['local_version']} ({ready})"
    )


def _needs(
    target: Target, project: Project | Requirement, parts: OwnParts, store: Store
) -> Iterator[Need]:
    if isinstance(project, Requirement):
        yield Need(f"the sdist of {project}", "to fetch", None)
    chosen = plan(target, parts)
    for part in chosen.parts:
        yield _need(part, store, "to fetch")
    # The project's #include lines lead through the headers of torch and CUDA.
    if chosen.math and isinstance(project, Project) and is_prepared(target, store, parts):
        # Only links together what is there.
        toolchain = prepare(target, store, parts)
        for part in needed_math(project, toolchain, chosen.math):
            yield _need(part, store, "to fetch")
    else:
        for part in chosen.math:
            yield _need(part, store, "to fetch if included")


def _need(part: NamedPart, store: Store, otherwise: State) -> Need:
    if has_part(part, store):
        return Need(part.part.title, "cached", 0, part.name)
    missing = missing_bytes(part, store)
    state = "to unpack" if not missing and otherwise == "to fetch" else otherwise
    return Need(part.part.title, state, missing, part.name)


def missing_bytes(part: NamedPart, store: Store) -> int:
    """Return how much of a part's downloads the cache lacks.

    Raises:
        ConfigError: its lock file is missing or damaged.
    """
    locked = read_lock(part.name, part.folder).sources.values()
    files = [item for items in locked for item in items]
    return sum(item.size for item in files if not store.blob(item.sha256, item.file).is_file())

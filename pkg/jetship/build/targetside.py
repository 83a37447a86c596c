"""Build requirements whose files end up in what is compiled, and so come from the target's side."""

import hashlib
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from jetship import console
from jetship.build.environment import CrossEnvironment
from jetship.store import Store
from jetship.targets.model import Platform
from jetship.targets.parts import WheelSource
from jetship.toolchain import pypi
from jetship.toolchain.sources import unpack_wheels

STANDIN_NUMPY = Path(__file__).parent / "standin_numpy"


def with_target_numpy(
    cross: CrossEnvironment, requirements: Iterable[str], platform: Platform, store: Store
) -> CrossEnvironment:
    """Return a cross environment in which numpy has the target's headers, if numpy is required.

    Its wheel for the target's machine and Python is unpacked, and never imported.

    Raises:
        DownloadError: there is no such wheel of what is required.
    """
    specifiers = {
        str(one.specifier)
        for one in map(parsed, requirements)
        if one is not None and names(one, "numpy") and _applies(one, platform)
    }
    if not specifiers:
        return cross
    source = WheelSource(
        machine=platform.machine,
        python=platform.python.version,
        abi=platform.python.abi,
        requirements=("numpy" + ",".join(sorted(specifiers - {""})),),
    )

    def make(root: Path) -> None:
        console.note(f"headers of {source.requirements[0]} for {platform.machine} (once)")
        for item in pypi.lock_source(store, source):
            unpack_wheels([store.blob(item.sha256, item.file)], root)

    digest = hashlib.sha256(source.model_dump_json().encode()).hexdigest()
    folder = store.tree("numpy-target", digest, make)
    path = [str(STANDIN_NUMPY), cross.variables["PYTHONPATH"], str(folder)]
    variables = {"PYTHONPATH": os.pathsep.join(path), "JETSHIP_NUMPY": str(folder)}
    return replace(cross, variables={**cross.variables, **variables})


def _applies(requirement: Requirement, platform: Platform) -> bool:
    return requirement.marker is None or requirement.marker.evaluate(platform.markers)


def parsed(text: str) -> Requirement | None:
    """Return a requirement, or None for what pip alone understands, or nobody."""
    try:
        return Requirement(text)
    except InvalidRequirement:
        return None


def names(requirement: Requirement, project: str) -> bool:
    """Return whether it is a requirement of this project, however it writes the name."""
    return canonicalize_name(requirement.name) == project

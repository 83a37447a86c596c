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
    wanted = [text for text in requirements if _is_numpy(text, platform)]
    if not wanted:
        return cross
    source = WheelSource(
        machine=platform.machine,
        python=platform.python.version,
        abi=platform.python.abi,
        requirements=(",".join(_bounds(wanted)),),
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


def _is_numpy(text: str, platform: Platform) -> bool:
    try:
        requirement = Requirement(text)
    except InvalidRequirement:
        return False
    applies = requirement.marker is None or requirement.marker.evaluate(platform.markers)
    return applies and canonicalize_name(requirement.name) == "numpy"


def _bounds(requirements: list[str]) -> list[str]:
    """Return one requirement's words out of several for the same project."""
    specifiers = sorted({str(Requirement(text).specifier) for text in requirements} - {""})
    return ["numpy" + (specifiers[0] if specifiers else ""), *specifiers[1:]]

"""What the CPU cores of a target's boards can do."""

import functools

from jetship import yamlfile
from jetship.datafiles import data_dir
from jetship.targets.arch import Arch, ArchText
from jetship.targets.model import Sourced, Target
from jetship.yamlfile import Strict


class Cores(Sourced):
    """The cores of one module, by the GPU that only it has."""

    name: str
    board: str
    archs: tuple[ArchText, ...]
    has: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.name} ({self.board})"


class _File(Strict):
    cores: tuple[Cores, ...]


@functools.cache
def known_cores() -> tuple[Cores, ...]:
    """Return all cores on record.

    Raises:
        ConfigError: toolchains/cores.yaml is wrong.
    """
    return yamlfile.load(data_dir("toolchains") / "cores.yaml", _File).cores


def cores_of(target: Target) -> tuple[Cores, ...]:
    """Return the cores on which a target's wheel has to run; none where any may be there.

    A wheel without device code runs on every board of its platform, whatever the GPU.
    """
    archs = {code.arch for code in target.code} or set(target.platform.cuda.drives)
    return tuple(one for one in known_cores() if archs & {Arch.parse(arch) for arch in one.archs})

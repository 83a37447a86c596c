"""The words of the tool as types: arch, board, platform, target."""

import re
from dataclasses import dataclass
from typing import Literal

from packaging.requirements import Requirement
from packaging.version import Version
from pydantic import Field, ValidationInfo, field_validator

from jetship.errors import ConfigError
from jetship.targets.arch import Arch, ArchText, DeviceCode
from jetship.targets.parts import Machine, NamedPart, PartName
from jetship.yamlfile import Strict

# In place of archs, for a wheel without device code.
CPU_ONLY = "cpu"
# torch 1.0 was the first of which NVIDIA made wheels for a Jetson, for Python 3.5 and newer.
OLDEST_PYTHON_MINOR = 5


class Sourced(Strict):
    """Facts with where they were read, and whether jetship's own runs have borne them out."""

    source: str
    verified: bool = False


class Cuda(Sourced):
    """The CUDA of a platform, and the archs of the GPUs that it drives.

    `from_wheels`: whether the libraries for servers (SBSA), which PyPI's nvidia-* wheels have, run
    here. Tegra has its own until CUDA 13.
    """

    version: str
    archs: tuple[ArchText, ...]
    from_wheels: bool = False

    @property
    def drives(self) -> tuple[Arch, ...]:
        return tuple(Arch.parse(arch) for arch in self.archs)

    @property
    def runtime_soname(self) -> str:
        """The soname of libcudart: one for all of CUDA 11, 12 or 13, one a release before."""
        major = int(self.version.partition(".")[0])
        if major < 11:
            return f"libcudart.so.{self.version}"
        return "libcudart.so.11.0" if major == 11 else f"libcudart.so.{major}"


class Python(Sourced):
    """The platform's CPython: version "3.11", and the ABI part of its wheel tags."""

    version: str
    abi: str

    @field_validator("version")
    @classmethod
    def _is_a_minor_release(cls, version: str) -> str:
        match = re.fullmatch(r"3\.([0-9]{1,2})", version)
        if match is None:
            raise ValueError(f"{version!r} is not a release of Python such as 3.10")
        if int(match[1]) < OLDEST_PYTHON_MINOR:
            hint = "; did you mean 3.10?" if version == "3.1" else ""
            raise ValueError(f"no torch is for Python {version}{hint}")
        return version

    @field_validator("abi")
    @classmethod
    def _is_of_the_version(cls, abi: str, info: ValidationInfo) -> str:
        version = info.data.get("version")
        if version is None:  # it is wrong itself
            return abi
        own = "cp" + version.replace(".", "")
        if not re.fullmatch(rf"{own}[a-z]*", abi):
            raise ValueError(f"Python {version} has the ABI {own}, not {abi!r}")
        return abi

    @property
    def tag(self) -> str:
        """The interpreter part of a wheel tag: cp311."""
        return "cp" + self.version.replace(".", "")

    @property
    def cache_tag(self) -> str:
        """What stands in the names of extension modules: cpython-311, cpython-36m."""
        return self.abi.replace("cp", "cpython-", 1)


class Ceilings(Sourced):
    """The newest symbol versions that the platform's libc and libstdc++ define."""

    glibc: str
    glibcxx: str
    cxxabi: str
    gcc: str


class Torch(Sourced):
    """The platform's PyTorch build.

    `requirement` is what a wheel asks pip for (default: this very version). NVIDIA's builds
    are pre-releases of their own numbering, such as 2.1.0a0+41361538.nv23.06. `archs` is what its
    own operators have machine code for; empty where nobody has looked.
    """

    version: str
    cuda: str | None
    cxx11_abi: bool
    requirement: str = ""
    archs: tuple[ArchText, ...] = ()

    @property
    def pinned(self) -> str:
        return self.requirement or f"torch=={self.version}"

    def satisfies(self, requirement: Requirement) -> bool:
        """Return whether this torch is what a project asks for.

        NVIDIA's 2.1.0a0+… is a snapshot of 2.1.0, and serves whoever asks for that.
        """
        version = Version(self.version)
        candidates = (version, Version(version.base_version))
        return any(requirement.specifier.contains(one, prereleases=True) for one in candidates)


class ToolchainParts(Strict):
    """The parts that make the platform's toolchain; its file gives their names.

    Of the CUDA toolkits, the first that makes all archs of a target is taken; of `cuda_math`, what
    a project includes and that toolkit has not. A part that is
    not to be had openly is left out, and `advice` says by role where it is and what to pass.
    With `own_templates`, a library brings every instantiation of libstdc++'s templates itself:
    the compiler's libstdc++ has more of them than the target's. `emulated` are the compilers as
    the target would run them itself, for comparison.
    """

    compiler: PartName
    own_templates: bool = False
    sysroot: PartName | None = None
    cuda: tuple[PartName, ...] = ()
    cuda_math: tuple[PartName, ...] = ()
    torch: PartName | None = None
    base: PartName | None = None
    emulated: PartName | None = None
    advice: dict[Literal["sysroot", "cuda", "torch", "base", "python"], str] = Field(
        default_factory=dict
    )

    @property
    def lacking(self) -> list[str]:
        """The roles that only the user can fill: cuda, torch."""
        return [role for role in ("sysroot", "cuda", "torch") if not getattr(self, role)]

    @property
    def all(self) -> tuple[NamedPart, ...]:
        """The parts that make every toolchain: no `cuda_math`, and not the base image's."""
        named = (self.compiler, self.sysroot, self.torch, *self.cuda)
        return tuple(part for part in named if part is not None)


class AcceptedUnknown(Strict):
    """Libraries that nothing at hand can prove, and why the platform accepts that."""

    libraries: tuple[str, ...]
    why: str


class Platform(Strict):
    """What is installed on a board, or an open userland for emulation and CI."""

    name: str = Field(pattern=r"^[a-z0-9]+(?:[.-][a-z0-9]+)*$")
    title: str
    kind: Literal["emulation", "jetpack", "server"]
    notice: str = ""
    machine: Machine
    jetpack: tuple[str, ...] = ()
    l4t: tuple[str, ...] = ()
    base_images: tuple[str, ...] = ()
    superseded_by: str = ""
    """The platform that came after it on the same boards; it is only taken where it is named."""
    cuda: Cuda
    python: Python
    abi: Ceilings
    torch: Torch
    toolchain: ToolchainParts
    evidence: Literal["exact", "derived"] = "exact"
    accept_unknown: tuple[AcceptedUnknown, ...] = ()

    @property
    def markers(self) -> dict[str, str]:
        """What environment markers (PEP 508) evaluate to here, where no extra is asked for."""
        return {
            "platform_machine": self.machine,
            "python_version": self.python.version,
            "python_full_version": f"{self.python.version}.0",
            "sys_platform": "linux",
            "platform_system": "Linux",
            "os_name": "posix",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "extra": "",
        }

    @property
    def facts(self) -> dict[str, Sourced]:
        """What is installed, by name, each with its source."""
        return {"cuda": self.cuda, "torch": self.torch, "python": self.python, "glibc": self.abi}

    def accepts_unknown(self, library: str) -> str | None:
        """Return why symbols of `library` may stay unproven here, or None."""
        return next((row.why for row in self.accept_unknown if library in row.libraries), None)


class Board(Sourced):
    """A Jetson module or a server GPU, and the platforms that run on it, oldest first.

    `machine` is the CPU that is one module with the GPU; a card, which goes into machines of either
    kind, has none. A Jetson is aarch64. `models` are words of which one stands in the model that
    the device's kernel tells (/proc/device-tree/model).
    """

    name: str
    title: str
    arch: ArchText
    kind: Literal["jetson", "server"]
    machine: Machine | None = None
    platforms: tuple[str, ...]
    aliases: tuple[str, ...] = ()
    models: tuple[str, ...] = ()

    @field_validator("machine")
    @classmethod
    def _no_jetson_is_another(cls, machine: Machine | None, info: ValidationInfo) -> Machine | None:
        if machine == "x86_64" and info.data.get("kind") == "jetson":
            raise ValueError("every Jetson is aarch64")
        return machine

    @property
    def cpu(self) -> Machine | None:
        """The machine that it is part of, or None where it goes into machines of either kind."""
        return "aarch64" if self.kind == "jetson" else self.machine


@dataclass(frozen=True)
class Target:
    """What a wheel is built for: device code on a platform.

    The id is "sm62-debian-12"; PTX shows as "sm62ptx", several archs in one wheel as
    "sm62.sm72-debian-12", and a wheel without device code as "cpu-debian-12".
    """

    code: tuple[DeviceCode, ...]
    platform: Platform

    @property
    def id(self) -> str:
        return f"{self.code_label}-{self.platform.name}"

    @property
    def code_label(self) -> str:
        if not self.code:
            return CPU_ONLY
        return ".".join(f"sm{c.arch.number}{'ptx' if c.ptx else ''}" for c in self.code)

    @property
    def arch_list(self) -> str:
        """The value of TORCH_CUDA_ARCH_LIST: "6.2;7.2+PTX"."""
        return ";".join(str(code) for code in self.code)

    @property
    def local_version(self) -> str:
        """The local version label (PEP 440) of this target's wheels."""
        torch = self.platform.torch
        parts = [
            self.platform.name.replace("-", ""),
            "torch" + re.sub(r"[^a-z0-9]", "", torch.version.lower()),
            "cxx11abi" if torch.cxx11_abi else "precxx11abi",
            "cu" + self.platform.cuda.version.replace(".", ""),
            self.code_label,
        ]
        return ".".join(parts)

    def __str__(self) -> str:
        return self.id


def parse_target_id(text: str) -> tuple[tuple[DeviceCode, ...], str]:
    """Split a target id into its device code and platform name.

    Raises:
        ConfigError: it is not of the form sm62-debian-12.
    """
    plain = re.fullmatch(rf"{CPU_ONLY}-(.+)", text)
    if plain is not None:
        return (), plain[1]
    match = re.fullmatch(r"(sm[0-9]{2,3}(?:ptx)?(?:\.sm[0-9]{2,3}(?:ptx)?)*)-(.+)", text)
    if match is None:
        raise ConfigError(
            f"{text!r} is not a target id", fix="write it like sm62-debian-12, or 6.2/debian-12"
        )
    code = []
    for part in match[1].split("."):
        digits = part.removeprefix("sm").removesuffix("ptx")
        code.append(DeviceCode(Arch.parse(f"sm_{digits}"), ptx=part.endswith("ptx")))
    return tuple(code), match[2]

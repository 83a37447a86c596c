"""What the stand-in for torch answers (docs/standin.md), read from the target's torch itself."""

import re
import runpy
from collections.abc import Mapping
from email import message_from_string

from packaging.requirements import Requirement
from packaging.version import Version

from jetship.errors import ConfigError
from jetship.targets.model import Target
from jetship.toolchain.model import SITE_PACKAGES, Toolchain


def torch_facts(toolchain: Toolchain, target: Target) -> dict[str, object]:
    """Return the facts, as they are written for the stand-in.

    What nothing at hand says is None: the stand-in then refuses to answer.

    Raises:
        ConfigError: the torch in the toolchain is another release than the platform's.
    """
    own = runpy.run_path(str(toolchain.torch / "version.py"))
    _require_torch(toolchain, str(own["__version__"]))
    library = (toolchain.torch / "lib" / "libtorch_python.so").read_bytes()
    return {
        "target": target.id,
        "site_packages": str(toolchain.site_packages),
        **_version_facts(toolchain, own),
        "cuda": (own["cuda"] or toolchain.cuda_version) if target.code else None,
        "cxx11_abi": toolchain.platform.torch.cxx11_abi,
        "code": [[code.arch.major, code.arch.minor] for code in target.code],
        "pybind11": _pybind11_abi(library),
        "distributed": b"_c10d_init" in library,
        **_config_facts(toolchain),
        **_package_facts(toolchain),
    }


def release_of(toolchain: Toolchain) -> str:
    """Return the version that the torch in a toolchain gives itself."""
    return str(runpy.run_path(str(toolchain.torch / "version.py"))["__version__"])


def _version_facts(toolchain: Toolchain, own: Mapping[str, object]) -> dict[str, object]:
    """Return the version that the target's torch gives itself.

    Where upstream's release stands in for NVIDIA's build, its commit is not that build's.
    """
    found, wanted = str(own["__version__"]), toolchain.platform.torch.version
    if Version(found).public == Version(wanted).public:
        return {"version": found, "git_version": own.get("git_version")}
    return {"version": wanted, "git_version": None}


def _config_facts(toolchain: Toolchain) -> dict[str, bool | None]:
    """Read out of ATen's header what its CPU half was built with."""
    config = toolchain.torch / "include/ATen/Config.h"
    text = config.read_text(encoding="utf-8") if config.is_file() else ""
    switches = dict(re.findall(r"^#define (AT_\w+?)(?:\(\))? ([01])$", text, re.MULTILINE))
    names = {
        "mkl": "AT_MKL_ENABLED",
        "mkldnn": "AT_MKLDNN_ENABLED",
        "openmp": "AT_PARALLEL_OPENMP",
    }
    return {
        fact: switches[switch] == "1" if switch in switches else None
        for fact, switch in names.items()
    }


def _package_facts(toolchain: Toolchain) -> dict[str, object]:
    """Return cuDNN's and NCCL's versions by the packages that the target's torch asks for.

    A build for the CPU has neither (False). Builds that take them from the system, as NVIDIA's
    for Jetsons do, do not say which (None).
    """
    if toolchain.platform.torch.cuda is None:
        return {"cudnn": False, "nccl": False}
    cudnn = _required_by_torch(toolchain, "nvidia-cudnn")
    nccl = _required_by_torch(toolchain, "nvidia-nccl")
    return {
        "cudnn": None if cudnn is None else _cudnn_number(cudnn),
        "nccl": None if nccl is None else list(nccl.release[:3]),
    }


def _required_by_torch(toolchain: Toolchain, package: str) -> Version | None:
    """Return the version of a package that the target's own torch is pinned to, if it is."""
    if toolchain.evidence(SITE_PACKAGES) == "derived":
        return None
    for metadata in toolchain.site_packages.glob("torch-*.dist-info/METADATA"):
        headers = message_from_string(metadata.read_text(encoding="utf-8"))
        for text in headers.get_all("Requires-Dist", []):
            wanted = Requirement(text)
            applies = wanted.marker is None or wanted.marker.evaluate(toolchain.platform.markers)
            pin = re.fullmatch(r"==([\d.]+)", str(wanted.specifier))
            if wanted.name.startswith(package) and applies and pin:
                return Version(pin[1])
    return None


def _cudnn_number(version: Version) -> int:
    """Return the number that cudnnGetVersion() gives: 8902 for 8.9.2, 91900 for 9.19.0."""
    per_major = 10000 if version.major >= 9 else 1000
    return version.major * per_major + version.minor * 100 + version.micro


def _require_torch(toolchain: Toolchain, found: str) -> None:
    """Refuse another torch than the platform's: another release, or another minor one.

    NVIDIA's builds are snapshots before a release of upstream's, whose headers serve them.
    """
    wanted = Version(toolchain.platform.torch.version)
    digits = 3 if toolchain.evidence(SITE_PACKAGES) == "exact" else 2
    if Version(found).release[:digits] != wanted.release[:digits]:
        raise ConfigError(
            f"the toolchain of {toolchain.platform.name} holds torch {found}, "
            f"and the platform says {wanted}",
            fix="pass the wheel of the platform's own torch with --torch-wheel, or describe the "
            "platform that has this one in a --targets-file",
        )


def _pybind11_abi(library: bytes) -> dict[str, str | None]:
    """Read pybind11's ABI tags out of libtorch_python, whose internals id is made of them."""
    match = re.search(
        rb"__pybind11_internals_v\d+(_gcc|_clang)(_libstdcpp|_libcpp)(_cxxabi\d+)", library
    )
    if match is None:
        return {"compiler_type": None, "stdlib": None, "build_abi": None}
    compiler, stdlib, abi = (part.decode() for part in match.groups())
    return {"compiler_type": compiler, "stdlib": stdlib, "build_abi": abi}

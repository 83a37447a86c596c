"""A finished toolchain, as the stages to its right see it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from jetship.targets.model import Platform

SYSROOT = "sysroot"
SITE_PACKAGES = "site-packages"
CUDA_TARGET = "cuda-target"
CUDA = "cuda"


@dataclass(frozen=True)
class Toolchain:
    """Everything on the build machine that a build for one platform needs.

    `root` is a published, never changing folder; what is shared with other toolchains, or is
    the user's own, is linked into it:

        bin/            the cross compiler bound to the sysroot, first on the build's PATH
        buildroot/      programs for the build machine (cross GCC, binutils), unpacked
        cuda-target/    the target's own CUDA libraries, where they are at hand
        cuda/           CUDA_HOME: nvcc, ptxas, headers, link-time libcudart of the target
        sysroot/        the target's libc and libstdc++, and its Python headers where known
        links/          libstdc++.so and the like, for the linker
        python/         the target's Python headers, where the sysroot lacks them
        site-packages/  the target's torch, unpacked; read, never imported
        stubs/          import stubs for libraries that the target's torch build lacks

    `cuda_version` is the toolkit's, which may be older than the platform's CUDA.
    `build_constraints` and `build_requirements` are what the target torch's cpp_extension needs
    of the environment that it runs in, as pip takes them. `own` names the links to what is the
    target's own, so that what is found there is exact whatever the platform's evidence is.
    """

    platform: Platform
    root: Path
    cuda_version: str
    build_constraints: tuple[str, ...] = ()
    build_requirements: tuple[str, ...] = ()
    own: frozenset[str] = frozenset()

    def evidence(self, link: str) -> Literal["exact", "derived"]:
        """Return how near what is linked in under this name is to what the target has."""
        return "exact" if link in self.own else self.platform.evidence

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def cuda_home(self) -> Path:
        return self.root / CUDA

    @property
    def cuda_libraries(self) -> tuple[Path, ...]:
        """Where a CUDA toolkit may have the target's libcudart, the target's own folder first.

        A toolkit for two machines has them under targets/: aarch64-linux is Tegra, sbsa-linux
        is servers, and Jetsons with CUDA 13.
        """
        targets = self.cuda_home / "targets"
        names = ("aarch64-linux", "sbsa-linux") if self.platform.machine == "aarch64" else ()
        own = [targets / name / "lib" for name in names]
        own.insert(0, self.root / CUDA_TARGET)
        return (*(folder for folder in own if folder.is_dir()), self.cuda_home / "lib64")

    @property
    def sysroot(self) -> Path:
        return self.root / SYSROOT

    @property
    def site_packages(self) -> Path:
        return self.root / SITE_PACKAGES

    @property
    def torch(self) -> Path:
        return self.site_packages / "torch"

    @property
    def stubs(self) -> Path:
        return self.root / "stubs"

    @property
    def multiarch(self) -> str:
        """Debian's multiarch triplet of the target."""
        return f"{self.platform.machine}-linux-gnu"

    @property
    def python_include(self) -> Path:
        """Where Python.h is, or would be: where it is missing, a project that needs it fails."""
        name = f"include/python{self.platform.python.version}"
        own = self.root / "python" / name
        return own if own.is_dir() else self.sysroot / "usr" / name

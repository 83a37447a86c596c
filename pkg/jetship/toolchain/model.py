"""A finished toolchain, as the stages to its right see it."""

from dataclasses import dataclass
from pathlib import Path

from jetship.targets.model import Platform


@dataclass(frozen=True)
class Toolchain:
    """Everything on the build machine that a build for one platform needs.

    `root` is a published, never changing folder:

        bin/            compiler and nvcc wrappers, first on the build's PATH
        buildroot/      programs for the build machine (cross GCC, binutils), unpacked
        cuda/           CUDA_HOME: nvcc, ptxas, headers, link-time libcudart of the target
        sysroot/        the target's libc, libstdc++, Python headers and libraries
        site-packages/  the target's torch, unpacked; read, never imported
        stubs/          import stubs for libraries that the target's torch build lacks
    """

    platform: Platform
    root: Path

    @property
    def bin(self) -> Path:
        return self.root / "bin"

    @property
    def cuda_home(self) -> Path:
        return self.root / "cuda"

    @property
    def sysroot(self) -> Path:
        return self.root / "sysroot"

    @property
    def site_packages(self) -> Path:
        return self.root / "site-packages"

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

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from jetship.build.wheelfile import Member, Wheel
from jetship.targets.model import Platform, Target
from jetship.targets.resolve import resolve
from jetship.toolchain.layout import write_program
from jetship.toolchain.model import Toolchain
from packaging.tags import Tag

METADATA = b"""\
Metadata-Version: 2.1
Name: ops
Version: 1.0
Requires-Dist: numpy>=1.20

Words.
"""
# Of a release that knows archs up to 6.2, on a machine with toolkits of its own.
CPP_EXTENSION = """\
import os
import torch
from torch.utils import _helper
CUDA = torch.version.cuda
WHERE = __file__
ROCM_HOME = "/opt/rocm"
CUDA_HOME = os.environ.get("CUDA_HOME", "/usr/local/cuda")
def _get_cuda_arch_flags(cflags=None):
    if any("arch" in flag for flag in cflags or ()):
        return []
    flags = []
    for arch in os.environ["TORCH_CUDA_ARCH_LIST"].replace(" ", ";").split(";"):
        if arch not in ("5.3", "6.2"):
            raise ValueError(f"Unknown CUDA arch ({arch}) or GPU not supported")
        num = arch.replace(".", "")
        flags.append(f"-gencode=arch=compute_{num},code=sm_{num}")
    return flags
class BuildExtension:
    build_extension = None
"""
TORCH_FILES = {
    "__init__.py": "raise AssertionError('the real torch was imported')\n",
    "version.py": (
        "__all__ = ['__version__', 'debug', 'cuda', 'git_version', 'hip']\n"
        "__version__ = '2.7.1'\ndebug = False\ncuda = None\ngit_version = 'abc'\nhip = None\n"
    ),
    "torch_version.py": "from torch.version import __version__\n",
    "cuda/__init__.py": "raise AssertionError('the real torch.cuda was imported')\n",
    "utils/__init__.py": "raise AssertionError('the real torch.utils was imported')\n",
    "utils/cpp_extension.py": CPP_EXTENSION,
    "utils/_helper.py": "",
    "nn/__init__.py": "raise AssertionError('the real torch.nn was imported')\n",
    "distributed/rpc/__init__.py": "raise AssertionError('the real torch was imported')\n",
    "include/ATen/Config.h": (
        "#define AT_MKLDNN_ENABLED() 1\n#define AT_MKL_ENABLED() 0\n#define AT_PARALLEL_OPENMP 1\n"
    ),
    "backends/__init__.py": "raise AssertionError('the real torch.backends was imported')\n",
    "_C.py": "raise AssertionError('the real torch._C was imported')\n",
    "lib/libtorch_python.so": "\0__pybind11_internals_v4_gcc_libstdcpp_cxxabi1014__\0_c10d_init\0",
}
SYSCONFIG = """\
build_time_vars = {'CC': 'aarch64-linux-gnu-gcc -pthread', 'EXT_SUFFIX': '.cpython-311-aarch64.so',
 'CFLAGS': '-g -fwrapv -O2 -ggdb-none', 'INCLUDEPY': '/usr/include/python3.11', 'VERSION': '3.11',
 'LIBDIR': '/usr/lib', 'OPT': '-I/usr/include -L=/usr/lib -I./usr/x', 'SIZEOF_LONG': 8}
"""

REPEAT = '#!/bin/sh\nprintf "%s\\n" "$0" "$@"\n'

MakeWheel = Callable[..., Wheel]


@pytest.fixture(scope="session")
def target(catalog) -> Target:
    return resolve(catalog, arch="6.2")[0]


@pytest.fixture(scope="session")
def fat_target(catalog) -> Target:
    return resolve(catalog, arch="6.2,7.2+PTX", fat=True)[0]


@pytest.fixture
def toolchain(tmp_path, debian_12: Platform) -> Toolchain:
    """A toolchain with a torch of a few lines, Python's own settings and a nvcc that repeats."""
    made = Toolchain(debian_12, tmp_path / "toolchain", "11.8")
    settings = made.sysroot / "usr/lib/python3.11/_sysconfigdata__aarch64-linux-gnu.py"
    files = {made.torch / name: text for name, text in TORCH_FILES.items()}
    for path, text in {**files, settings: SYSCONFIG}.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for name in ("nvcc", "ptxas"):
        write_program(made.cuda_home / "bin" / name, REPEAT)
    (made.cuda_home / "include").mkdir()
    return made


@pytest.fixture
def jetpack_5(toolchain, catalog) -> Toolchain:
    """A toolchain for Python 3.8, whose sysroot has no Python at all."""
    shutil.rmtree(toolchain.sysroot)
    (toolchain.torch / "version.py").write_text("__version__ = '2.1.0'\ncuda = None\n")
    return Toolchain(catalog.platform("jetpack-5.1"), toolchain.root, "11.2")


@pytest.fixture
def xavier(catalog) -> Target:
    return resolve(catalog, arch="7.2", platform="jetpack-5.1")[0]


@pytest.fixture
def make_wheel() -> MakeWheel:
    """Make a wheel as setuptools would on this machine."""

    def make(
        files: dict[str, bytes] | None = None,
        *,
        tags: str = "cp312-cp312-linux_x86_64",
        metadata: bytes = METADATA,
    ) -> Wheel:
        tag = Tag(*tags.split("-"))
        members = {
            "ops/__init__.py": b"",
            "ops-1.0.dist-info/METADATA": metadata,
            "ops-1.0.dist-info/WHEEL": f"Wheel-Version: 1.0\nTag: {tag}\n".encode(),
            "ops-1.0.data/scripts/tool": b"#!python\n",
        }  # fmt: skip
        data = {name: Member(content) for name, content in {**members, **(files or {})}.items()}
        return Wheel("ops", "1.0", frozenset({tag}), data)

    return make


@pytest.fixture
def write() -> Callable[[Path, dict[str, str]], Path]:
    """Write a folder of text files."""

    def write(folder: Path, files: dict[str, str]) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return folder

    return write

"""The op pack's CUDA kernels, compiled for every GPU by each CUDA release that has it."""

import os
import sys
from pathlib import Path

import compile_matrix
import pytest
from compile_matrix import CSRC, Release, toolchain_of
from jetship import proc
from kernel_resources import Resources, resources_of
from kernels_by_arch import Code, Toolkit, compile_kernels, demangler_of

# A toolchain with each toolkit, and the archs that it is to make.
TOOLKITS = {
    "11.2": ("sm62-torch-1.10", ("5.3", "6.2", "7.0", "7.2")),
    "11.8": ("sm62-debian-12", ("5.3", "6.2", "7.0", "7.2", "8.7")),
    "13.0": ("sm87-torch-2.15", ("8.7", "9.0", "11.0")),
}
KERNELS = {path.name for path in (CSRC / "kernels").glob("*.cu")}


def toolkit_of(version: str) -> Toolkit:
    target, archs = TOOLKITS[version]
    toolchain = toolchain_of(Release("", target))
    assert toolchain.cuda_version == version
    compiler = toolchain.bin / f"{toolchain.multiarch}-g++"
    return Toolkit(toolchain.cuda_home / "bin/nvcc", version, compiler, archs)


@pytest.fixture(scope="module", params=TOOLKITS)
def toolkit(request) -> Toolkit:
    return toolkit_of(request.param)


@pytest.fixture(scope="module")
def codes(toolkit, tmp_path_factory) -> list[Code]:
    folder = tmp_path_factory.mktemp(f"cuda-{toolkit.version}")
    return compile_kernels([toolkit], folder, jobs=compile_matrix.max_jobs())


@pytest.fixture(scope="module")
def resources(toolkit, codes) -> list[Resources]:
    return resources_of(codes, demangler_of([toolkit]))


def test_nvcc_compiles_every_kernel_for_every_arch_without_a_warning(toolkit, codes):
    asked = {(source, arch) for source in KERNELS for arch in toolkit.archs}
    assert {(code.source, code.arch) for code in codes} == asked
    assert {code.cubin.name: code.warnings for code in codes if code.warnings} == {}


def test_all_archs_have_the_same_kernels(resources):
    kernels = {}
    for row in resources:
        kernels.setdefault(row.arch, set()).add((row.source, row.kernel, row.arguments))
    first, *others = kernels.values()
    assert {source for source, _, _ in first} == KERNELS
    assert others == [first] * len(others)


def test_what_a_kernel_takes_is_within_what_a_gpu_has(resources):
    # 255 registers a thread and, undeclared, 48 KiB of shared memory a block: CUDA C++ Programming
    # Guide, "Features and Technical Specifications".
    for row in resources:
        assert 0 < row.registers <= 255
        assert 0 <= row.shared <= 48 << 10


def test_the_tool_writes_its_page_with_any_nvcc(tmp_path):
    page = tmp_path / "page.md"
    toolkit = toolkit_of("11.8")
    arch = "6.2"
    words = [f"--nvcc={toolkit.nvcc}={arch}", f"--ccbin={toolkit.compiler}", page]
    done = proc.run([sys.executable, CSRC / "tools/kernel_resources.py", *words], env=bare())
    assert (done.status, done.stderr) == (0, "")
    text = page.read_text()
    assert f"| kernel | instances | {arch} ({toolkit.version}) |" in text
    assert all(f"| {name} `" in text for name in KERNELS)


def test_a_missing_nvcc_is_told(tmp_path):
    tool = CSRC / "tools/kernel_resources.py"
    done = proc.run([sys.executable, tool, f"--nvcc={tmp_path}/nvcc=6.2"], env=bare())
    assert (done.status, done.stderr) == (
        1,
        f"error: {tmp_path}/nvcc cannot be run: No such file or directory\n",
    )


def bare() -> dict[str, str]:
    """Return the environment of somebody who has no jetship."""
    return {name: os.environ[name] for name in ("PATH",)} | {"HOME": str(Path.home())}

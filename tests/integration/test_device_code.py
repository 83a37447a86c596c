"""The reader of device code against what a real nvcc writes and its own cuobjdump lists."""

import pytest
from jetship import proc
from jetship.fatbin import read_images

KERNEL = 'extern "C" __global__ void k(float *p) { p[threadIdx.x] += 1.f; }\n'


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        (["-gencode=arch=compute_90,code=[sm_90,compute_90]"], ["sm_90", "compute_90"]),
        (["-gencode=arch=compute_62,code=sm_62", "-gencode=arch=compute_87,code=sm_87"],
         ["sm_62", "sm_87"]),
        (["-rdc=true", "-gencode=arch=compute_87,code=sm_87"], ["sm_87 (not linked)"]),
    ],
)  # fmt: skip
def test_what_nvcc_writes(toolchain, tmp_path, flags, expected):
    (tmp_path / "k.cu").write_text(KERNEL)
    nvcc = toolchain.cuda_home / "bin/nvcc"
    compiler = toolchain.bin / f"{toolchain.multiarch}-g++"
    done = proc.run([nvcc, "-c", "-ccbin", compiler, *flags, "-o", "k.o", "k.cu"], cwd=tmp_path)
    assert done.ok, done.stderr
    assert [str(image) for image in read_images(tmp_path / "k.o")] == expected

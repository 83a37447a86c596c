"""Its CUDA code does not compile."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="bad_cuda",
    version="1.0",
    ext_modules=[CUDAExtension("bad_cuda", ["src/bad.cu"])],
    cmdclass={"build_ext": BuildExtension},
)

"""A CUDA kernel alone, in a project with no pyproject.toml."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="kernel",
    version="2.0",
    ext_modules=[CUDAExtension("kernel", ["scale.cu"])],
    cmdclass={"build_ext": BuildExtension},
)

"""A kernel whose header includes those of cuBLAS, cuSPARSE and cuSOLVER, far behind torch's."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

setup(
    name="context",
    version="1.0",
    ext_modules=[CUDAExtension("context", ["src/scale.cu"], include_dirs=["include"])],
    cmdclass={"build_ext": BuildExtension},
)

"""C++ alone, by torch's CppExtension: one that needs no CUDA."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension

setup(
    name="torch_cpp",
    version="1.0",
    ext_modules=[CppExtension("torch_cpp", ["twice.cpp"])],
    cmdclass={"build_ext": BuildExtension},
)

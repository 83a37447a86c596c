"""Five extensions of one file each, as in projects whose kernels are a module each."""

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CppExtension, CUDAExtension

setup(
    name="many",
    version="1.0",
    ext_modules=[
        CppExtension("many.c", ["answer.cpp"], define_macros=[("ANSWER", "3")]),
        CUDAExtension("many.b", ["scale.cu"], define_macros=[("FACTOR", "2")]),
        CppExtension("many.a", ["answer.cpp"], define_macros=[("ANSWER", "1")]),
        CUDAExtension("many.e", ["scale.cu"], define_macros=[("FACTOR", "5")]),
        CppExtension("many.d", ["answer.cpp"], define_macros=[("ANSWER", "4")]),
    ],
    cmdclass={"build_ext": BuildExtension},
)

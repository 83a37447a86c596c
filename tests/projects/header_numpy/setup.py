"""Compiles against numpy's headers, and computes with numpy while it is built."""

import numpy
from setuptools import Extension, setup

assert numpy.arange(3).sum() == 3
setup(
    name="header_numpy",
    version="1.0",
    ext_modules=[Extension("header_numpy", ["abi.c"], include_dirs=[numpy.get_include()])],
)

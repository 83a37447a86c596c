"""Compiles against numpy's headers, and computes with numpy while it is built."""

import numpy as np
from setuptools import Extension, setup

assert np.arange(3).sum() == 3
setup(
    name="header_numpy",
    version="1.0",
    ext_modules=[Extension("header_numpy", ["abi.c"], include_dirs=[np.get_include()])],
)

"""C++ without torch or CUDA: the cheapest project with something to compile."""

from setuptools import Extension, setup

setup(
    name="plain",
    version="1.0",
    packages=["plain"],
    ext_modules=[Extension("plain._C", ["plain.cpp"], language="c++")],
)

"""Its C++ does not compile."""

from setuptools import Extension, setup

setup(
    name="bad_cpp",
    version="1.0",
    ext_modules=[Extension("bad_cpp", ["src/bad.cpp"], language="c++")],
)

"""Its one file takes gigabytes of memory to compile."""

from setuptools import Extension, setup

setup(
    name="hungry",
    version="1.0",
    ext_modules=[
        Extension("hungry", ["many.cpp"], language="c++", extra_compile_args=["-std=c++17"])
    ],
)

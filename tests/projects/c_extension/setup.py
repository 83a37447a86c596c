"""Plain C against Python's own headers, and two files of it; neither torch nor CUDA."""

from setuptools import Extension, setup

setup(
    name="c_extension",
    version="1.0",
    ext_modules=[Extension("c_extension", ["module.c", "answer.c"])],
)

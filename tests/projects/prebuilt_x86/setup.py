"""Brings something that is built already. Tests build it for this machine, which is no target."""

import os

from setuptools import Extension, setup

if os.environ.get("PREBUILT_IS") == "object":
    brought = {"extra_objects": ["prebuilt.o"]}
else:
    brought = {"libraries": ["prebuilt"], "library_dirs": ["."]}
setup(
    name="prebuilt_x86",
    version="1.0",
    ext_modules=[Extension("prebuilt_x86", ["uses.c"], **brought)],
)

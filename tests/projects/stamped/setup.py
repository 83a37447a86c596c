"""Writes the time of its build into what it builds, which so is never the same twice."""

import time

from setuptools import Extension, setup

stamp = str(time.time_ns())
setup(
    name="stamped",
    version="1.0",
    ext_modules=[Extension("stamped", ["stamp.c"], define_macros=[("STAMP", f"{stamp}LL")])],
)

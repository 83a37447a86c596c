"""Its compiler waits for ever where STALLED_HEADER_IS is "pipe": nobody writes into the pipe."""

import os
from pathlib import Path

from setuptools import Extension, setup

if os.environ.get("STALLED_HEADER_IS") == "pipe":
    if not Path("header.h").exists():
        os.mkfifo("header.h")
else:
    Path("header.h").write_text("#define ANSWER 42\n")

setup(
    name="stalled",
    version="1.0",
    ext_modules=[Extension("stalled", ["stalled.cpp"], language="c++", include_dirs=["."])],
)

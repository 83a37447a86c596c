"""Its compiler waits for ever where STALLED_HEADER_IS is "pipe": nobody writes into the pipe."""

import os
from pathlib import Path

from setuptools import setup
from torch.utils.cpp_extension import BuildExtension, CUDAExtension

if os.environ.get("STALLED_HEADER_IS") == "pipe":
    if not Path("factor.h").exists():
        os.mkfifo("factor.h")
else:
    Path("factor.h").write_text("#define FACTOR 2\n")

setup(
    name="stalled",
    version="1.0",
    ext_modules=[CUDAExtension("stalled", ["scale.cu"])],
    cmdclass={"build_ext": BuildExtension},
)

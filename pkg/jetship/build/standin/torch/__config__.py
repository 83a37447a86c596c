"""How the target's torch runs CPU loops, by its ATen/Config.h; setup.py files look for OpenMP."""

from torch._standin import FACTS, unanswered, unknown_to

__getattr__ = unknown_to(__name__)


def parallel_info():
    """Return the lines by which extensions recognise an OpenMP build of torch."""
    openmp = FACTS["openmp"]
    if openmp is None:
        raise unanswered("torch.__config__.parallel_info")
    found = "OpenMP" if openmp else "OpenMP not found"
    backend = "OpenMP" if openmp else "native thread pool"
    return "ATen/Parallel:\n%s\nATen parallel backend: %s\n" % (found, backend)


def show():
    """Return what is known of the build; the rest is in the target's compiled half alone."""
    lines = ["PyTorch built with:", "  - torch %s" % FACTS["version"]]
    if FACTS["cuda"] is not None:
        lines.append("  - CUDA Runtime %s" % FACTS["cuda"])
    lines.append("  - C++11 ABI: %d" % FACTS["cxx11_abi"])
    return "\n".join(lines) + "\n" + parallel_info()

"""Whether extensions may be built with CUDA."""

from torch._standin import FACTS, unknown_to


def is_built():
    """Return whether the target is built for with CUDA."""
    return FACTS["cuda"] is not None


__getattr__ = unknown_to(__name__)

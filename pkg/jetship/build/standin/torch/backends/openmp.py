"""Whether the target's torch was built with OpenMP, by its ATen/Config.h."""

from torch._standin import FACTS, unanswered, unknown_to


def is_available():
    """Return whether it was."""
    if FACTS["openmp"] is None:
        raise unanswered("torch.backends.openmp.is_available")
    return FACTS["openmp"]


__getattr__ = unknown_to(__name__)

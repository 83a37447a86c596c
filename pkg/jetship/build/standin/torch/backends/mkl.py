"""Whether the target's torch was built with MKL, by its ATen/Config.h."""

from torch._standin import FACTS, unanswered, unknown_to


def is_available():
    """Return whether it was."""
    if FACTS["mkl"] is None:
        raise unanswered("torch.backends.mkl.is_available")
    return FACTS["mkl"]


__getattr__ = unknown_to(__name__)

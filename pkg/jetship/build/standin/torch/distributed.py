"""Whether the target's torch has torch.distributed; nothing is ever started here."""

from torch._standin import FACTS, unknown_to


def is_available():
    """Return whether the target's libtorch_python has the bindings."""
    return FACTS["distributed"]


def is_initialized():
    """Return False."""
    return False


__getattr__ = unknown_to(__name__)

"""No target is a Mac."""

from torch._standin import unknown_to


def is_built():
    """Return False."""
    return False


def is_available():
    """Return False."""
    return False


__getattr__ = unknown_to(__name__)

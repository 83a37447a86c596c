"""No target has an Intel GPU."""

from torch._standin import unknown_to


def _is_compiled():
    return False


def is_available():
    """Return False."""
    return False


def device_count():
    """Return 0."""
    return 0


def get_arch_list():
    """Return no archs."""
    return []


__getattr__ = unknown_to(__name__)

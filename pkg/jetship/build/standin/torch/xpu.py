"""No Jetson has an Intel GPU."""


def _is_compiled():
    return False


def is_available():
    """Return False."""
    return False


def get_arch_list():
    """Return no archs."""
    return []

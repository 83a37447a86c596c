"""The target's GPU, as a setup.py may ask for it; this machine's GPU is never asked."""

from torch import _FACTS

_CODE = [tuple(pair) for pair in _FACTS["code"]]


def is_available():
    """Return True: the target has a GPU, whatever this machine has."""
    return True


def _is_compiled():
    return True


def device_count():
    """Return the number of archs that this wheel is built for."""
    return len(_CODE)


def get_device_capability(device=0):
    """Return (major, minor) of the target's GPU."""
    return _CODE[device if isinstance(device, int) else 0]


def get_arch_list():
    """Return the archs of this target, as sm_XY."""
    return ["sm_%d%d" % pair for pair in _CODE]

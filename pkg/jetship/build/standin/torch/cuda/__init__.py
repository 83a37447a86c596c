"""The target's GPU, as a setup.py may ask for it; this machine's GPU is never asked.

A wheel for several archs has as many devices, so that a setup.py that gathers the archs of all
devices gathers those of the target.
"""

from torch._standin import FACTS, NoGpu, unanswered, unknown_to
from torch.cuda import nccl

__all__ = ["nccl"]

_CODE = [tuple(pair) for pair in FACTS["code"]]


def is_available():
    """Return whether the target is built for with a GPU, whatever this machine has."""
    return bool(_CODE)


def _is_compiled():
    return bool(_CODE)


def device_count():
    """Return the number of archs that this wheel is built for."""
    return len(_CODE)


def current_device():
    """Return the first device."""
    _code_of(None)
    return 0


def is_initialized():
    """Return False: no context is ever made."""
    return False


def _is_in_bad_fork():
    return False


def get_device_capability(device=None):
    """Return (major, minor) of the target's GPU."""
    return _code_of(device)


def get_device_properties(device=None):
    """Return the properties that are known of the target's GPU: major and minor."""
    return _DeviceProperties(*_code_of(device))


def get_arch_list():
    """Return the archs of this target, as sm_XY."""
    return ["sm_%d%d" % pair for pair in _CODE]


def get_gencode_flags():
    """Return nvcc's flags for the archs of this target."""
    return " ".join("-gencode compute=compute_%d%d,code=sm_%d%d" % (*p, *p) for p in _CODE)


def is_bf16_supported(including_emulation=True):
    """Return whether every GPU of the target computes in bfloat16 itself.

    Later torches also say True where bfloat16 is emulated, which tells a build nothing.
    """
    return is_available() and all(pair >= (8, 0) for pair in _CODE)


def _code_of(device):
    if not _CODE:
        raise NoGpu
    if isinstance(device, str):  # "cuda" or "cuda:1"
        device = device.partition(":")[2]
    index = int(device or 0)
    if not 0 <= index < len(_CODE):
        raise AssertionError("Invalid device id")  # torch's own words
    return _CODE[index]


class _DeviceProperties:
    def __init__(self, major, minor):
        self.major = major
        self.minor = minor

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        raise unanswered("torch.cuda.get_device_properties().%s" % name)


__getattr__ = unknown_to(__name__)

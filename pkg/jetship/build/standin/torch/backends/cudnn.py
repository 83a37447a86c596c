"""The cuDNN of the target's torch, by the packages that its wheel asks for."""

from torch._standin import FACTS, unanswered, unknown_to


def is_available():
    """Return whether the target's torch has cuDNN."""
    if FACTS["cudnn"] is None:
        raise unanswered("torch.backends.cudnn.is_available")
    return bool(FACTS["cudnn"])


def version():
    """Return cuDNN's version as cudnnGetVersion() does (91900), or None without cuDNN."""
    if FACTS["cudnn"] is None:
        raise unanswered("torch.backends.cudnn.version")
    return FACTS["cudnn"] or None


__getattr__ = unknown_to(__name__)

"""Whether the target's torch was built with oneDNN, by its ATen/Config.h."""

from torch._standin import FACTS, unanswered, unknown_to


def is_available():
    """Return whether it was."""
    if FACTS["mkldnn"] is None:
        raise unanswered("torch.backends.mkldnn.is_available")
    return FACTS["mkldnn"]


__getattr__ = unknown_to(__name__)

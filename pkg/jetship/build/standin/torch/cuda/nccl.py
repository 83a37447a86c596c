"""The NCCL of the target's torch, by the packages that its wheel asks for."""

from torch._standin import FACTS, unanswered, unknown_to


def version():
    """Return NCCL's version, as (2, 28, 9)."""
    if not FACTS["nccl"]:
        # A torch without NCCL raises an AttributeError, too.
        raise unanswered("torch.cuda.nccl.version")
    return tuple(FACTS["nccl"])


__getattr__ = unknown_to(__name__)

"""The NCCL of the target's torch, by the packages that its wheel asks for."""

from torch._standin import FACTS, unanswered, unknown_to


def version():
    """Return NCCL's version, as (2, 28, 9)."""
    if FACTS["nccl"] is None:
        raise unanswered("torch.cuda.nccl.version")
    if not FACTS["nccl"]:  # torch itself raises this kind
        raise AttributeError("torch %s is built without NCCL" % FACTS["version"])
    return tuple(FACTS["nccl"])


__getattr__ = unknown_to(__name__)

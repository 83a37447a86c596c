"""Which backends the target's torch was built with."""

from torch._standin import unknown_to
from torch.backends import cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]

__getattr__ = unknown_to(__name__)

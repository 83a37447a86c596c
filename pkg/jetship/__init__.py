"""Cross-compile, prove, package and roll out PyTorch CUDA extensions for Jetson fleets."""

from importlib.metadata import version

__version__ = version("jetship")

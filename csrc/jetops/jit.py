"""The operators compiled on this machine from their sources, for work on the sources themselves."""

import os
import re

import torch

from . import _sources

SOURCE_FOLDERS = ("bindings", "kernels")


def _default_sources():
    # type: () -> str
    return os.path.dirname(os.path.dirname(os.path.abspath(__file__)))


def jit_load(
    sources=None, with_cuda=None, namespace="jetops_jit", build_directory=None, verbose=False
):
    # type: (str, bool, str, str, bool) -> object
    """Compile the sources with ``torch.utils.cpp_extension.load`` and load the result.

    A second call with unchanged sources takes what the first one made, also in another process:
    torch keeps it in ``TORCH_EXTENSIONS_DIR``, and ninja compiles again only what changed.

    The operators are registered beside those of the installed package, as
    ``torch.ops.jetops_jit.*``, so that the two can be compared in one process.

    Args:
        sources: the folder with bindings/ and kernels/; the one around this package by default,
            which a checkout has and an installed package has not.
        with_cuda: whether to compile the CUDA kernels; by default if torch sees a GPU.
        namespace: of the registered operators, not one that is taken.
        build_directory: where torch compiles, instead of its cache.
        verbose: print the compilers' command lines.

    Returns:
        A Python module, bound with pybind11: ``gelu``, ``gelu_backward``, ``bias_gelu_dropout``,
        ``bias_gelu_dropout_backward``, ``fused_attn_nms`` and ``fused_attn_nms_scored``, with the
        arguments of the operators, and ``data_pointer(tensor)``, the address that C++ sees.

    Raises:
        ImportError: the sources are not there.
        ValueError: ``namespace`` is no C++ name.
        RuntimeError: a compiler or ninja failed or is missing.
    """
    from torch.utils import cpp_extension  # looks for compilers; not wanted on import

    folder = os.path.abspath(sources or _default_sources())
    missing = [name for name in SOURCE_FOLDERS if not os.path.isdir(os.path.join(folder, name))]
    if missing:
        raise ImportError(
            f"jit_load compiles jetops from its sources, but {folder} has no {missing[0]}/; "
            "name the folder csrc/ of a checkout: jetops.jit_load('.../csrc')."
        )
    if not re.match(r"[A-Za-z_]\w*$", namespace):
        raise ValueError(f"namespace must be a C++ name, got {namespace!r}")
    cuda = torch.cuda.is_available() if with_cuda is None else with_cuda
    files = _sources.COMMON + _sources.PYBIND + (_sources.CUDA if cuda else _sources.NO_CUDA)
    define = f"-DJETOPS_NAMESPACE={namespace}"
    if build_directory is not None:
        os.makedirs(build_directory, exist_ok=True)
    return cpp_extension.load(
        name=namespace,
        sources=[os.path.join(folder, name) for name in files],
        extra_include_paths=[os.path.join(folder, "kernels")],
        extra_cflags=_sources.CXX_FLAGS + [define],
        extra_cuda_cflags=_sources.NVCC_FLAGS,
        with_cuda=cuda,
        build_directory=build_directory,
        verbose=verbose,
    )

"""The operators compiled on this machine from their sources, for work on the sources themselves."""

import hashlib
import os
import re

import torch

from . import _sources

SOURCE_FOLDERS = ("bindings", "kernels")

_loaded = {}  # by namespace: the digest of what was compiled, and the module


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
    ``torch.ops.jetops_jit.*``, so that the two can be compared in one process. What is registered
    stays until the process ends: sources that changed since need another ``namespace`` there.

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
        ValueError: ``namespace`` is no C++ name, or operators of other sources have it already.
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
    if not re.match(r"[A-Za-z_]\w*\Z", namespace):
        raise ValueError(f"namespace must be a C++ name, got {namespace!r}")
    cuda = torch.cuda.is_available() if with_cuda is None else with_cuda
    files = _sources.COMMON + _sources.PYBIND + (_sources.CUDA if cuda else _sources.NO_CUDA)
    digest = _digest_of(folder, files + _sources.HEADERS)
    if namespace in _loaded and _loaded[namespace][0] == digest:
        return _loaded[namespace][1]
    # torch would end the process over a second registration.
    if namespace in _loaded or _has_operators(namespace):
        raise ValueError(
            f"torch.ops.{namespace} is taken, by operators that were loaded before and are not these; "
            "give another namespace, or start a new process"
        )
    define = f"-DJETOPS_NAMESPACE={namespace}"
    if build_directory is not None:
        os.makedirs(build_directory, exist_ok=True)
    module = cpp_extension.load(
        name=namespace,
        sources=[os.path.join(folder, name) for name in files],
        extra_include_paths=[os.path.join(folder, "kernels")],
        extra_cflags=_sources.CXX_FLAGS + [define],
        extra_cuda_cflags=_sources.NVCC_FLAGS,
        with_cuda=cuda,
        build_directory=build_directory,
        verbose=verbose,
    )
    _loaded[namespace] = (digest, module)
    return module


def _digest_of(folder, files):
    # type: (str, list) -> str
    digest = hashlib.sha256()
    for name in files:
        with open(os.path.join(folder, name), "rb") as stream:
            digest.update(hashlib.sha256(name.encode() + b"\0" + stream.read()).digest())
    return digest.hexdigest()


def _has_operators(namespace):
    # type: (str) -> bool
    return any(s.name.startswith(namespace + "::") for s in torch._C._jit_get_all_schemas())

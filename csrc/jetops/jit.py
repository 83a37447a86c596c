"""The operators compiled on this machine from their sources, for work on the sources themselves."""

import contextlib
import fcntl
import hashlib
import keyword
import os
import re
import subprocess
import time
import warnings

import torch

from . import _sources

SOURCE_FOLDERS = ("bindings", "kernels")
LOCK = "jetops.lock"  # in the folder that torch compiles in
SECONDS_OF_SILENCE = 5.0  # of waiting for another process, until a warning says so

# Words that no C++ namespace can have and that are none of Python's; and namespaces that torch's own
# headers fill.
_CPP_WORDS = re.findall(
    r"\w+",
    """
    alignas alignof and_eq asm auto bitand bitor bool case catch char char8_t char16_t char32_t
    compl concept const consteval constexpr constinit const_cast co_await co_return co_yield
    decltype default delete do double dynamic_cast enum explicit export extern float friend goto
    inline int long mutable namespace new noexcept not_eq operator or_eq private protected public
    register reinterpret_cast requires short signed sizeof static static_assert static_cast struct
    switch template this thread_local throw true false typedef typeid typename union unsigned using
    virtual void volatile wchar_t xor xor_eq
    """,
)
_TAKEN = frozenset(["at", "c10", "caffe2", "pybind11", "std", "torch"])

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
    torch keeps it in ``TORCH_EXTENSIONS_DIR``, and ninja compiles again only what changed. Of several
    processes one compiles and the others wait; after five seconds a warning says for what.

    The operators are registered beside those of the installed package, as
    ``torch.ops.jetops_jit.*``, so that the two can be compared in one process. What is registered
    stays until the process ends: sources that changed since need another ``namespace`` there.

    Args:
        sources: the folder with bindings/ and kernels/; the one around this package by default,
            which a checkout has and an installed package has not.
        with_cuda: whether to compile the CUDA kernels; by default if torch sees a GPU.
        namespace: of the registered operators and name of the module: a name in C++ and in Python
            that is not taken.
        build_directory: where torch compiles, instead of its cache.
        verbose: print the compilers' command lines.

    Returns:
        A Python module, bound with pybind11: ``gelu``, ``gelu_backward``, ``bias_gelu_dropout``,
        ``bias_gelu_dropout_backward``, ``fused_attn_nms`` and ``fused_attn_nms_scored``, with the
        arguments of the operators, and ``data_pointer(tensor)``, the address that C++ sees.

    Raises:
        ImportError: the sources are not there.
        TypeError: ``sources`` or ``build_directory`` is no path.
        ValueError: ``namespace`` is no such name, or operators of other sources have it already.
        RuntimeError: a compiler or ninja failed or is missing, or ``with_cuda`` is True and torch or
            this machine has no CUDA to compile with.
        OSError: nothing can be written to the folder that torch compiles in.
    """
    from torch.utils import cpp_extension  # looks for compilers; not wanted on import

    _check_namespace(namespace)
    folder = os.path.abspath(os.fsdecode(sources or _default_sources()))
    missing = [name for name in SOURCE_FOLDERS if not os.path.isdir(os.path.join(folder, name))]
    if missing:
        raise ImportError(
            f"jit_load compiles jetops from its sources, but {folder} has no {missing[0]}/; "
            "name the folder csrc/ of a checkout: jetops.jit_load('.../csrc')."
        )
    cuda = torch.cuda.is_available() if with_cuda is None else with_cuda
    if cuda:
        _check_cuda(cpp_extension.CUDA_HOME)
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
    build_directory = _made_folder(build_directory, namespace, verbose)
    with _alone_in(build_directory), _explaining_compilers():
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


def _check_namespace(namespace):
    # type: (object) -> None
    name = namespace if isinstance(namespace, str) else ""
    if not re.match(r"[A-Za-z_][A-Za-z0-9_]*\Z", name):
        raise ValueError(f"namespace must be a C++ name, got {namespace!r}")
    if keyword.iskeyword(name) or name in _CPP_WORDS:
        raise ValueError(
            f"namespace must be a C++ name that Python can import, and {name} is a reserved word"
        )
    if name in _TAKEN:
        raise ValueError(f"the namespace {name} is taken, by torch itself; give another one")


def _check_cuda(cuda_home):
    # type: (Optional[str]) -> None
    if torch.version.cuda is None:
        raise RuntimeError(
            f"jit_load was to compile CUDA kernels, but torch {torch.__version__} was built without "
            "CUDA; give with_cuda=False, or install a torch with CUDA"
        )
    if cuda_home is None:
        raise RuntimeError(
            "jit_load was to compile CUDA kernels, but torch finds no CUDA toolkit; install one and "
            "name its folder in CUDA_HOME, or give with_cuda=False"
        )


def _made_folder(build_directory, namespace, verbose):
    # type: (Optional[str], str, bool) -> str
    """The folder to compile in, which exists and in which files can be written."""
    from torch.utils import cpp_extension

    try:
        if build_directory is None:  # torch makes the folder that it names
            build_directory = cpp_extension._get_build_directory(namespace, verbose)
        build_directory = os.path.abspath(os.fsdecode(build_directory))
        os.makedirs(build_directory, exist_ok=True)
        with open(os.path.join(build_directory, LOCK), "a"):
            return build_directory
    except OSError as exc:
        raise OSError(
            f"jit_load cannot write to {build_directory or exc.filename} ({exc.strerror}); name a "
            "folder that can be written to, with build_directory= or in TORCH_EXTENSIONS_DIR"
        ) from exc


@contextlib.contextmanager
def _explaining_compilers():
    # type: () -> Iterator[None]
    """torch asks the C++ compiler who it is, and lets the caller have whatever that raises."""
    compiler = os.environ.get("CXX", "c++")
    try:
        yield
    except (OSError, subprocess.CalledProcessError) as exc:
        if isinstance(exc, OSError) and exc.filename != compiler:
            raise
        why = "which CXX names" if "CXX" in os.environ else "as CXX names none"
        raise RuntimeError(
            f"jit_load was to compile with {compiler}, {why}, and that does not work: "
            f"{str(exc).rstrip('.')}; set CXX to a C++ compiler that does, such as g++"
        ) from exc


@contextlib.contextmanager
def _alone_in(build_directory):
    # type: (str) -> Iterator[None]
    """Keep other calls of jit_load out, and remove what a killed one has left of torch's lock.

    torch's lock is a file that exists. Whoever is killed leaves it, and all others wait for it, in
    silence and for ever. The kernel takes back a lock on a file that is open; so one is held here for
    as long as a build lasts, and the file says "building" meanwhile. Who gets the lock and reads that
    follows a process that was killed. Without that word torch's lock is of somebody else, who may
    still compile in this folder.
    """
    with open(os.path.join(build_directory, LOCK), "a+") as stream:
        _wait_for(stream)
        stream.seek(0)
        torch_lock = os.path.join(build_directory, "lock")
        if os.path.exists(torch_lock):
            if stream.read() == "building":
                os.remove(torch_lock)
            else:
                _warn_of_waiting(torch_lock)
        stream.truncate(0)
        stream.write("building")
        stream.flush()
        try:
            yield
        finally:
            stream.truncate(0)


def _wait_for(stream):
    # type: (TextIO) -> None
    """Take the lock on ``stream``. It is gone when the file is closed, or the process ended."""
    started, warned = time.monotonic(), False
    while True:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            time.sleep(0.1)
        if not warned and time.monotonic() - started > SECONDS_OF_SILENCE:
            warned = True
            warnings.warn(
                f"jit_load waits for another process that compiles in {os.path.dirname(stream.name)}",
                stacklevel=2,
            )


def _warn_of_waiting(torch_lock):
    # type: (str) -> None
    warnings.warn(
        f"jit_load waits until {torch_lock} is gone, by which torch says that a process compiles "
        "there; if none does, one was killed: delete that file",
        stacklevel=2,
    )


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

"""What the target's own cpp_extension is told after it was loaded."""

import os
import re

import _jetship_parallel

from torch._standin import FACTS

# How nvcc is told for which GPUs; "arch=" comes as a word of its own behind -gencode.
_CHOOSES_ARCHS = re.compile(
    r"(?:^|\s)(?:-arch|--gpu-architecture|--?gencode|--generate-code|arch=)"
)

# Toolkits that a release may have found on the build machine.
_OTHER_HOMES = ("CUDNN_HOME", "ROCM_HOME", "MIOPEN_HOME", "HIP_HOME", "SYCL_HOME")


def adapt(module):
    """Take the build machine's own toolkits out of cpp_extension, and let it know the archs."""
    for name in _OTHER_HOMES:
        if hasattr(module, name):
            setattr(module, name, None)
    if not FACTS["code"]:
        module.CUDA_HOME = None
    module._get_cuda_arch_flags = _with_archs_of_target(module._get_cuda_arch_flags)
    _jetship_parallel.adapt(module.BuildExtension)


def _with_archs_of_target(own):
    """Let a release make code for archs that are younger than itself.

    It knows archs by a list inside of the function; what nvcc takes is nvcc's to say. And it takes
    every flag with "arch" in it for a choice of archs, -ccbin=aarch64-linux-gnu-gcc as well.
    """
    target = {"%d.%d" % tuple(pair): "%d%d" % tuple(pair) for pair in FACTS["code"]}

    def _get_cuda_arch_flags(cflags=None):
        cflags = [flag for flag in cflags or () if _CHOOSES_ARCHS.search(flag)]
        try:
            return own(cflags)
        except ValueError:
            asked = os.environ.get("TORCH_CUDA_ARCH_LIST", "")
            words = asked.replace(" ", ";").split(";")
            flags, others = _flags(words, target)
            if others == words:
                raise
        if others:
            flags += _with_list(own, ";".join(others), cflags)
        return sorted(set(flags))

    return _get_cuda_arch_flags


def _flags(words, target):
    """Return nvcc's flags for the words that are archs of the target, and the other words."""
    flags, others = [], []
    for word in words:
        number = target.get(word.removesuffix("+PTX"))
        if number is None:
            others.append(word)
            continue
        kinds = ("sm", "compute") if word.endswith("+PTX") else ("sm",)
        flags += ["-gencode=arch=compute_%s,code=%s_%s" % (number, kind, number) for kind in kinds]
    return flags, others


def _with_list(own, arch_list, cflags):
    asked = os.environ["TORCH_CUDA_ARCH_LIST"]
    os.environ["TORCH_CUDA_ARCH_LIST"] = arch_list
    try:
        return own(cflags)
    finally:
        os.environ["TORCH_CUDA_ARCH_LIST"] = asked

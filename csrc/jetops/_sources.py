"""What the compiled half is made of. Read by setup.py, before there is a package, and by jit.py."""

COMMON = [
    "bindings/autocast.cpp",
    "bindings/autograd.cpp",
    "bindings/cpu.cpp",
    "bindings/meta.cpp",
    "bindings/schema.cpp",
    "kernels/cpu/bias_gelu_dropout.cpp",
    "kernels/cpu/fused_attn_nms.cpp",
    "kernels/cpu/gelu.cpp",
]
CUDA = [
    "bindings/cuda.cpp",
    "kernels/bias_gelu_dropout.cu",
    "kernels/fused_attn_nms.cu",
    "kernels/gelu.cu",
]
NO_CUDA = ["bindings/no_cuda.cpp"]
MODULE = ["bindings/module.cpp"]  # an empty Python module; the shipped library binds no Python
PYBIND = ["bindings/pybind.cpp"]  # Python functions, for jit_load
HEADERS = [
    "bindings/checks.h",
    "bindings/dispatch.h",
    "bindings/names.h",
    "bindings/parallel.h",
    "kernels/cpu/elements.h",
    "kernels/cpu/gelu_rows.h",
    "kernels/cpu/jetops_cpu.h",
    "kernels/cpu/widest.h",
    "kernels/device.h",
    "kernels/dropout_math.h",
    "kernels/elements.cuh",
    "kernels/gelu_math.h",
    "kernels/hostdevice.h",
    "kernels/jetops_kernels.h",
    "kernels/jetops_types.h",
    "kernels/nms_math.h",
    "kernels/philox.h",
]

# A multiply and an add fused into one instruction round once instead of twice. GCC does that by
# default on aarch64 and not on x86-64, and the keep mask has to be the same on both. The CUDA code
# of the NMS names its roundings one by one (nms_math.h), so nvcc needs no flag and gelu keeps FMA.
# Nobody asks for floating-point exceptions here, and loops with a choice in them vectorize only
# without.
CXX_FLAGS = ["-O3", "-ffp-contract=off", "-fno-trapping-math"]
NVCC_FLAGS = ["-O3"]

#pragma once

#include <ATen/cuda/CUDAContext.h>

inline cudaStream_t stream_of_now() { return at::cuda::getCurrentCUDAStream(); }

// What lets one piece of arithmetic be compiled for the host and for the GPU.
#pragma once

#include <stdint.h>

#if defined(__CUDACC__)
#define JETOPS_HD __host__ __device__ __forceinline__
#else
#define JETOPS_HD inline
#endif

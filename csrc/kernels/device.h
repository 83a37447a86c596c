// What the launchers ask of the current device.
#pragma once

#include <cuda_runtime_api.h>

namespace jetops {

inline cudaError_t processor_count(int* processors) {
  int device = 0;
  const cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  return cudaDeviceGetAttribute(processors, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace jetops

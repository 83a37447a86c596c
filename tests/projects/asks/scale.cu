#include <cuda_runtime.h>

namespace {

__global__ void scale(float* data, float factor, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) data[i] *= factor;
}

}  // namespace

extern "C" int kernel_scale(float* data, float factor, long long count, cudaStream_t stream) {
  scale<<<static_cast<unsigned>((count + 255) / 256), 256, 0, stream>>>(data, factor, count);
  return static_cast<int>(cudaGetLastError());
}

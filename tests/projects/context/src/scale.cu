#include <context/stream.h>

namespace {

__global__ void scale(float* data, float factor, long long count) {
  const long long i = blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x;
  if (i < count) data[i] *= factor;
}

}  // namespace

extern "C" int context_scale(float* data, float factor, long long count) {
  const int warp = at::cuda::getCurrentDeviceProperties()->warpSize;
  const auto blocks = static_cast<unsigned>((count + warp - 1) / warp);
  scale<<<blocks, warp, 0, stream_of_now()>>>(data, factor, count);
  return static_cast<int>(cudaGetLastError());
}

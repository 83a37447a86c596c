namespace {
__device__ float factor = FACTOR;
}

__global__ void scale(float* values, int count) {
  int at = blockIdx.x * blockDim.x + threadIdx.x;
  if (at < count) values[at] *= factor;
}

extern "C" void scale_on_device(float* values, int count) {
  scale<<<(count + 255) / 256, 256>>>(values, count);
}

// The mistake stands in line 3.
__global__ void scale(float* data, float factor) {
  data[threadIdx.x] *= faktor;
}

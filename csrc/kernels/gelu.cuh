// GELU for one value in fp32, and the element types that it is stored in.
//
// "none": x/2 * erfc(-x/sqrt2), the same function as x/2 * (1 + erf(x/sqrt2)) but without the
// cancellation of 1 + erf on the negative side, where only rounding noise would be left below -5.
// "tanh": x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), equal to x/2 * (1 + tanh u) and again
// free of the cancellation. Both give the limit -0 at -inf, where the product would be NaN.
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

namespace jetops {

__device__ __forceinline__ bool is_minus_infinity(float x) {
  return __float_as_uint(x) == 0xFF800000u;
}

struct GeluErf {
  __device__ __forceinline__ float operator()(float x) const {
    return is_minus_infinity(x) ? -0.0f : 0.5f * x * erfcf(-x * 0.70710678118654752f);
  }
};

struct GeluTanh {
  __device__ __forceinline__ float operator()(float x) const {
    if (is_minus_infinity(x)) return -0.0f;
    const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
    return x / (1.0f + expf(-2.0f * u));
  }
};

struct Float32 {
  typedef float type;
  static __device__ __forceinline__ float load(float value) { return value; }
  static __device__ __forceinline__ float store(float value) { return value; }
};

struct Float16 {
  typedef __half type;
  static __device__ __forceinline__ float load(__half value) { return __half2float(value); }
  static __device__ __forceinline__ __half store(float value) { return __float2half_rn(value); }
};

// By bits: the toolkit's bf16 type is missing below CUDA 11, and on sm_62 its intrinsics are.
struct BFloat16 {
  typedef uint16_t type;
  static __device__ __forceinline__ float load(uint16_t value) {
    return __uint_as_float((uint32_t)value << 16);
  }
  static __device__ __forceinline__ uint16_t store(float value) {
    if (value != value) return 0x7FC0u;
    const uint32_t bits = __float_as_uint(value);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);  // nearest, ties to even
  }
};

}  // namespace jetops

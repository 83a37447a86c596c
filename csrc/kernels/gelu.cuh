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

constexpr float kSqrtHalf = 0.70710678118654752f;
constexpr float kSqrtTwoOverPi = 0.79788456080286536f;

__device__ __forceinline__ bool is_minus_infinity(float x) {
  return __float_as_uint(x) == 0xFF800000u;
}

// For results that are stored in 32 bits.
struct GeluErf {
  __device__ __forceinline__ float operator()(float x) const {
    return is_minus_infinity(x) ? -0.0f : 0.5f * x * erfcf(-x * kSqrtHalf);
  }
};

// For results that are stored in 16 bits. erff is much cheaper than erfcf, and down to -3 its
// cancellation costs less than a tenth of the rounding to come; few values lie below that.
struct GeluErf16 {
  __device__ __forceinline__ float operator()(float x) const {
    if (x < -3.0f) return GeluErf()(x);
    return 0.5f * x * (1.0f + erff(x * kSqrtHalf));
  }
};

__device__ __forceinline__ float tanh_argument(float x) {  // -2u
  return -2.0f * kSqrtTwoOverPi * (x + 0.044715f * x * x * x);
}

struct GeluTanh {
  __device__ __forceinline__ float operator()(float x) const {
    return is_minus_infinity(x) ? -0.0f : x / (1.0f + expf(tanh_argument(x)));
  }
};

// The fast exponential and division keep more digits than 16 bits can store. A divisor above 2^126
// makes the fast division give 0, which is what a result that small comes to anyway.
struct GeluTanh16 {
  __device__ __forceinline__ float operator()(float x) const {
    if (is_minus_infinity(x)) return -0.0f;
    return __fdividef(x, 1.0f + __expf(tanh_argument(x)));
  }
};

struct Float32 {
  typedef GeluErf Erf;
  typedef GeluTanh Tanh;
  typedef float type;
  static __device__ __forceinline__ float load(float value) { return value; }
  static __device__ __forceinline__ float store(float value) { return value; }
};

struct Float16 {
  typedef GeluErf16 Erf;
  typedef GeluTanh16 Tanh;
  typedef __half type;
  static __device__ __forceinline__ float load(__half value) { return __half2float(value); }
  static __device__ __forceinline__ __half store(float value) { return __float2half_rn(value); }
};

// By bits: the toolkit's bf16 type is missing below CUDA 11, and on sm_62 its intrinsics are.
struct BFloat16 {
  typedef GeluErf16 Erf;
  typedef GeluTanh16 Tanh;
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

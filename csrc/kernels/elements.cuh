// The element types: how they are kept in 32-bit words of memory, and in fp32 for arithmetic.
#pragma once

#include <cuda_fp16.h>
#include <stdint.h>

#include "gelu_math.h"

namespace jetops {

constexpr int kPackBytes = 16;
constexpr int kPackWords = kPackBytes / 4;

struct Float32 {
  typedef float type;
  typedef uint32_t Bits;
  typedef Fine Precision;
  static constexpr int kPerWord = 1;
  static __device__ __forceinline__ float load(float value) { return value; }
  static __device__ __forceinline__ float store(float value) { return value; }
  static __device__ __forceinline__ void unpack(uint32_t word, float* out) {
    out[0] = __uint_as_float(word);
  }
  static __device__ __forceinline__ uint32_t pack(const float* in) {
    return __float_as_uint(in[0]);
  }
};

struct Float16 {
  typedef __half type;
  typedef uint16_t Bits;
  typedef Coarse Precision;
  static constexpr int kPerWord = 2;
  static __device__ __forceinline__ float load(__half value) { return __half2float(value); }
  static __device__ __forceinline__ __half store(float value) { return __float2half_rn(value); }
  static __device__ __forceinline__ void unpack(uint32_t word, float* out) {
    out[0] = __half2float(__ushort_as_half((unsigned short)word));
    out[1] = __half2float(__ushort_as_half((unsigned short)(word >> 16)));
  }
  static __device__ __forceinline__ uint32_t pack(const float* in) {
#if __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(in[1]), "f"(in[0]));
    return word;
#else
    return (uint32_t)__half_as_ushort(__float2half_rn(in[0])) |
           (uint32_t)__half_as_ushort(__float2half_rn(in[1])) << 16;
#endif
  }
};

// By bits: the toolkit's bf16 type is missing below CUDA 11, and on sm_62 its intrinsics are.
struct BFloat16 {
  typedef uint16_t type;
  typedef uint16_t Bits;
  typedef Coarse Precision;
  static constexpr int kPerWord = 2;
  static __device__ __forceinline__ float load(uint16_t value) {
    return __uint_as_float((uint32_t)value << 16);
  }
  static __device__ __forceinline__ uint16_t store(float value) {
    if (value != value) return 0x7FC0u;
    const uint32_t bits = __float_as_uint(value);
    return (uint16_t)((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);  // nearest, ties to even
  }
  static __device__ __forceinline__ void unpack(uint32_t word, float* out) {
    out[0] = __uint_as_float(word << 16);
    out[1] = __uint_as_float(word & 0xFFFF0000u);
  }
  static __device__ __forceinline__ uint32_t pack(const float* in) {
#if __CUDA_ARCH__ >= 800
    uint32_t word;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(word) : "f"(in[1]), "f"(in[0]));
    return word;
#else
    return (uint32_t)store(in[0]) | (uint32_t)store(in[1]) << 16;
#endif
  }
};

template <class Type>
struct PackOf {
  static constexpr int kSize = kPackWords * Type::kPerWord;  // elements in 16 bytes
};

template <class Type>
__device__ __forceinline__ void unpack(const uint4& pack, float* out) {
  Type::unpack(pack.x, out);
  Type::unpack(pack.y, out + Type::kPerWord);
  Type::unpack(pack.z, out + 2 * Type::kPerWord);
  Type::unpack(pack.w, out + 3 * Type::kPerWord);
}

template <class Type>
__device__ __forceinline__ uint4 pack(const float* in) {
  return make_uint4(Type::pack(in), Type::pack(in + Type::kPerWord),
                    Type::pack(in + 2 * Type::kPerWord), Type::pack(in + 3 * Type::kPerWord));
}

// Compilers split an assignment of the whole into four where they see where its parts come from.
__device__ __forceinline__ void store_pack(void* to, const uint4& pack) {
  asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(pack.x), "r"(pack.y),
               "r"(pack.z), "r"(pack.w)
               : "memory");
}

inline bool is_aligned(const void* pointer) { return (uintptr_t)pointer % kPackBytes == 0; }

}  // namespace jetops

// The 16-bit element types on the CPU: to and from fp32, nearest with ties to even.
#pragma once

#include <cstdint>
#include <cstring>

#include "cpu/widest.h"
#include "jetops_types.h"

namespace jetops {

inline uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

inline float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

// Rounds `value` to a multiple of 2^-shift of its integer bits, ties to even.
inline uint32_t round_shift(uint32_t value, int shift) {
  const uint32_t half = 1u << (shift - 1);
  const uint32_t odd = (value >> shift) & 1u;
  return (value + half - 1u + odd) >> shift;
}

struct Float32 {
  typedef float type;
  static float load(float value) { return value; }
  static float store(float value) { return value; }
};

struct Float16 {
  typedef uint16_t type;

  // Without branches, so that compilers vectorize both. No number on the way is a subnormal of fp32, so
  // the modes of a CPU that take these for 0 change nothing.
  static float load(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1Fu;
    const uint32_t fraction = static_cast<uint32_t>(half & 0x3FFu) << 13;
    const uint32_t normal = ((exponent + 112u) << 23) | fraction;
    const uint32_t subnormal = bits_of(float_of(kSmallestNormal | fraction) - float_of(kSmallestNormal));
    const uint32_t finite = exponent == 0 ? subnormal : normal;
    return float_of(sign | (exponent == 0x1Fu ? 0x7F800000u | fraction : finite));
  }

  static uint16_t store(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    // Rounding may carry up to infinity, which is right.
    const uint32_t normal = round_shift(magnitude - 0x38000000u, 13);
    // The last bit of 1/2 is the smallest number of fp16, so the sum is rounded to a multiple of it.
    const float small = magnitude < kSmallestNormal ? float_of(magnitude) : 0.0f;
    const uint32_t subnormal = bits_of(small + 0.5f) - 0x3F000000u;
    const uint32_t finite = magnitude < kSmallestNormal ? subnormal : normal;
    const uint32_t number = magnitude >= 0x47800000u ? 0x7C00u : finite;  // 2^16 and above
    return static_cast<uint16_t>(sign | (magnitude > 0x7F800000u ? 0x7E00u : number));
  }

 private:
  static constexpr uint32_t kSmallestNormal = 0x38800000u;  // 2^-14, that of fp16, in fp32
};

struct BFloat16 {
  typedef uint16_t type;
  static float load(uint16_t value) { return float_of(static_cast<uint32_t>(value) << 16); }
  static uint16_t store(float value) {
    if (value != value) return 0x7FC0u;
    return static_cast<uint16_t>(round_shift(bits_of(value), 16));
  }
};

template <class Type>
void load_all(const void* from, int64_t count, float* to) {
  const typename Type::type* values = static_cast<const typename Type::type*>(from);
  for (int64_t i = 0; i < count; ++i) to[i] = Type::load(values[i]);
}

template <class Type>
void store_all(const float* from, int64_t count, void* to) {
  typename Type::type* values = static_cast<typename Type::type*>(to);
  for (int64_t i = 0; i < count; ++i) values[i] = Type::store(from[i]);
}

inline int64_t bytes_of(int dtype) { return dtype == JETOPS_FLOAT32 ? 4 : 2; }

// `count` elements of `base` from element `first` on.
inline const void* element(const void* base, int64_t first, int dtype) {
  return static_cast<const char*>(base) + first * bytes_of(dtype);
}

inline void* element(void* base, int64_t first, int dtype) {
  return static_cast<char*>(base) + first * bytes_of(dtype);
}

JETOPS_WIDEST static inline void load_all(const void* from, int64_t count, int dtype, float* to) {
  if (dtype == JETOPS_FLOAT16) return load_all<Float16>(from, count, to);
  if (dtype == JETOPS_BFLOAT16) return load_all<BFloat16>(from, count, to);
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

JETOPS_WIDEST static inline void store_all(const float* from, int64_t count, int dtype, void* to) {
  if (dtype == JETOPS_FLOAT16) return store_all<Float16>(from, count, to);
  if (dtype == JETOPS_BFLOAT16) return store_all<BFloat16>(from, count, to);
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace jetops

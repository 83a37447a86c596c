// The 16-bit element types on the CPU: to and from fp32, nearest with ties to even.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

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

  static float load(uint16_t half) {
    const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
    const uint32_t exponent = (half >> 10) & 0x1Fu;
    const uint32_t fraction = half & 0x3FFu;
    if (exponent == 0x1Fu) return float_of(sign | 0x7F800000u | (fraction << 13));
    if (exponent != 0) return float_of(sign | ((exponent + 112u) << 23) | (fraction << 13));
    const float magnitude = std::ldexp(static_cast<float>(fraction), -24);  // subnormal or zero
    return sign ? -magnitude : magnitude;
  }

  static uint16_t store(float value) {
    const uint32_t bits = bits_of(value);
    const uint32_t sign = (bits >> 16) & 0x8000u;
    const uint32_t magnitude = bits & 0x7FFFFFFFu;
    if (magnitude > 0x7F800000u) return static_cast<uint16_t>(sign | 0x7E00u);   // NaN
    if (magnitude >= 0x47800000u) return static_cast<uint16_t>(sign | 0x7C00u);  // 2^16 and above
    if (magnitude >= 0x38800000u) {  // normal; rounding may carry up to infinity, which is right
      return static_cast<uint16_t>(sign | round_shift(magnitude - 0x38000000u, 13));
    }
    if (magnitude < 0x33000000u) return static_cast<uint16_t>(sign);  // below half of 2^-24
    const int shift = 126 - static_cast<int>(magnitude >> 23);        // 14 to 24
    const uint32_t fraction = (magnitude & 0x7FFFFFu) | 0x800000u;
    return static_cast<uint16_t>(sign | round_shift(fraction, shift));
  }
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

inline void load_all(const void* from, int64_t count, int dtype, float* to) {
  if (dtype == JETOPS_FLOAT16) return load_all<Float16>(from, count, to);
  if (dtype == JETOPS_BFLOAT16) return load_all<BFloat16>(from, count, to);
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

inline void store_all(const float* from, int64_t count, int dtype, void* to) {
  if (dtype == JETOPS_FLOAT16) return store_all<Float16>(from, count, to);
  if (dtype == JETOPS_BFLOAT16) return store_all<BFloat16>(from, count, to);
  std::memcpy(to, from, static_cast<size_t>(count) * sizeof(float));
}

}  // namespace jetops

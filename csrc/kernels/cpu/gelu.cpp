// GELU on the CPU, without torch. The formulas and their limits are those of gelu.cuh.
#include <cmath>
#include <cstring>

#include "cpu/jetops_cpu.h"

namespace {

uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof bits);
  return bits;
}

float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float from_half(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1Fu;
  const uint32_t fraction = half & 0x3FFu;
  if (exponent == 0x1Fu) return float_of(sign | 0x7F800000u | (fraction << 13));
  if (exponent != 0) return float_of(sign | ((exponent + 112u) << 23) | (fraction << 13));
  const float magnitude = std::ldexp(static_cast<float>(fraction), -24);  // subnormal or zero
  return sign ? -magnitude : magnitude;
}

// Rounds `value` to a multiple of 2^-shift of its integer bits, ties to even.
uint32_t round_shift(uint32_t value, int shift) {
  const uint32_t half = 1u << (shift - 1);
  const uint32_t odd = (value >> shift) & 1u;
  return (value + half - 1u + odd) >> shift;
}

uint16_t to_half(float value) {
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

float from_bfloat16(uint16_t value) { return float_of(static_cast<uint32_t>(value) << 16); }

uint16_t to_bfloat16(float value) {
  if (value != value) return 0x7FC0u;
  return static_cast<uint16_t>(round_shift(bits_of(value), 16));
}

float same(float value) { return value; }

float gelu_erf(float x) {
  if (x == -INFINITY) return -0.0f;
  return 0.5f * x * std::erfc(-x * 0.70710678118654752f);
}

float gelu_tanh(float x) {
  if (x == -INFINITY) return -0.0f;
  const float u = 0.79788456080286536f * (x + 0.044715f * x * x * x);
  return x / (1.0f + std::exp(-2.0f * u));
}

template <class T, float (*load)(T), T (*store)(float)>
void apply(const void* x, void* y, int64_t n, int form) {
  const T* in = static_cast<const T*>(x);
  T* out = static_cast<T*>(y);
  if (form == JETOPS_GELU_TANH) {
    for (int64_t i = 0; i < n; ++i) out[i] = store(gelu_tanh(load(in[i])));
  } else {
    for (int64_t i = 0; i < n; ++i) out[i] = store(gelu_erf(load(in[i])));
  }
}

}  // namespace

extern "C" void jetops_gelu_cpu(const void* x, void* y, int64_t n, int dtype, int form) {
  if (dtype == JETOPS_FLOAT16) {
    apply<uint16_t, from_half, to_half>(x, y, n, form);
  } else if (dtype == JETOPS_BFLOAT16) {
    apply<uint16_t, from_bfloat16, to_bfloat16>(x, y, n, form);
  } else {
    apply<float, same, same>(x, y, n, form);
  }
}

// GELU and its derivative for one value in fp32, once, for host and device.
//
// "none": gelu(x) = max(x, 0) - a Q(a), where a = |x| and Q is the upper tail of the normal
// distribution. That is x/2 * (1 + erf(x/sqrt2)) without the cancellation of 1 + erf on the negative
// side. Q(a) = g(a) exp(-a^2/2), where g is smooth and falls slowly: a polynomial in 1/(1 + k a)
// follows it over the whole range, so there is no branch. The coefficients are minimax fits of the
// relative error of g over [0, 14.5], made for this file; beyond, the result is below 2^-149.
//
// "tanh": x * sigmoid(2u), u = sqrt(2/pi) (x + 0.044715 x^3), equal to x/2 * (1 + tanh u) and again
// free of the cancellation.
//
// Both give the limit 0 at -inf, where the product of the definition would be NaN; NaN stays NaN.
#pragma once

#include <math.h>
#include <string.h>

#include "hostdevice.h"

namespace jetops {

constexpr float kHalfLog2E = 0.72134752044448170f;         // exp(-a^2/2) = 2^(-kHalfLog2E a^2)
constexpr float kHalfLog2ERest = 9.62981494545545e-09f;    // what fp32 rounds away of it
constexpr float kDensityAtZero = 0.39894228040143268f;     // 1/sqrt(2 pi)
constexpr float kFarTail = 14.5f;

// 2u = x (kTwoU + kTwoUCubic x^2); in powers of two, exp(-2u) = 2^(x (kTanh + kTanhCubic x^2)).
constexpr float kTwoU = 1.5957691216057308f;
constexpr float kTwoUCubic = 0.07135481627260025f;
constexpr float kTanh = -2.302208198144325f;
constexpr float kTanhCubic = -0.1029432395800235f;
constexpr float kTanhIsFlat = 20.0f;  // from here on sigmoid(2u) is 0 or 1 to the last bit

JETOPS_HD float multiply_add(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
  return fmaf(a, b, c);
#else
  return a * b + c;  // fmaf is a slow call on hosts without the instruction
#endif
}

JETOPS_HD float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1.0f / x;
#endif
}

#if defined(__CUDA_ARCH__)
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
#else
// Without branches, so that compilers vectorize it. Adding 1.5 * 2^52 rounds to an integer.
inline float power_of_two(double x) {
  x = x < -127.0 ? -127.0 : x;
  x = x > 128.0 ? 128.0 : x;
  const double shifted = x + 6755399441055744.0;
  const float f = static_cast<float>(x - (shifted - 6755399441055744.0));
  float p = 0.00015345810970757157f;
  p = p * f + 0.0013399930903688073f;
  p = p * f + 0.009618489071726799f;
  p = p * f + 0.05550328642129898f;
  p = p * f + 0.24022646248340607f;
  p = p * f + 0.6931471824645996f;
  p = p * f + 1.0f;
  uint64_t bits;
  memcpy(&bits, &shifted, sizeof bits);
  const uint32_t scale_bits = (static_cast<uint32_t>(bits) + 127u) << 23;
  float scale;
  memcpy(&scale, &scale_bits, sizeof scale);
  return p * scale;
}
#endif

// For results that are stored in 16 bits: relative error of g 2.6e-5.
struct Coarse {
  static constexpr float kSlope = 0.35f;
  static JETOPS_HD float g(float s) {
    float p = -0.09719966351985931f;
    p = multiply_add(p, s, 0.27727001905441284f);
    p = multiply_add(p, s, 0.012617355212569237f);
    p = multiply_add(p, s, 0.17218609154224396f);
    p = multiply_add(p, s, 0.13486826419830322f);
    return multiply_add(p, s, 0.000270706630544737f);
  }
  static JETOPS_HD float exponential(float a) {
#if defined(__CUDA_ARCH__)
    return power_of_two(a * a * -kHalfLog2E);
#else
    return power_of_two(static_cast<double>(a * a * -kHalfLog2E));
#endif
  }
};

// For fp32: relative error of g 4e-8, 4e-7 with the rounding of the evaluation.
struct Fine {
  static constexpr float kSlope = 0.3f;
  static JETOPS_HD float g(float s) {
    float p = -0.0038362680934369564f;
    p = multiply_add(p, s, 0.05827442929148674f);
    p = multiply_add(p, s, -0.2136303037405014f);
    p = multiply_add(p, s, 0.284716933965683f);
    p = multiply_add(p, s, -0.12032903730869293f);
    p = multiply_add(p, s, 0.16450993716716766f);
    p = multiply_add(p, s, 0.08763188123703003f);
    p = multiply_add(p, s, 0.12331417948007584f);
    p = multiply_add(p, s, 0.1193338930606842f);
    return multiply_add(p, s, 1.4383886082214303e-05f);
  }
  // The exponent reaches 150 here, so its rounding error has to be carried along.
  static JETOPS_HD float exponential(float a) {
#if defined(__CUDA_ARCH__)
    const float square = a * a;
    const float square_rest = fmaf(a, a, -square);
    const float exponent = square * -kHalfLog2E;
    float rest = fmaf(square, -kHalfLog2E, -exponent);
    rest = fmaf(square, -kHalfLog2ERest, rest);
    rest = fmaf(square_rest, -kHalfLog2E, rest);
    const float y = power_of_two(exponent);
    return fmaf(y * 0.69314718f, rest, y);
#else
    const double wide = a;
    return power_of_two(wide * wide * -0.72134752044448170368);
#endif
  }
};

struct Tail {
  float exponential;  // exp(-a^2/2)
  float probability;  // Q(a)
};

template <class Precision>
JETOPS_HD Tail upper_tail(float a) {
  Tail tail;
  tail.exponential = Precision::exponential(a);
  const float s = reciprocal(multiply_add(Precision::kSlope, a, 1.0f));
  tail.probability = Precision::g(s) * tail.exponential;
  return tail;
}

// Written so that a NaN stays one; that is one instruction from sm_80 on.
JETOPS_HD float magnitude_up_to(float x, float limit) {
  const float a = fabsf(x);
  return a > limit ? limit : a;
}

template <class Precision>
struct GeluErf {
  static JETOPS_HD float value(float x) {
    const float a = magnitude_up_to(x, kFarTail);
#if defined(__CUDA_ARCH__)
    const float rectified = fmaxf(x, 0.0f);
#else
    const float rectified = x > 0.0f ? x : 0.0f;
#endif
    return multiply_add(-a, upper_tail<Precision>(a).probability, rectified);
  }
  static JETOPS_HD float value_over(float x, float, float inverse) { return value(x) * inverse; }
  // 1/2 +- (1/2 - Q(a) + a exp(-a^2/2) / sqrt(2 pi)), with the sign of x.
  static JETOPS_HD float slope(float x) {
    const float a = magnitude_up_to(x, kFarTail);
    const Tail tail = upper_tail<Precision>(a);
    const float half = multiply_add(a * tail.exponential, kDensityAtZero, 0.5f - tail.probability);
    return 0.5f + copysignf(half, x);
  }
};

JETOPS_HD float exp_of_minus_2u(float x) {
  return power_of_two(x * multiply_add(kTanhCubic, x * x, kTanh));
}

struct GeluTanh {
  static JETOPS_HD float value(float x) {
    const float finite = x < -1e30f ? -1e30f : x;  // times a sigmoid of 0 makes 0, not NaN
    return finite * reciprocal(1.0f + exp_of_minus_2u(x));
  }
  // value(x) / divisor; `inverse` is 1 / divisor, for the form that it is cheaper for.
  static JETOPS_HD float value_over(float x, float divisor, float) {
    const float finite = x < -1e30f ? -1e30f : x;
    return finite * reciprocal(multiply_add(divisor, exp_of_minus_2u(x), divisor));
  }
  static JETOPS_HD float slope(float x) {
    const float sigmoid = reciprocal(1.0f + exp_of_minus_2u(x));
    const float a = magnitude_up_to(x, kTanhIsFlat);  // times a slope of 0 makes 0, not NaN
    const float inner = a * multiply_add(3.0f * kTwoUCubic, a * a, kTwoU);  // |x d(2u)/dx|
    const float bend = multiply_add(-sigmoid, sigmoid, sigmoid);
    return multiply_add(copysignf(inner, x), bend, sigmoid);
  }
};

}  // namespace jetops

// The arithmetic of fused_attn_nms, once, for host and device.
//
// Everything is IEEE fp32 with each operation rounded on its own, so that x86-64, aarch64 and the
// GPU give the same bits. The device side names the rounding because nvcc otherwise fuses multiply
// and add; the host side relies on -ffp-contract=off for the same reason.
//
// weighted[i] = scores[i] * w_i, where w_i sums attn_map[i][j] * scores[j] over j in this order:
//   1. 128 partial sums start at +0; partial p adds columns p, p+128, p+256, ... as they come,
//      multiply rounded, then add rounded.
//   2. lane l of 32 joins its four: (p[4l] + p[4l+2]) + (p[4l+1] + p[4l+3]).
//   3. the lanes are halved: lane l adds lane l+16, then l+8, l+4, l+2, l+1; w_i is lane 0.
// Four neighbours a lane make one 16-byte load on the GPU; 128 independent sums vectorise on a CPU.
#pragma once

#include <math.h>
#include <string.h>

#include "hostdevice.h"

namespace jetops {

constexpr int kPartials = 128;
constexpr int kLanes = 32;

JETOPS_HD float mul(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fmul_rn(a, b);
#else
  return a * b;
#endif
}

JETOPS_HD float add(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fadd_rn(a, b);
#else
  return a + b;
#endif
}

JETOPS_HD float sub(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fsub_rn(a, b);
#else
  return a - b;
#endif
}

JETOPS_HD float div(float a, float b) {
#if defined(__CUDA_ARCH__)
  return __fdiv_rn(a, b);
#else
  return a / b;
#endif
}

// Not for NaN. The GPU has one instruction for each, but not for the comparison and choice.
JETOPS_HD float smaller(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fminf(a, b);
#else
  return a < b ? a : b;
#endif
}

JETOPS_HD float larger(float a, float b) {
#if defined(__CUDA_ARCH__)
  return fmaxf(a, b);
#else
  return a > b ? a : b;
#endif
}

// A box without positive width and height (NaN included), or with an area that rounds to 0, has
// IoU 0 with every box; it is turned inside out here, so that no box meets it.
struct Box {
  float x1, y1, x2, y2, area;
};

constexpr float kEndless = INFINITY;

JETOPS_HD Box make_box(float x1, float y1, float x2, float y2) {
  Box box = {x1, y1, x2, y2, 0.0f};
  if (x2 > x1 && y2 > y1) box.area = mul(sub(x2, x1), sub(y2, y1));
  if (!(box.area > 0.0f)) {
    box.x1 = box.y1 = kEndless;
    box.x2 = box.y2 = -kEndless;
    box.area = 1.0f;  // any number that is easy to compute with
  }
  return box;
}

// IoU is the rounded quotient common / both, and exceeds the threshold where the exact quotient is
// above the middle between the threshold and the next number of fp32, or is that middle and rounds
// up. So no division is needed: common is compared with both times the middle, exactly.
struct Threshold {
  double middle;
  float value, half_step;  // their sum is the middle, too, unless they are tiny
  uint32_t middle_rounds_up;  // 0 or 1
  float below;  // what the excess over the middle has to be above: 0, or the number before it
};

inline Threshold make_threshold(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  const double half_step = 0.5 * (static_cast<double>(nextafterf(value, INFINITY)) - value);
  Threshold threshold;
  threshold.middle = value + half_step;
  threshold.value = value;
  threshold.half_step = static_cast<float>(half_step);
  threshold.middle_rounds_up = bits & 1u;
  threshold.below = threshold.middle_rounds_up != 0 ? nextafterf(0.0f, -1.0f) : 0.0f;
  return threshold;
}

struct Overlap {
  float common, both;
};

// `common` is not positive where the boxes do not meet. Then, and where a number is not finite,
// no comparison below is true.
JETOPS_HD Overlap overlap_of(const Box& a, const Box& b) {
  const float width = larger(sub(smaller(a.x2, b.x2), larger(a.x1, b.x1)), 0.0f);
  const float height = sub(smaller(a.y2, b.y2), larger(a.y1, b.y1));
  Overlap overlap;
  overlap.common = mul(width, height);
  overlap.both = sub(add(a.area, b.area), overlap.common);
  return overlap;
}

// fp64 holds the product of both and the middle, 24 by 25 bits, whole.
JETOPS_HD bool iou_exceeds(const Box& a, const Box& b, const Threshold& threshold) {
  const Overlap overlap = overlap_of(a, b);
  const double common = overlap.common, limit = overlap.both * threshold.middle;
  const bool at_middle = (common == limit) & (threshold.middle_rounds_up != 0);
  return (common > 0.0) & ((common > limit) | at_middle);
}

#if defined(__CUDACC__)
// The same in fp32, for GPUs whose fp64 is slow. Close to the threshold the difference `rest` has 24
// bits and comes out whole, and the sign of the excess is right because it is rounded once: unless they
// are too small for fp32, which kSmallestArea and kSmallestThreshold keep away.
constexpr float kSmallestArea = 8.6736174e-19f;       // 2^-60
constexpr float kSmallestThreshold = 9.0949470e-13f;  // 2^-40

__device__ __forceinline__ bool iou_exceeds_in_range(const Box& a, const Box& b,
                                                     const Threshold& threshold) {
  const Overlap overlap = overlap_of(a, b);
  const float rest = fmaf(-overlap.both, threshold.value, overlap.common);
  return fmaf(-overlap.both, threshold.half_step, rest) > threshold.below;
}
#endif

// Ascending ranks are descending scores; NaN comes after every number, and below the largest word, so
// that rank + 1 can be told from it. -0 and +0 are equal scores, so they share a rank.
constexpr uint32_t kNanRank = 0xFFFFFFFEu;

JETOPS_HD uint32_t rank_bits(float score, uint32_t score_bits) {
  if (score != score) return kNanRank;
  const uint32_t bits = score == 0.0f ? 0u : score_bits;
  const uint32_t rising = (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
  return ~rising;
}

// Equal scores are ordered by index.
JETOPS_HD uint64_t sort_key(float score, uint32_t score_bits, uint32_t index) {
  return ((uint64_t)rank_bits(score, score_bits) << 32) | index;
}

JETOPS_HD uint32_t key_index(uint64_t key) { return (uint32_t)key; }
JETOPS_HD bool key_is_nan(uint64_t key) { return (uint32_t)(key >> 32) == kNanRank; }

}  // namespace jetops

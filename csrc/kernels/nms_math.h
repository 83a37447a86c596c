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
  }
  return box;
}

// IoU is the rounded quotient of the common area and the area of both. To compare it with a threshold
// the quotient is rarely needed: it is where `common` is within 2^-20 of threshold times `both`, and
// where the numbers are too large or too small for that to be told.
struct Threshold {
  float value, surely_below, surely_above;
};

JETOPS_HD Threshold make_threshold(float value) {
  if (value < 1e-20f) {  // products with it may lose their digits
    Threshold exact = {value, -1.0f, kEndless};
    return exact;
  }
  Threshold threshold = {value, value - value * 9.5367431640625e-7f, value + value * 9.5367431640625e-7f};
  return threshold;
}

struct Overlap {
  bool meets;
  float common, both;
};

JETOPS_HD Overlap overlap_of(const Box& a, const Box& b) {
  const float width = sub(smaller(a.x2, b.x2), larger(a.x1, b.x1));
  const float height = sub(smaller(a.y2, b.y2), larger(a.y1, b.y1));
  Overlap overlap;
  overlap.meets = (width > 0.0f) & (height > 0.0f);
  overlap.common = mul(width, height);
  overlap.both = sub(add(a.area, b.area), overlap.common);
  return overlap;
}

JETOPS_HD bool iou_exceeds(const Box& a, const Box& b, const Threshold& threshold) {
  const Overlap overlap = overlap_of(a, b);
  return overlap.meets && overlap.both > 0.0f &&
         div(overlap.common, overlap.both) > threshold.value;
}

// The same without a division and a branch, so that loops over boxes vectorize on a CPU and overlap
// on a GPU. Where it cannot tell, `exceeds` is false and iou_exceeds has to be asked.
struct QuickAnswer {
  bool exceeds, cannot_tell;
};

JETOPS_HD QuickAnswer iou_exceeds_quickly(const Box& a, const Box& b, const Threshold& threshold) {
  const Overlap overlap = overlap_of(a, b);
  const bool in_range = overlap.both > 1e-30f;
  const bool above = overlap.common > mul(overlap.both, threshold.surely_above);
  const bool below = overlap.common <= mul(overlap.both, threshold.surely_below);
  QuickAnswer answer;
  answer.exceeds = overlap.meets & in_range & above;
  answer.cannot_tell = overlap.meets & !(in_range & (above | below));
  return answer;
}

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

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

#include <stdint.h>

#if defined(__CUDACC__)
#define JETOPS_HD __host__ __device__ __forceinline__
#else
#define JETOPS_HD inline
#endif

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

JETOPS_HD float smaller(float a, float b) { return a < b ? a : b; }
JETOPS_HD float larger(float a, float b) { return a > b ? a : b; }

struct Box {
  float x1, y1, x2, y2, area;
};

// A box without positive width and height (NaN included) has area 0, hence IoU 0 with every box.
JETOPS_HD Box make_box(float x1, float y1, float x2, float y2) {
  Box box = {x1, y1, x2, y2, 0.0f};
  if (x2 > x1 && y2 > y1) box.area = mul(sub(x2, x1), sub(y2, y1));
  return box;
}

JETOPS_HD float iou(const Box& a, const Box& b) {
  if (!(a.area > 0.0f && b.area > 0.0f)) return 0.0f;
  const float width = sub(smaller(a.x2, b.x2), larger(a.x1, b.x1));
  const float height = sub(smaller(a.y2, b.y2), larger(a.y1, b.y1));
  if (!(width > 0.0f && height > 0.0f)) return 0.0f;
  const float common = mul(width, height);
  const float both = sub(add(a.area, b.area), common);
  return both > 0.0f ? div(common, both) : 0.0f;
}

// Ascending keys are descending scores, then ascending indices; NaN comes after every number.
// -0 and +0 are equal scores, so they share a key.
constexpr uint32_t kNanRank = 0xFFFFFFFFu;

JETOPS_HD uint64_t sort_key(float score, uint32_t score_bits, uint32_t index) {
  uint32_t rank = kNanRank;
  if (score == score) {
    const uint32_t bits = score == 0.0f ? 0u : score_bits;
    const uint32_t rising = (bits & 0x80000000u) ? ~bits : (bits | 0x80000000u);
    rank = ~rising;
  }
  return ((uint64_t)rank << 32) | index;
}

JETOPS_HD uint32_t key_index(uint64_t key) { return (uint32_t)key; }
JETOPS_HD bool key_is_nan(uint64_t key) { return (uint32_t)(key >> 32) == kNanRank; }

}  // namespace jetops

// Attention-weighted greedy NMS on the CPU. nms_math.h defines the arithmetic and the order.
#include <algorithm>
#include <cstring>

#include "cpu/elements.h"
#include "cpu/jetops_cpu.h"
#include "nms_math.h"

namespace {

using jetops::Box;

float weight_of_row(const float* row, const float* scores, int64_t n) {
  float partial[jetops::kPartials] = {};
  int64_t start = 0;
  for (; start + jetops::kPartials <= n; start += jetops::kPartials) {
    for (int p = 0; p < jetops::kPartials; ++p) partial[p] += row[start + p] * scores[start + p];
  }
  for (int p = 0; start + p < n; ++p) partial[p] += row[start + p] * scores[start + p];

  float lane[jetops::kLanes];
  for (int l = 0; l < jetops::kLanes; ++l) {
    const float* four = partial + 4 * l;
    lane[l] = (four[0] + four[2]) + (four[1] + four[3]);
  }
  for (int width = jetops::kLanes / 2; width > 0; width /= 2) {
    for (int l = 0; l < width; ++l) lane[l] += lane[l + width];
  }
  return lane[0];
}

uint64_t key_of(float score, int64_t index) {
  return jetops::sort_key(score, jetops::bits_of(score), static_cast<uint32_t>(index));
}

// Boxes in rank order, a list for each coordinate, so that the loops over them vectorize. `alive`
// holds what no kept box has suppressed so far.
struct Ranked {
  float *x1, *y1, *x2, *y2, *area;
  uint32_t* alive;

  Ranked(float* memory, int64_t n)
      : x1(memory),
        y1(x1 + n),
        x2(y1 + n),
        y2(x2 + n),
        area(y2 + n),
        alive(reinterpret_cast<uint32_t*>(area + n)) {}

  static int64_t bytes(int64_t n) { return n * 6 * static_cast<int64_t>(sizeof(float)); }

  void set(int64_t rank, const float* corners) const {
    const Box box = jetops::make_box(corners[0], corners[1], corners[2], corners[3]);
    x1[rank] = box.x1;
    y1[rank] = box.y1;
    x2[rank] = box.x2;
    y2[rank] = box.y2;
    area[rank] = box.area;
    alive[rank] = 1;
  }

  Box box(int64_t rank) const {
    const Box box = {x1[rank], y1[rank], x2[rank], y2[rank], area[rank]};
    return box;
  }
};

void strike_out(const Box& kept, const jetops::Threshold& threshold, int64_t first, int64_t n,
                const Ranked& ranked) {
  const float *x1 = ranked.x1, *y1 = ranked.y1, *x2 = ranked.x2, *y2 = ranked.y2;
  const float* area = ranked.area;
  uint32_t* alive = ranked.alive;
  for (int64_t i = first; i < n; ++i) {
    const Box other = {x1[i], y1[i], x2[i], y2[i], area[i]};
    alive[i] &= jetops::iou_exceeds(kept, other, threshold) ? 0u : 1u;
  }
}

}  // namespace

extern "C" int64_t jetops_fused_attn_nms_cpu_workspace_bytes(int64_t n) {
  // keys, boxes, scores and one row of attn_map in fp32
  return n * static_cast<int64_t>(sizeof(uint64_t) + 2 * sizeof(float)) + Ranked::bytes(n);
}

extern "C" void jetops_fused_attn_nms_cpu(const float* boxes, const void* scores,
                                          const void* attn_map, int64_t n, int dtype,
                                          float iou_threshold, uint8_t* keep, float* weighted,
                                          void* workspace) {
  uint64_t* keys = static_cast<uint64_t*>(workspace);
  float* scores32 = reinterpret_cast<float*>(keys + n);
  float* row32 = scores32 + n;
  const Ranked ranked(row32 + n, n);

  jetops::load_all(scores, n, dtype, scores32);
  for (int64_t i = 0; i < n; ++i) {
    const float* row = static_cast<const float*>(attn_map) + i * n;
    if (dtype != JETOPS_FLOAT32) {
      jetops::load_all(jetops::element(attn_map, i * n, dtype), n, dtype, row32);
      row = row32;
    }
    const float score = scores32[i] * weight_of_row(row, scores32, n);
    if (weighted != nullptr) weighted[i] = score;
    keys[i] = key_of(score, i);
  }
  std::sort(keys, keys + n);
  for (int64_t rank = 0; rank < n; ++rank) {
    ranked.set(rank, boxes + 4 * static_cast<int64_t>(jetops::key_index(keys[rank])));
  }
  const jetops::Threshold threshold = jetops::make_threshold(iou_threshold);
  for (int64_t rank = 0; rank < n; ++rank) {
    const bool kept = ranked.alive[rank] != 0 && !jetops::key_is_nan(keys[rank]);
    keep[jetops::key_index(keys[rank])] = kept;
    if (kept) strike_out(ranked.box(rank), threshold, rank + 1, n, ranked);
  }
}

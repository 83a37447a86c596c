// Attention-weighted greedy NMS on the CPU. nms_math.h defines the arithmetic and the order.
#include <algorithm>
#include <cstring>

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
  uint32_t bits;
  std::memcpy(&bits, &score, sizeof bits);
  return jetops::sort_key(score, bits, static_cast<uint32_t>(index));
}

// boxes and keys are in rank order here. `alive` holds what no kept box has suppressed so far.
void greedy(const Box* boxes, const uint64_t* keys, int64_t n, float iou_threshold,
            uint8_t* alive, uint8_t* keep) {
  std::fill(alive, alive + n, uint8_t(1));
  for (int64_t rank = 0; rank < n; ++rank) {
    const bool kept = alive[rank] && !jetops::key_is_nan(keys[rank]);
    keep[jetops::key_index(keys[rank])] = kept;
    if (!kept) continue;
    for (int64_t later = rank + 1; later < n; ++later) {
      if (alive[later] && jetops::iou(boxes[rank], boxes[later]) > iou_threshold) alive[later] = 0;
    }
  }
}

}  // namespace

extern "C" int64_t jetops_fused_attn_nms_cpu_workspace_bytes(int64_t n) {
  return n * static_cast<int64_t>(sizeof(uint64_t) + sizeof(Box) + sizeof(uint8_t));
}

extern "C" void jetops_fused_attn_nms_cpu(const float* boxes, const float* scores,
                                          const float* attn_map, int64_t n, float iou_threshold,
                                          uint8_t* keep, float* weighted, void* workspace) {
  uint64_t* keys = static_cast<uint64_t*>(workspace);
  Box* ranked = reinterpret_cast<Box*>(keys + n);
  uint8_t* alive = reinterpret_cast<uint8_t*>(ranked + n);

  for (int64_t i = 0; i < n; ++i) {
    const float score = scores[i] * weight_of_row(attn_map + i * n, scores, n);
    if (weighted != nullptr) weighted[i] = score;
    keys[i] = key_of(score, i);
  }
  std::sort(keys, keys + n);
  for (int64_t rank = 0; rank < n; ++rank) {
    const float* box = boxes + 4 * static_cast<int64_t>(jetops::key_index(keys[rank]));
    ranked[rank] = jetops::make_box(box[0], box[1], box[2], box[3]);
  }
  greedy(ranked, keys, n, iou_threshold, alive, keep);
}

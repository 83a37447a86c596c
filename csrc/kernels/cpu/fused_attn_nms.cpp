// Attention-weighted greedy NMS on the CPU. nms_math.h defines the arithmetic and the order.
#include <algorithm>
#include <cstring>

#include "cpu/elements.h"
#include "cpu/jetops_cpu.h"
#include "cpu/widest.h"
#include "nms_math.h"

namespace {

using jetops::Box;

constexpr int kInRegisters = 64;  // partial sums that the vector registers of most CPUs hold
constexpr int kCacheLine = 64;

// The sums go over a row several times with gaps, in which a CPU does not see that it is read from end
// to end; so the next row is asked for in the meantime.
void prefetch(const void* from, int64_t bytes) {
#if defined(__GNUC__)
  const char* line = static_cast<const char*>(from);
  for (int64_t k = 0; k < bytes; k += kCacheLine) __builtin_prefetch(line + k);
#endif
}

JETOPS_WIDEST float weight_of_row(const float* row, const float* scores, int64_t n) {
  float partial[jetops::kPartials];
  const int64_t whole = n / jetops::kPartials * jetops::kPartials;
  for (int first = 0; first < jetops::kPartials; first += kInRegisters) {
    float sum[kInRegisters] = {};
    for (int64_t start = first; start < whole; start += jetops::kPartials) {
      for (int p = 0; p < kInRegisters; ++p) sum[p] += row[start + p] * scores[start + p];
    }
    std::memcpy(partial + first, sum, sizeof sum);
  }
  for (int p = 0; whole + p < n; ++p) partial[p] += row[whole + p] * scores[whole + p];

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
  uint64_t* keys;
  float *x1, *y1, *x2, *y2, *area;
  uint32_t* alive;

  Ranked(uint64_t* keys, float* memory, int64_t n)
      : keys(keys),
        x1(memory),
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

  void move(int64_t from, int64_t to) const {
    keys[to] = keys[from];
    x1[to] = x1[from];
    y1[to] = y1[from];
    x2[to] = x2[from];
    y2[to] = y2[from];
    area[to] = area[from];
    alive[to] = alive[from];
  }

  Box box(int64_t rank) const {
    const Box box = {x1[rank], y1[rank], x2[rank], y2[rank], area[rank]};
    return box;
  }
};

// How many of the boxes from `first` on are alive after that.
JETOPS_WIDEST int64_t strike_out(const Box& kept, const jetops::Threshold& threshold,
                                 int64_t first, int64_t n, const Ranked& ranked) {
  const float *x1 = ranked.x1, *y1 = ranked.y1, *x2 = ranked.x2, *y2 = ranked.y2;
  const float* area = ranked.area;
  uint32_t* alive = ranked.alive;
  uint32_t left = 0;
  for (int64_t i = first; i < n; ++i) {
    const Box other = {x1[i], y1[i], x2[i], y2[i], area[i]};
    alive[i] &= jetops::iou_exceeds(kept, other, threshold) ? 0u : 1u;
    left += alive[i];
  }
  return left;
}

// The boxes from `first` on that are alive come to the front; how many they are.
int64_t close_gaps(int64_t first, int64_t n, const Ranked& ranked) {
  int64_t count = 0;
  for (int64_t i = first; i < n; ++i) {
    if (ranked.alive[i] != 0) ranked.move(i, count++);
  }
  return count;
}

void suppress(const jetops::Threshold& threshold, int64_t n, const Ranked& ranked, uint8_t* keep) {
  std::memset(keep, 0, static_cast<size_t>(n));
  for (int64_t rank = 0; rank < n; ++rank) {
    if (ranked.alive[rank] == 0) continue;
    const uint64_t key = ranked.keys[rank];
    if (jetops::key_is_nan(key)) return;  // and so are all that follow
    keep[jetops::key_index(key)] = 1;
    const int64_t next = rank + 1;
    const int64_t left = strike_out(ranked.box(rank), threshold, next, n, ranked);
    if (2 * left < n - next) {
      n = close_gaps(next, n, ranked);
      rank = -1;
    }
  }
}

}  // namespace

extern "C" void jetops_weighted_scores_cpu(const void* scores, const void* attn_map, int64_t n,
                                           int dtype, int64_t first, int64_t end, float* weighted,
                                           float* scratch) {
  float* scores32 = scratch;
  float* row32 = scratch + n;
  jetops::load_all(scores, n, dtype, scores32);
  for (int64_t i = first; i < end; ++i) {
    const float* row = static_cast<const float*>(attn_map) + i * n;
    if (dtype != JETOPS_FLOAT32) {
      jetops::load_all(jetops::element(attn_map, i * n, dtype), n, dtype, row32);
      row = row32;
    }
    if (i + 1 < end) {
      prefetch(jetops::element(attn_map, (i + 1) * n, dtype), n * jetops::bytes_of(dtype));
    }
    weighted[i] = scores32[i] * weight_of_row(row, scores32, n);
  }
}

extern "C" int64_t jetops_greedy_nms_cpu_workspace_bytes(int64_t n) {
  return n * static_cast<int64_t>(sizeof(uint64_t)) + Ranked::bytes(n);
}

extern "C" void jetops_greedy_nms_cpu(const float* boxes, const float* weighted, int64_t n,
                                      float iou_threshold, uint8_t* keep, void* workspace) {
  uint64_t* keys = static_cast<uint64_t*>(workspace);
  const Ranked ranked(keys, reinterpret_cast<float*>(keys + n), n);
  for (int64_t i = 0; i < n; ++i) keys[i] = key_of(weighted[i], i);
  std::sort(keys, keys + n);
  for (int64_t rank = 0; rank < n; ++rank) {
    ranked.set(rank, boxes + 4 * static_cast<int64_t>(jetops::key_index(keys[rank])));
  }
  suppress(jetops::make_threshold(iou_threshold), n, ranked, keep);
}

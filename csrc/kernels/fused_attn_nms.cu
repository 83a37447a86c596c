// Attention-weighted greedy NMS in one launch. nms_math.h defines the arithmetic and the order.
//
// The whole grid goes through three phases, and one block through a fourth:
//   1. weigh: a warp reduces a row of attn_map to that box's weighted score.
//   2. rank: a warp counts how many boxes come before its box, and puts it at that place.
//   3. compare: a warp takes 32 x 32 pairs of boxes, by rank, and writes which overlap too much.
//   4. scan: the last block to be done with 3 decides the boxes in the order of their ranks.
// Between the phases the blocks wait for each other, which a cooperative launch makes safe: all blocks
// are resident at a time. Where the device has no such launch (sm_53), the grid is one block.
#include "device.h"
#include "elements.cuh"
#include "jetops_kernels.h"
#include "nms_math.h"

namespace {

using jetops::Box;

typedef unsigned int Word;  // 32 boxes of a bit mask

constexpr int kLanes = jetops::kLanes;
constexpr unsigned kFullWarp = 0xFFFFFFFFu;
constexpr int kGroup = 4;                 // tiles of 32 ranks that are decided between two barriers
constexpr int kHelpers = kGroup * kGroup;  // warps that prepare a group; one more decides it
constexpr int kWarps = kHelpers + 1;
constexpr int kThreads = kWarps * kLanes;
constexpr int kAhead = 16;        // words that a helper loads before it can use them
constexpr int kSteps = 2;         // and how many groups before: memory takes longer than a group
constexpr int kKeySlice = 8192;   // keys in shared memory at a time
constexpr int kKeysALoad = 4;     // 16 bytes
constexpr int kBoxesAWarp = 4;    // that are ranked at a time, where a warp has several
constexpr int kMaxTiles = JETOPS_NMS_MAX_BOXES / kLanes;
constexpr size_t kAlignment = 256;
constexpr Word kNever = 0x80000000u;  // in `order`: this box is not to be kept

struct Problem {
  const float* boxes;
  const void* scores;
  const void* attn_map;
  int dtype;   // of scores and attn_map
  int n;
  int tiles;   // of 32 boxes
  int padded;  // boxes in whole groups of tiles
  jetops::Threshold threshold;
  bool vector_loads;
  uint8_t* keep;
  float* weighted;
  Word* order;        // [padded] indices by rank
  float4* corners;    // [padded] boxes by rank
  float* areas;       // [padded]
  Word* overlaps;     // [tiles][padded]: which of a tile's boxes overlap a box of it or a later one
  unsigned* arrived;  // zero before the launch
#if defined(JETOPS_NMS_PROFILE)
  unsigned long long* times;  // nanoseconds; see tools/nms_phases.cu
#endif
};

#if defined(JETOPS_NMS_PROFILE)
unsigned long long* jetops_nms_times = nullptr;  // device memory, set before a launch

__device__ __forceinline__ void note_time(const Problem& p, int place) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (threadIdx.x == 0) p.times[place] = now;
}
#else
__device__ __forceinline__ void note_time(const Problem&, int) {}
#endif

__device__ __forceinline__ int warp_number() { return blockIdx.x * kWarps + threadIdx.x / kLanes; }
__device__ __forceinline__ int warp_count() { return gridDim.x * kWarps; }

// ---------------------------------------------------------------- between phases

// The barrier orders the block's writes before the first thread's fence, and the fence before the
// arrival.
__device__ __forceinline__ unsigned arrive(const Problem& p) {
  __shared__ unsigned before;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    before = atomicAdd(p.arrived, 1u);
    __threadfence();
  }
  __syncthreads();
  return before;
}

// `phase` counts from 1. What other blocks wrote is to be read past L1 (__ldcg) after this.
__device__ __forceinline__ void wait_for_all(const Problem& p, unsigned phase) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const volatile unsigned* arrived = p.arrived;
    __threadfence();
    atomicAdd(p.arrived, 1u);
    while (*arrived < phase * gridDim.x) {
    }
    __threadfence();
  }
  __syncthreads();
}

// ---------------------------------------------------------------- phase 1: weigh

template <class Type>
__device__ __forceinline__ float4 load_four(const typename Type::type* from) {
  float out[4];
  const uint2 words = __ldg(reinterpret_cast<const uint2*>(from));
  Type::unpack(words.x, out);
  Type::unpack(words.y, out + 2);
  return make_float4(out[0], out[1], out[2], out[3]);
}

template <>
__device__ __forceinline__ float4 load_four<jetops::Float32>(const float* from) {
  return __ldg(reinterpret_cast<const float4*>(from));
}

__device__ __forceinline__ float add_product(float sum, float a, float b) {
  return jetops::add(sum, jetops::mul(a, b));
}

// Lane l holds the partial sums 4l to 4l+3 of nms_math.h.
template <class Type>
__device__ __forceinline__ float weight_of_row(const Problem& p, int row_number, int lane) {
  typedef typename Type::type T;
  const T* row = static_cast<const T*>(p.attn_map) + (int64_t)row_number * p.n;
  const T* scores = static_cast<const T*>(p.scores);
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  if (p.vector_loads) {  // n is a multiple of 4 then, so four columns are all inside or all outside
#pragma unroll 8
    for (int col = 4 * lane; col < p.n; col += jetops::kPartials) {
      const float4 a = load_four<Type>(row + col);
      const float4 s = load_four<Type>(scores + col);
      sum[0] = add_product(sum[0], a.x, s.x);
      sum[1] = add_product(sum[1], a.y, s.y);
      sum[2] = add_product(sum[2], a.z, s.z);
      sum[3] = add_product(sum[3], a.w, s.w);
    }
  } else {
    for (int col = 4 * lane; col < p.n; col += jetops::kPartials) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (col + k >= p.n) continue;
        sum[k] = add_product(sum[k], Type::load(row[col + k]), Type::load(scores[col + k]));
      }
    }
  }
  float total = jetops::add(jetops::add(sum[0], sum[2]), jetops::add(sum[1], sum[3]));
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) {
    total = jetops::add(total, __shfl_down_sync(kFullWarp, total, width));
  }
  return total;  // right in lane 0
}

template <class Type>
__device__ __forceinline__ void weigh_box_of(const Problem& p, int i, int lane) {
  const float weight = weight_of_row<Type>(p, i, lane);
  const float score = Type::load(static_cast<const typename Type::type*>(p.scores)[i]);
  if (lane == 0) p.weighted[i] = jetops::mul(score, weight);
}

__device__ __forceinline__ void weigh_box(const Problem& p, int i, int lane) {
  if (p.dtype == JETOPS_FLOAT32) {
    weigh_box_of<jetops::Float32>(p, i, lane);
  } else if (p.dtype == JETOPS_FLOAT16) {
    weigh_box_of<jetops::Float16>(p, i, lane);
  } else {
    weigh_box_of<jetops::BFloat16>(p, i, lane);
  }
}

__device__ void weigh_boxes(const Problem& p) {
  for (int i = warp_number(); i < p.n; i += warp_count()) weigh_box(p, i, threadIdx.x % kLanes);
}

// ---------------------------------------------------------------- phase 2: rank

__device__ __forceinline__ uint32_t key_of(float score) {
  return jetops::rank_bits(score, __float_as_uint(score));
}

// How many of four keys are below a limit.
__device__ __forceinline__ int count_below(const uint4& key, uint32_t limit) {
  return (key.x < limit) + (key.y < limit) + (key.z < limit) + (key.w < limit);
}

// Adds to `count` how many boxes of a slice come before each of kBoxes boxes: those with a smaller
// key, and with the same key those with a smaller index. `place` is the box's own place in the slice,
// and may lie outside. Every lane counts for itself.
template <int kBoxes>
__device__ __forceinline__ void count_before(const uint32_t* keys, int filled, const int* place,
                                             const uint32_t* key, int* count) {
  const int lane = threadIdx.x % kLanes;
  constexpr int kStep = kLanes * kKeysALoad;
#pragma unroll 4
  for (int start = 0; start < filled; start += kStep) {
    const uint4 four = *reinterpret_cast<const uint4*>(keys + start + lane * kKeysALoad);
#pragma unroll
    for (int b = 0; b < kBoxes; ++b) {  // no key is the largest number, so adding 1 is safe
      count[b] += count_below(four, start + kStep <= place[b] ? key[b] + 1 : key[b]);
    }
  }
  // The step that the box itself is in was counted as if all of it came after.
#pragma unroll
  for (int b = 0; b < kBoxes; ++b) {
    if (place[b] < 0 || place[b] >= filled) continue;
    for (int k = place[b] / kStep * kStep + lane; k < place[b]; k += kLanes) {
      count[b] += keys[k] == key[b];
    }
  }
}

__device__ __forceinline__ Box load_box(const Problem& p, int i) {
  const float* corners = p.boxes + 4 * (int64_t)i;
  return jetops::make_box(__ldg(corners), __ldg(corners + 1), __ldg(corners + 2),
                          __ldg(corners + 3));
}

__device__ __forceinline__ void place_box(const Problem& p, int i, const Box& box, int rank,
                                          bool never) {
  p.order[rank] = (Word)i | (never ? kNever : 0u);
  p.corners[rank] = make_float4(box.x1, box.y1, box.x2, box.y2);
  p.areas[rank] = box.area;
}

__device__ __forceinline__ void load_keys(const Problem& p, int start, int size, int filled,
                                          uint32_t* keys) {
#pragma unroll 4
  for (int k = threadIdx.x; k < filled; k += kThreads) {
    keys[k] = k < size ? key_of(__ldcg(p.weighted + start + k)) : 0xFFFFFFFFu;
  }
}

template <int kBoxes>
__device__ __forceinline__ void rank_boxes_by(const Problem& p, int first, uint32_t* keys) {
  constexpr int kStep = kLanes * kKeysALoad;
  int i[kBoxes], place[kBoxes], count[kBoxes];
  uint32_t key[kBoxes];
  Box box[kBoxes];
#pragma unroll
  for (int b = 0; b < kBoxes; ++b) {
    i[b] = first + b * warp_count() + warp_number();
    count[b] = 0;
    key[b] = 0;
    if (i[b] < p.n) {
      key[b] = key_of(__ldcg(p.weighted + i[b]));
      box[b] = load_box(p, i[b]);
    }
  }
  for (int start = 0; start < p.n; start += kKeySlice) {
    const int size = p.n - start < kKeySlice ? p.n - start : kKeySlice;
    const int filled = (size + kStep - 1) / kStep * kStep;
    __syncthreads();
    load_keys(p, start, size, filled, keys);
    __syncthreads();
#pragma unroll
    for (int b = 0; b < kBoxes; ++b) place[b] = i[b] - start;
    count_before<kBoxes>(keys, filled, place, key, count);
  }
#pragma unroll
  for (int b = 0; b < kBoxes; ++b) {
#pragma unroll
    for (int width = kLanes / 2; width > 0; width /= 2) {
      count[b] += __shfl_xor_sync(kFullWarp, count[b], width);
    }
    if (i[b] < p.n && threadIdx.x % kLanes == 0) {
      place_box(p, i[b], box[b], count[b], key[b] == jetops::kNanRank);
    }
  }
}

__device__ void rank_boxes(const Problem& p, uint32_t* keys) {
  if (p.n <= warp_count()) {
    rank_boxes_by<1>(p, 0, keys);
  } else {
    for (int first = 0; first < p.n; first += kBoxesAWarp * warp_count()) {
      rank_boxes_by<kBoxesAWarp>(p, first, keys);
    }
  }
  // Places behind the last box, so that whole groups can be read.
  const int64_t behind = p.n + (int64_t)blockIdx.x * kThreads + threadIdx.x;
  if (behind < p.padded) p.order[behind] = kNever;
}

// ---------------------------------------------------------------- phase 3: compare

__device__ __forceinline__ Box box_at(const Problem& p, int rank) {
  Box box = jetops::make_box(0.0f, 0.0f, 0.0f, 0.0f);
  if (rank < p.n) {
    const float4 corners = __ldcg(p.corners + rank);
    box.x1 = corners.x;
    box.y1 = corners.y;
    box.x2 = corners.z;
    box.y2 = corners.w;
    box.area = __ldcg(p.areas + rank);
  }
  return box;
}

struct Staged {
  float4 corners[kLanes];
  float area[kLanes];

  __device__ __forceinline__ Box box(int i) const {
    const float4 c = corners[i];
    const Box box = {c.x, c.y, c.z, c.w, area[i]};
    return box;
  }
};

// `staged` is this warp's own shared memory. Lane l ends up with the word of box l of `later`.
__device__ void compare_tile(const Problem& p, int earlier, int later, Staged& staged) {
  const int lane = threadIdx.x % kLanes;
  const Box mine = box_at(p, earlier * kLanes + lane);
  const Box theirs = box_at(p, later * kLanes + lane);
  __syncwarp();  // this warp may still be reading its previous tile
  staged.corners[lane] = make_float4(theirs.x1, theirs.y1, theirs.x2, theirs.y2);
  staged.area[lane] = theirs.area;
  __syncwarp();

  Word word = 0;
  const bool in_range = p.threshold.value >= jetops::kSmallestThreshold &&
                        (__all_sync(kFullWarp, mine.area >= jetops::kSmallestArea) ||
                         __all_sync(kFullWarp, theirs.area >= jetops::kSmallestArea));
  if (in_range) {
#pragma unroll 8
    for (int j = 0; j < kLanes; ++j) {
      const Word column = __ballot_sync(
          kFullWarp, jetops::iou_exceeds_in_range(mine, staged.box(j), p.threshold));
      if (lane == j) word = column;
    }
  } else {
#pragma unroll 1
    for (int j = 0; j < kLanes; ++j) {
      const Word column =
          __ballot_sync(kFullWarp, jetops::iou_exceeds(mine, staged.box(j), p.threshold));
      if (lane == j) word = column;
    }
  }
  if (earlier == later) word &= (1u << lane) - 1u;  // those that rank above the box
  p.overlaps[(int64_t)earlier * p.padded + later * kLanes + lane] = word;
}

// The pairs of tiles are numbered without a square root: row r and row tiles-1-r of the triangle
// together have tiles+1 pairs, so folding it gives a rectangle of that width.
__device__ void compare_boxes(const Problem& p, Staged* staged) {
  const int width = p.tiles + 1;
  const int pairs = (p.tiles + 1) / 2 * width;
  for (int number = warp_number(); number < pairs; number += warp_count()) {
    int earlier = number / width;
    int later = earlier + number % width;
    if (later >= p.tiles) {
      later -= earlier + 1;  // the mirrored row begins where this one ends
      const int mirrored = p.tiles - 1 - earlier;
      if (mirrored == earlier) continue;  // the middle row of an odd count is its own mirror image
      earlier = mirrored;
    }
    compare_tile(p, earlier, later, staged[threadIdx.x / kLanes]);
  }
}

// ---------------------------------------------------------------- phase 4: scan
//
// Ranks are decided in tiles of 32 by one warp, and the block meets once for every group of four
// tiles. What that one warp does is what everything waits for, so the others prepare all they can: they
// find which boxes of the next group are lost to boxes kept before this group, bring the words that
// the deciding warp needs into shared memory, and write the results. Only what is lost to this
// group and the one before it, the deciding warp finds itself.

struct Staged4 {  // for one tile, a lane for each box
  uint4 before[kLanes];  // overlaps with the tiles of the group before
  uint4 own[kLanes];     // and with those of this group, up to its own
};

struct Scan {
  Staged4 staged[2][kGroup];                // groups in turn
  Word lost[3][kGroup];                     // of a group's tiles; read, filled and cleared in turn
  Word kept[kGroup][kMaxTiles / kGroup];    // tile t in [t % kGroup][t / kGroup]
};

// Which boxes of a tile the sequential loop would keep. `open` are those not lost to earlier tiles,
// `above`, in each lane, those that rank above its box in the tile and overlap it. A box is decided as
// soon as all of them are, so most tiles take one or two turns.
__device__ __forceinline__ Word decide_tile(Word above, Word open) {
  Word kept = 0;
  while (true) {
    const Word now = __ballot_sync(kFullWarp, (above & open) == 0) & open;
    kept |= now;
    open &= ~now;
    if (open == 0) return kept;
    open &= ~__ballot_sync(kFullWarp, (above & now) != 0);
  }
}

__device__ __forceinline__ Word part(const uint4& words, int k) {
  return k == 0 ? words.x : k == 1 ? words.y : k == 2 ? words.z : words.w;
}

// `kept` is that of the group before, and becomes that of this one.
__device__ __forceinline__ void decide_group(int group, Scan& scan, Word kept[kGroup]) {
  const int lane = threadIdx.x % kLanes;
  const Staged4* staged = scan.staged[group % 2];
  const uint4 lost = *reinterpret_cast<const uint4*>(scan.lost[group % 3]);
  Word struck[kGroup], now[kGroup];
  uint4 own[kGroup];
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    const uint4 before = staged[q].before[lane];
    own[q] = staged[q].own[lane];
    struck[q] = (before.x & kept[0]) | (before.y & kept[1]) | (before.z & kept[2]) |
                (before.w & kept[3]);
  }
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
#pragma unroll
    for (int k = 0; k < q; ++k) struck[q] |= part(own[q], k) & now[k];
    const Word open = ~(__ballot_sync(kFullWarp, struck[q] != 0) | part(lost, q));
    now[q] = decide_tile(part(own[q], q), open);
  }
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    kept[q] = now[q];
    if (lane == q) scan.kept[q][group] = now[q];
  }
}

// A helper has one tile of every group, and one of four parts of the work on it: the words with one
// tile of the group itself and one of the group before, and with every fourth of the tiles before.
struct Helper {
  int tile, part;     // numbers within a group
  int64_t row;        // from a line of words to that of the fourth tile after it
  const Word* words;  // of this helper's tile of group 0, with tile number `part`

  __device__ __forceinline__ explicit Helper(const Problem& p) {
    const int number = threadIdx.x / kLanes - 1;
    tile = number % kGroup;
    part = number / kGroup;
    row = (int64_t)kGroup * p.padded;
    words = p.overlaps + (int64_t)part * p.padded + tile * kLanes + threadIdx.x % kLanes;
  }

  __device__ __forceinline__ const Word* column(int group) const {
    return words + (int64_t)group * (kGroup * kLanes);
  }
  __device__ __forceinline__ bool exists(const Problem& p, int group) const {
    return group * kGroup + tile < p.tiles;
  }
  __device__ __forceinline__ int rank(int group) const {
    return (group * kGroup + tile) * kLanes + threadIdx.x % kLanes;
  }
};

// What a helper has loaded for a group, some steps before it is used.
struct Loaded {
  Word order, own, before, ahead[kAhead];

  __device__ __forceinline__ void load(const Problem& p, const Helper& h, int group) {
    const bool exists = h.exists(p, group);
    const Word* column = h.column(group);
    order = kNever;
    own = before = 0;
    if (exists) order = __ldcg(p.order + h.rank(group));
    if (exists && h.part <= h.tile) own = __ldcg(column + group * h.row);
    if (exists && group > 0) before = __ldcg(column + (group - 1) * h.row);
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      ahead[k] = 0;
      if (exists && k < group - 1) ahead[k] = __ldcg(column + k * h.row);
    }
  }

  // Stages the words for the deciding warp, and finds which boxes of the group are lost to tiles
  // before the group before it.
  __device__ __forceinline__ void prepare(const Problem& p, const Helper& h, int group,
                                          Scan& scan) const {
    const int lane = threadIdx.x % kLanes;
    Staged4& staged = scan.staged[group % 2][h.tile];
    reinterpret_cast<Word*>(&staged.own[lane])[h.part] = own;
    reinterpret_cast<Word*>(&staged.before[lane])[h.part] = before;
    const volatile Word* kept = scan.kept[h.part];  // later words are being written
    Word struck = order & kNever;
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      if (k < group - 1) struck |= ahead[k] & kept[k];
    }
    if (h.exists(p, group)) {
      const Word* column = h.column(group);
#pragma unroll 16
      for (int k = kAhead; k < group - 1; ++k) struck |= __ldcg(column + k * h.row) & kept[k];
    }
    const Word lost = __ballot_sync(kFullWarp, struck != 0);
    if (lane == 0 && lost != 0) atomicOr(&scan.lost[group % 3][h.tile], lost);
  }
};

__device__ __forceinline__ void write_kept(const Problem& p, const Helper& h, int group, Word order,
                                           const Scan& scan) {
  const volatile Word* kept = scan.kept[h.tile];
  if (h.part == 1 && h.rank(group) < p.n) {
    p.keep[order & ~kNever] = (uint8_t)(kept[group] >> (threadIdx.x % kLanes) & 1u);
  }
}

// The number of this thread's warp, in a way that tells the compiler that its lanes agree on it.
__device__ __forceinline__ int uniform_warp() {
  return __shfl_sync(kFullWarp, (int)threadIdx.x / kLanes, 0);
}

__device__ void scan_boxes(const Problem& p) {
  __shared__ __align__(16) Scan scan;
  const int groups = (p.tiles + kGroup - 1) / kGroup;
  if (threadIdx.x < 3 * kGroup) (&scan.lost[0][0])[threadIdx.x] = 0;
  __syncthreads();
  if (uniform_warp() == 0) {
    Word kept[kGroup] = {0, 0, 0, 0};
    __syncthreads();
    for (int group = 0; group < groups; ++group) {
      decide_group(group, scan, kept);
      __syncthreads();
    }
  } else {
    const Helper helper(p);
    Loaded loaded[kSteps];
#pragma unroll
    for (int k = 0; k < kSteps; ++k) loaded[k].load(p, helper, k);
    Word order_before = kNever, order = loaded[0].order;
    loaded[0].prepare(p, helper, 0, scan);
    loaded[0].load(p, helper, kSteps);
    __syncthreads();
    for (int start = 0; start < groups; start += kSteps) {
#pragma unroll
      for (int k = 0; k < kSteps; ++k) {  // group g is in loaded[g % kSteps]
        const int group = start + k;
        if (group >= groups) break;
        Loaded& next = loaded[(k + 1) % kSteps];
        if (helper.part == 2 && threadIdx.x % kLanes == 0) {
          scan.lost[(group + 2) % 3][helper.tile] = 0;
        }
        next.prepare(p, helper, group + 1, scan);
        if (group > 0) write_kept(p, helper, group - 1, order_before, scan);
        order_before = order;
        order = next.order;
        next.load(p, helper, group + 1 + kSteps);
        __syncthreads();
      }
    }
    write_kept(p, helper, groups - 1, order_before, scan);
  }
}

__global__ void __launch_bounds__(kThreads) fused_attn_nms_kernel(const Problem p) {
  extern __shared__ __align__(16) unsigned char scratch[];
  if (blockIdx.x == 0) note_time(p, 0);
  weigh_boxes(p);
  if (blockIdx.x == 0) note_time(p, 1);
  wait_for_all(p, 1);
  if (blockIdx.x == 0) note_time(p, 2);
  rank_boxes(p, reinterpret_cast<uint32_t*>(scratch));
  wait_for_all(p, 2);
  if (blockIdx.x == 0) note_time(p, 3);
  compare_boxes(p, reinterpret_cast<Staged*>(scratch));
  if (arrive(p) != 3 * gridDim.x - 1) return;
  note_time(p, 4);
  scan_boxes(p);
  note_time(p, 5);
}

// ---------------------------------------------------------------- launch

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int tiles_of(int64_t n) { return (int)divide_up(n, kLanes); }

int padded_of(int64_t n) { return (int)divide_up(n, kGroup * kLanes) * kGroup * kLanes; }

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Where each part lies, in bytes from the start of the workspace.
struct Layout {
  size_t weighted, order, corners, areas, overlaps, total;

  explicit Layout(int64_t n) {
    const size_t padded = (size_t)padded_of(n);
    weighted = kAlignment;  // the counter comes first
    order = weighted + aligned((size_t)n * sizeof(float));
    corners = order + aligned(padded * sizeof(Word));
    areas = corners + aligned(padded * sizeof(float4));
    overlaps = areas + aligned(padded * sizeof(float));
    total = overlaps + aligned((size_t)tiles_of(n) * padded * sizeof(Word));
  }
};

bool allows_vector_loads(const void* scores, const void* attn_map, int64_t n, int dtype) {
  const uintptr_t bytes = dtype == JETOPS_FLOAT32 ? 16 : 8;
  return n % 4 == 0 && (uintptr_t)scores % bytes == 0 && (uintptr_t)attn_map % bytes == 0;
}

size_t shared_bytes(int64_t n) {
  const size_t keys = (size_t)(n < kKeySlice ? padded_of(n) : kKeySlice) * sizeof(uint32_t);
  const size_t staged = kWarps * sizeof(Staged);
  return keys > staged ? keys : staged;
}

cudaError_t launch(const Problem& p, cudaStream_t stream) {
  int device = 0, processors = 0, cooperates = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device);
  }
  if (error != cudaSuccess) return error;
  const size_t bytes = shared_bytes(p.n);
  error = cudaMemsetAsync(p.arrived, 0, sizeof(unsigned), stream);
  if (error != cudaSuccess) return error;
  if (!cooperates) {
    fused_attn_nms_kernel<<<1, kThreads, bytes, stream>>>(p);
    return cudaGetLastError();
  }
  const int64_t wanted = divide_up(p.n, kWarps);
  const unsigned blocks = (unsigned)(wanted < processors ? wanted : processors);
  Problem argument = p;
  void* arguments[] = {&argument};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&fused_attn_nms_kernel),
                                     dim3(blocks), dim3(kThreads), arguments, bytes, stream);
}

}  // namespace

extern "C" int64_t jetops_fused_attn_nms_workspace_bytes(int64_t n) {
  return n <= 0 ? 0 : (int64_t)Layout(n).total;
}

extern "C" cudaError_t jetops_fused_attn_nms_cuda(const float* boxes, const void* scores,
                                                  const void* attn_map, int64_t n, int dtype,
                                                  float iou_threshold, uint8_t* keep,
                                                  float* weighted, void* workspace,
                                                  cudaStream_t stream) {
  if (n < 0 || n > JETOPS_NMS_MAX_BOXES) return cudaErrorInvalidValue;
  if (dtype < JETOPS_FLOAT32 || dtype > JETOPS_BFLOAT16) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const Layout layout(n);
  unsigned char* base = static_cast<unsigned char*>(workspace);
  Problem p = {};
  p.boxes = boxes;
  p.scores = scores;
  p.attn_map = attn_map;
  p.dtype = dtype;
  p.n = (int)n;
  p.tiles = tiles_of(n);
  p.padded = padded_of(n);
  p.threshold = jetops::make_threshold(iou_threshold);
  p.vector_loads = allows_vector_loads(scores, attn_map, n, dtype);
  p.keep = keep;
  p.weighted = weighted != nullptr ? weighted : reinterpret_cast<float*>(base + layout.weighted);
  p.order = reinterpret_cast<Word*>(base + layout.order);
  p.corners = reinterpret_cast<float4*>(base + layout.corners);
  p.areas = reinterpret_cast<float*>(base + layout.areas);
  p.overlaps = reinterpret_cast<Word*>(base + layout.overlaps);
  p.arrived = reinterpret_cast<unsigned*>(base);
#if defined(JETOPS_NMS_PROFILE)
  p.times = jetops_nms_times;
#endif
  return launch(p, stream);
}

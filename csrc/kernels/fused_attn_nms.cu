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
constexpr int kKeySlice = 8192;   // keys in shared memory at a time
constexpr int kKeysALoad = 4;     // 16 bytes
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

// How many boxes of a slice come before box i: those with a smaller key, and with the same key those
// with a smaller index.
__device__ int count_before(const uint32_t* keys, int slice_start, int slice_size, int i,
                            uint32_t key) {
  const int lane = threadIdx.x % kLanes;
  const int place = i - slice_start;  // of i in this slice; it may lie outside
  constexpr int kStep = kLanes * kKeysALoad;
  int count = 0;
#pragma unroll 4
  for (int start = 0; start < slice_size; start += kStep) {
    const int first = start + lane * kKeysALoad;
    const uint4 four = *reinterpret_cast<const uint4*>(keys + first);
    if (start + kStep <= place || start > place) {
      count += count_below(four, start > place ? key : key + 1);  // no key is the largest number
    } else {
      count += (four.x < key + (first < place)) + (four.y < key + (first + 1 < place)) +
               (four.z < key + (first + 2 < place)) + (four.w < key + (first + 3 < place));
    }
  }
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) {
    count += __shfl_xor_sync(kFullWarp, count, width);
  }
  return count;
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

__device__ void rank_boxes(const Problem& p, uint32_t* keys) {
  constexpr int kStep = kLanes * kKeysALoad;
  // A warp has several boxes where there are more boxes than warps; most often one.
  for (int first = 0; first < p.n; first += warp_count()) {
    const int i = first + warp_number();
    int rank = 0;
    uint32_t key = 0;
    Box box = jetops::make_box(0.0f, 0.0f, 0.0f, 0.0f);
    if (i < p.n) {
      key = key_of(__ldcg(p.weighted + i));
      box = load_box(p, i);
    }
    for (int start = 0; start < p.n; start += kKeySlice) {
      const int size = p.n - start < kKeySlice ? p.n - start : kKeySlice;
      const int filled = (size + kStep - 1) / kStep * kStep;
      if (first == 0 || p.n > kKeySlice) {  // otherwise they are still there
        __syncthreads();
        load_keys(p, start, size, filled, keys);
        __syncthreads();
      }
      if (i < p.n) rank += count_before(keys, start, filled, i, key);
    }
    if (i < p.n && threadIdx.x % kLanes == 0) place_box(p, i, box, rank, key == jetops::kNanRank);
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
// tiles. While a group is decided, the other warps find out which boxes of the next group are lost to
// boxes kept before this group. Those lost to the group itself, the deciding warp finds by
// itself when it gets there: it holds the words of the group and the one before in registers.

struct Scan {
  Word kept[kMaxTiles];              // by rank
  Word lost[2][kGroup][kGroup];      // of a group's tiles, from four helpers each; groups in turn
};

__device__ __forceinline__ Word overlap_word(const Problem& p, int earlier, int later) {
  return __ldcg(p.overlaps + (int64_t)earlier * p.padded + later * kLanes +
                threadIdx.x % kLanes);
}

// What the deciding warp holds of a group, a lane for each box of a tile.
struct Group {
  Word before[kGroup][kGroup];  // overlaps with the tiles of the group before
  Word own[kGroup][kGroup];     // and with the tiles of this group up to its own
  Word order[kGroup];
};

__device__ __forceinline__ void load_group(const Problem& p, int group, Group& g) {
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    const int tile = group * kGroup + q;
    const bool exists = tile < p.tiles;
    g.order[q] = kNever;
    if (exists) g.order[q] = __ldcg(p.order + tile * kLanes + threadIdx.x % kLanes);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      g.before[q][k] = g.own[q][k] = 0;
      if (exists && group > 0) g.before[q][k] = overlap_word(p, (group - 1) * kGroup + k, tile);
      if (exists && k <= q) g.own[q][k] = overlap_word(p, group * kGroup + k, tile);
    }
  }
}

// Which boxes of a tile the sequential loop would keep. `above` are those of the tile that rank
// above a lane's box and overlap it. A box is decided as soon as all of them are, so most tiles take
// one or two turns.
__device__ __forceinline__ Word decide_tile(Word above, bool lost) {
  const int lane = threadIdx.x % kLanes;
  Word open = __ballot_sync(kFullWarp, !lost);
  Word kept = 0;
  while (true) {
    const bool is_open = (open >> lane) & 1u;
    const Word now = __ballot_sync(kFullWarp, is_open && (above & open) == 0);
    kept |= now;
    open &= ~now;
    if (open == 0) return kept;
    open &= ~__ballot_sync(kFullWarp, (above & now) != 0);
  }
}

// `kept` is that of the group before, and becomes that of this one.
__device__ __forceinline__ void decide_group(const Problem& p, int group, const Group& g,
                                             Scan& scan, Word kept[kGroup]) {
  const int lane = threadIdx.x % kLanes;
  Word lost[kGroup], now[kGroup];
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    const uint4 parts = *reinterpret_cast<const uint4*>(scan.lost[group % 2][q]);
    lost[q] = parts.x | parts.y | parts.z | parts.w;
  }
#pragma unroll
  for (int q = 0; q < kGroup; ++q) {
    Word struck = (lost[q] >> lane & 1u) | (g.order[q] & kNever);
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      struck |= g.before[q][k] & kept[k];
      if (k < q) struck |= g.own[q][k] & now[k];
    }
    now[q] = decide_tile(g.own[q][q], struck != 0);
    const Word index = g.order[q] & ~kNever;
    if (group * kGroup * kLanes + q * kLanes + lane < p.n) {
      p.keep[index] = (uint8_t)(now[q] >> lane & 1u);
    }
    if (lane == 0) scan.kept[group * kGroup + q] = now[q];
  }
#pragma unroll
  for (int q = 0; q < kGroup; ++q) kept[q] = now[q];
}

// A helper takes a tile of a group and every fourth of the tiles before the group before it.
__device__ __forceinline__ void load_ahead(const Problem& p, int group, Word word[kAhead]) {
  const int helper = threadIdx.x / kLanes - 1;
  const int tile = group * kGroup + helper % kGroup;
  const int last = tile < p.tiles ? (group - 1) * kGroup : 0;
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int earlier = helper / kGroup + k * kGroup;
    word[k] = 0;
    if (earlier < last) word[k] = overlap_word(p, earlier, tile);
  }
}

__device__ __forceinline__ void prepare_group(const Problem& p, int group, const Word word[kAhead],
                                              Scan& scan) {
  const int helper = threadIdx.x / kLanes - 1;
  const int tile = group * kGroup + helper % kGroup;
  const int last = tile < p.tiles ? (group - 1) * kGroup : 0;
  Word struck = 0;
#pragma unroll
  for (int k = 0; k < kAhead; ++k) {
    const int earlier = helper / kGroup + k * kGroup;
    if (earlier < last) struck |= word[k] & scan.kept[earlier];
  }
#pragma unroll 8
  for (int earlier = helper / kGroup + kAhead * kGroup; earlier < last; earlier += kGroup) {
    struck |= overlap_word(p, earlier, tile) & scan.kept[earlier];
  }
  const Word lost = __ballot_sync(kFullWarp, struck != 0);
  if (threadIdx.x % kLanes == 0) scan.lost[group % 2][helper % kGroup][helper / kGroup] = lost;
}

__device__ void scan_boxes(const Problem& p) {
  __shared__ __align__(16) Scan scan;
  const int groups = (p.tiles + kGroup - 1) / kGroup;
  for (int k = threadIdx.x; k < kMaxTiles; k += kThreads) scan.kept[k] = 0;
  if (threadIdx.x < 2 * kGroup * kGroup) (&scan.lost[0][0][0])[threadIdx.x] = 0;
  if (threadIdx.x < kLanes) {
    Group now, next;
    Word kept[kGroup] = {0, 0, 0, 0};
    load_group(p, 0, now);
    __syncthreads();
    for (int group = 0; group < groups; ++group) {
      load_group(p, group + 1, next);
      decide_group(p, group, now, scan, kept);
      now = next;
      __syncthreads();
    }
  } else {
    Word word[kAhead];
    load_ahead(p, 1, word);
    __syncthreads();
    for (int group = 0; group < groups; ++group) {
      prepare_group(p, group + 1, word, scan);
      load_ahead(p, group + 2, word);
      __syncthreads();
    }
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

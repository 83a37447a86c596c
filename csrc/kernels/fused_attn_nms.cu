// Attention-weighted greedy NMS in one launch. nms_math.h defines the arithmetic and the order.
//
// The grid meets once:
//   1. weigh and compare: a warp reduces rows of attn_map to weighted scores, and takes tiles of 32 x 32
//      pairs of boxes and writes which overlap too much. The one waits for memory and the other
//      computes, and neither needs the other, so a warp compares while its loads are on their way.
//   -- all blocks wait for each other --
//   2. strike: of a box's neighbours, those that rank below it are struck out. No box is sorted.
//   3. decide: a box goes as soon as a neighbour above it is kept, and is kept as soon as all of them
//      are gone. Each block decides the tiles it owns and publishes that; it looks at what the others
//      published until its own are decided. What is decided is never taken back, so the result is that
//      of the sequential loop in whatever order the blocks run.
// The waiting is safe because a cooperative launch has all blocks resident at a time. sm_53 has no such
// launch: there one block does all.
#include <cooperative_groups.h>

#include "device.h"
#include "elements.cuh"
#include "jetops_kernels.h"
#include "nms_math.h"

namespace {

using jetops::Box;

// CUDA's own barrier of a grid needs no memory that somebody has to set to zero before the launch,
// which takes 2.7 of 23 us on an H200. Before CUDA 11 it needs relocatable device code.
#define JETOPS_GRID_BARRIER (CUDART_VERSION >= 11000)

typedef unsigned int Word;  // 32 boxes of a bit mask: a tile

constexpr int kLanes = jetops::kLanes;
constexpr unsigned kFullWarp = 0xFFFFFFFFu;
constexpr int kWarps = 16;
constexpr int kThreads = kWarps * kLanes;
constexpr int kMaxTiles = JETOPS_NMS_MAX_BOXES / kLanes;
constexpr int kSlice = 8192;     // scores, or keys, in shared memory at a time
constexpr int kBoxesABlock = 8;  // fewer are not worth another block
// Loads of attn_map that a lane has on their way. On sm_53 and sm_62 a thread has 64 registers here.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 700
constexpr int kBatch = 4;
#else
constexpr int kBatch = 16;
#endif
constexpr int kAhead = 8;  // words of `overlaps` that a thread has on their way
constexpr int kBatchColumns = kBatch * jetops::kPartials;
constexpr int kScoreStep = 2048;  // scores are staged in whole steps, so that every batch finds its own
constexpr int kAtOnce = 4;  // tiles that a warp looks at between two branches
constexpr int kLookStep = kAtOnce * kWarps;
constexpr int kMaxSteps = kMaxTiles / kLookStep + 1;
constexpr size_t kAlignment = 256;
constexpr size_t kUsualSharedBytes = 48 * 1024;  // more is to be asked for

static_assert(kMaxSteps <= 31 && kMaxTiles <= kThreads, "a thread looks after the state of a tile");
static_assert(kSlice % kThreads == 0, "every score is staged by a thread");
static_assert(kSlice % kScoreStep == 0 && kScoreStep % kBatchColumns == 0,
              "the scores of a batch are in one place");

// Which boxes of a tile are decided, and how. Bits are set and never cleared.
struct __align__(8) State {
  Word kept, gone;
};

struct Problem {
  const float* boxes;
  const void* scores;
  const void* attn_map;
  int dtype;   // of scores and attn_map
  int n;
  int tiles;
  int places;  // for words of a box: one for each tile and one more, in whole steps of looking
  int blocks;  // that share the work: the grid
  int share;   // tiles that a block owns
  bool words_in_shared_memory;
  jetops::Threshold threshold;
  bool vector_loads;  // of scores and attn_map
  bool vector_boxes;
  uint8_t* keep;
  float* weighted;
  Word* overlaps;     // [places][32 * tiles]: which boxes of a tile a box overlaps too much
  State* state;       // [tiles]: what all blocks have decided
  unsigned* arrived;  // without JETOPS_GRID_BARRIER: zero before the launch
#if defined(JETOPS_NMS_PROFILE)
  unsigned long long* times;  // nanoseconds; see tools/nms_phases.cu
#endif
};

#if defined(JETOPS_NMS_PROFILE)
unsigned long long* jetops_nms_times = nullptr;  // device memory, set before a launch

__device__ __forceinline__ void note_time(const Problem& p, int place) {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  if (blockIdx.x == 0 && threadIdx.x == 0) p.times[place] = now;
}

__device__ __forceinline__ void note_turns(const Problem& p, int turns) {
  if (blockIdx.x == 0 && threadIdx.x == 0) p.times[5] = turns;
}
#else
__device__ __forceinline__ void note_time(const Problem&, int) {}
__device__ __forceinline__ void note_turns(const Problem&, int) {}
#endif

// All blocks wait for each other. What other blocks wrote is to be read past L1 (__ldcg) after this.
__device__ __forceinline__ void wait_for_all(const Problem& p) {
  if (p.blocks == 1) {  // which need not be a cooperative launch
    __syncthreads();
    return;
  }
#if !JETOPS_GRID_BARRIER
  __syncthreads();
  if (threadIdx.x == 0) {
    const volatile unsigned* arrived = p.arrived;
    __threadfence();
    atomicAdd(p.arrived, 1u);
    while (*arrived < (unsigned)p.blocks) {
    }
    __threadfence();
  }
  __syncthreads();
#elif !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 600
  cooperative_groups::this_grid().sync();
#endif
}

// ---------------------------------------------------------------- 1: compare

// Two tiles of boxes: `mine` is not behind `theirs`. Lane l has box l of each.
struct Pair {
  int mine, theirs;
  float4 box, other;
};

__device__ __forceinline__ float4 load_corners(const Problem& p, int i) {
  if (i >= p.n) return make_float4(0.0f, 0.0f, 0.0f, 0.0f);  // meets no box
  const float* corners = p.boxes + 4 * (int64_t)i;
  if (p.vector_boxes) return __ldg(reinterpret_cast<const float4*>(corners));
  return make_float4(__ldg(corners), __ldg(corners + 1), __ldg(corners + 2), __ldg(corners + 3));
}

// The pairs of tiles are numbered without a square root: row r and row tiles-1-r of the triangle
// together have tiles+1 pairs, so folding it gives a rectangle of that width.
__device__ __forceinline__ int count_of_pairs(const Problem& p) {
  return (p.tiles + 1) / 2 * (p.tiles + 1);
}

__device__ __forceinline__ Pair load_pair(const Problem& p, int number) {
  const int width = p.tiles + 1, lane = threadIdx.x % kLanes;
  Pair pair;
  pair.mine = number / width;
  pair.theirs = pair.mine + number % width;
  if (pair.theirs >= p.tiles) {
    pair.theirs -= pair.mine + 1;  // the mirrored row begins where this one ends
    pair.mine = p.tiles - 1 - pair.mine;  // the middle one of an odd count mirrors itself
  }
  pair.box = load_corners(p, pair.mine * kLanes + lane);
  pair.other = load_corners(p, pair.theirs * kLanes + lane);
  return pair;
}

__device__ __forceinline__ Box box_of(const float4& c) {
  return jetops::make_box(c.x, c.y, c.z, c.w);
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

// Bit j of lane l becomes bit l of lane j: blocks of half the size change places, five times.
__device__ __forceinline__ Word transposed(Word word) {
  const int lane = threadIdx.x % kLanes;
  Word low = 0x0000FFFFu;
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) {
    const Word other = __shfl_xor_sync(kFullWarp, word, width);
    word = (lane & width) ? (word & ~low) | ((other >> width) & low)
                          : (word & low) | ((other << width) & ~low);
    low ^= low << (width / 2);
  }
  return word;
}

__device__ __forceinline__ Word* words_of(const Problem& p, int tile, int box) {
  return p.overlaps + (unsigned)(tile * p.tiles * kLanes + box);
}

// `staged` is this warp's own shared memory. Two boxes are compared once, and both get to know.
__device__ __forceinline__ void compare(const Problem& p, const Pair& pair, Staged& staged) {
  const int lane = threadIdx.x % kLanes;
  const Box box = box_of(pair.box), other = box_of(pair.other);
  __syncwarp();  // this warp may still be reading its previous tile
  staged.corners[lane] = make_float4(other.x1, other.y1, other.x2, other.y2);
  staged.area[lane] = other.area;
  __syncwarp();

  Word word = 0;
  const bool in_range = p.threshold.value >= jetops::kSmallestThreshold &&
                        (__all_sync(kFullWarp, box.area >= jetops::kSmallestArea) ||
                         __all_sync(kFullWarp, other.area >= jetops::kSmallestArea));
  if (in_range) {
#pragma unroll
    for (int j = 0; j < kLanes; ++j) {
      if (jetops::iou_exceeds_in_range(box, staged.box(j), p.threshold)) word |= 1u << j;
    }
  } else {
#pragma unroll 1
    for (int j = 0; j < kLanes; ++j) {
      if (jetops::iou_exceeds(box, staged.box(j), p.threshold)) word |= 1u << j;
    }
  }
  if (pair.mine == pair.theirs) word &= ~(1u << lane);
  *words_of(p, pair.theirs, pair.mine * kLanes + lane) = word;
  if (pair.mine == pair.theirs) return;
  *words_of(p, pair.mine, pair.theirs * kLanes + lane) = transposed(word);
}

// ---------------------------------------------------------------- 1: weigh

// Four neighbours, as they are in memory: fp32 in all words, 16-bit numbers in x and y.
__device__ __forceinline__ uint4 load_vector(const uint32_t* from) {
  return __ldcs(reinterpret_cast<const uint4*>(from));  // read once: the boxes are to stay in the cache
}

__device__ __forceinline__ uint4 load_vector(const uint16_t* from) {
  const uint2 two = __ldcs(reinterpret_cast<const uint2*>(from));
  return make_uint4(two.x, two.y, 0, 0);
}

__device__ __forceinline__ uint4 joined(const uint32_t* from, const uint32_t words[4]) {
  return make_uint4(words[0], words[1], words[2], words[3]);
}

__device__ __forceinline__ uint4 joined(const uint16_t* from, const uint32_t words[4]) {
  return make_uint4(words[0] | words[1] << 16, words[2] | words[3] << 16, 0, 0);
}

// `left` columns are left in the row, or none. Those behind its end are 0, and add nothing.
template <class T>
__device__ __forceinline__ uint4 load_singly(const T* from, int left) {
  uint32_t words[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) words[k] = k < left ? (uint32_t)__ldg(from + k) : 0u;
  return joined(from, words);
}

template <class T, bool kVector>
__device__ __forceinline__ uint4 load_four(const T* from, int left) {
  if (!kVector) return load_singly(from, left);
  return left > 0 ? load_vector(from) : make_uint4(0, 0, 0, 0);  // n is a multiple of 4 then
}

// Lane l takes columns 4l to 4l+3 of each 128: the partial sums 4l to 4l+3 of nms_math.h.
template <class T, bool kVector>
__device__ __forceinline__ void load_batch_of(const Problem& p, int64_t row, int start,
                                              uint4 batch[kBatch]) {
  const T* from = static_cast<const T*>(p.attn_map) + row * p.n;
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int column = start + k * jetops::kPartials;
    batch[k] = load_four<T, kVector>(from + column, p.n - column);
  }
}

__device__ __forceinline__ void load_batch(const Problem& p, int64_t row, int start,
                                           uint4 batch[kBatch]) {
  if (p.dtype == JETOPS_FLOAT32) {
    p.vector_loads ? load_batch_of<uint32_t, true>(p, row, start, batch)
                   : load_batch_of<uint32_t, false>(p, row, start, batch);
  } else {
    p.vector_loads ? load_batch_of<uint16_t, true>(p, row, start, batch)
                   : load_batch_of<uint16_t, false>(p, row, start, batch);
  }
}

__device__ __forceinline__ float add_product(float sum, float a, float b) {
  return jetops::add(sum, jetops::mul(a, b));
}

template <class Type>
__device__ __forceinline__ void unpack_four(const uint4& raw, float out[4]) {
  Type::unpack(raw.x, out);
  Type::unpack(raw.y, out + Type::kPerWord);
  if (Type::kPerWord == 1) {
    Type::unpack(raw.z, out + 2);
    Type::unpack(raw.w, out + 3);
  }
}

// The scores of four columns; 0 behind the last.
template <class Type>
__device__ __forceinline__ float4 load_scores(const Problem& p, int column) {
  typedef typename Type::Bits T;
  const T* from = static_cast<const T*>(p.scores) + column;
  const int left = p.n - column;
  float s[4];
  const uint4 raw = p.vector_loads ? load_four<T, true>(from, left) : load_four<T, false>(from, left);
  unpack_four<Type>(raw, s);
  return make_float4(s[0], s[1], s[2], s[3]);
}

template <class Type>
__device__ __forceinline__ void add_batch_of(const Problem& p, const float* scores, int start,
                                             const uint4 batch[kBatch], float sum[4]) {
#pragma unroll
  for (int k = 0; k < kBatch; ++k) {
    const int column = start + k * jetops::kPartials;
    if (k % 4 == 0 && column - 4 * (int)(threadIdx.x % kLanes) >= p.n) break;
    float a[4];
    unpack_four<Type>(batch[k], a);
    const float4 s = start < kSlice ? *reinterpret_cast<const float4*>(scores + column)
                                    : load_scores<Type>(p, column);
    sum[0] = add_product(sum[0], a[0], s.x);
    sum[1] = add_product(sum[1], a[1], s.y);
    sum[2] = add_product(sum[2], a[2], s.z);
    sum[3] = add_product(sum[3], a[3], s.w);
  }
}

__device__ __forceinline__ void add_batch(const Problem& p, const float* scores, int start,
                                          const uint4 batch[kBatch], float sum[4]) {
  if (p.dtype == JETOPS_FLOAT32) {
    add_batch_of<jetops::Float32>(p, scores, start, batch, sum);
  } else if (p.dtype == JETOPS_FLOAT16) {
    add_batch_of<jetops::Float16>(p, scores, start, batch, sum);
  } else {
    add_batch_of<jetops::BFloat16>(p, scores, start, batch, sum);
  }
}

__device__ __forceinline__ float score_of(const Problem& p, int i) {
  if (p.dtype == JETOPS_FLOAT32) return __ldg(static_cast<const float*>(p.scores) + i);
  const unsigned short bits = __ldg(static_cast<const unsigned short*>(p.scores) + i);
  return p.dtype == JETOPS_FLOAT16 ? jetops::Float16::load(__ushort_as_half(bits))
                                   : jetops::BFloat16::load(bits);
}

// How many scores are in shared memory; those behind the last are 0.
__host__ __device__ __forceinline__ int staged_scores(int n) {
  const int whole = (n + kScoreStep - 1) / kScoreStep * kScoreStep;
  return whole < kSlice ? whole : kSlice;
}

struct StagedScores {
  float mine[kSlice / kThreads];

  __device__ __forceinline__ void load(const Problem& p) {
#pragma unroll
    for (int k = 0; k < kSlice / kThreads; ++k) {
      const int i = k * kThreads + threadIdx.x;
      mine[k] = 0.0f;
      if (i < p.n) mine[k] = score_of(p, i);
    }
  }
  __device__ __forceinline__ void store(const Problem& p, float* scores) const {
    const int count = staged_scores(p.n);
#pragma unroll
    for (int k = 0; k < kSlice / kThreads; ++k) {
      const int i = k * kThreads + threadIdx.x;
      if (i < count) scores[i] = mine[k];
    }
  }
};

__device__ __forceinline__ void write_weighted(const Problem& p, int i, const float sum[4]) {
  float weight = jetops::add(jetops::add(sum[0], sum[2]), jetops::add(sum[1], sum[3]));
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) {
    weight = jetops::add(weight, __shfl_down_sync(kFullWarp, weight, width));
  }
  if (threadIdx.x % kLanes == 0) p.weighted[i] = jetops::mul(score_of(p, i), weight);
}

// A batch of a row of attn_map is more work for the memory than a tile is for the processor, and
// there are about as many. A load that hits the cache waits for those before it that missed; so
// what a comparison needs is loaded before the batch, and the scores are in shared memory.
struct Work {
  int row, start, pair;  // of attn_map: row and first column
  Pair boxes;
  uint4 batch[kBatch];

  __device__ __forceinline__ void load(const Problem& p) {
    boxes = load_pair(p, min(pair, count_of_pairs(p) - 1));
    if (row < p.n) load_batch(p, row, start + 4 * (threadIdx.x % kLanes), batch);
  }
};

__device__ void weigh_and_compare(const Problem& p, float* scores, Staged& staged) {
  const int warp = threadIdx.x / kLanes, column = 4 * (threadIdx.x % kLanes);
  const int first = warp * p.blocks + blockIdx.x, step = kWarps * p.blocks;
  const int pairs = count_of_pairs(p);
  StagedScores mine;
  mine.load(p);
  Work work;
  work.row = first;
  work.start = 0;
  work.pair = step - 1 - first;  // warps without a row begin with a pair
  work.load(p);
  mine.store(p, scores);
  __syncthreads();
  float sum[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  while (work.row < p.n || work.pair < pairs) {
    if (work.pair < pairs) compare(p, work.boxes, staged);
    if (work.row < p.n) {
      add_batch(p, scores, work.start + column, work.batch, sum);
      work.start += kBatchColumns;
      if (work.start >= p.n) {
        write_weighted(p, work.row, sum);
        sum[0] = sum[1] = sum[2] = sum[3] = 0.0f;
        work.start = 0;
        work.row += step;
      }
    }
    work.pair += step;
    work.load(p);
  }
}

// ---------------------------------------------------------------- 2: strike

__device__ __forceinline__ uint32_t key_of(float score) {
  return jetops::rank_bits(score, __float_as_uint(score));
}

// Those boxes of a tile's word that come before box i: they have a smaller key, or the same and a
// smaller index. No key is the largest number, so adding 1 is safe. `keys` and `first` are of the tile.
__device__ __forceinline__ Word those_above(Word word, const uint32_t* keys, int first, int i,
                                            uint32_t key) {
  Word above = 0;
  while (word != 0) {
    const int bit = __ffs((int)word) - 1;
    word &= word - 1;
    if (keys[bit] < key + (first + bit < i ? 1u : 0u)) above |= 1u << bit;
  }
  return above;
}

// The tiles that a block decides.
struct Owned {
  int first, count;

  __device__ __forceinline__ explicit Owned(const Problem& p) {
    first = min((int)blockIdx.x * p.share, p.tiles);
    count = min(p.share, p.tiles - first);
  }
  __device__ __forceinline__ int box(int tile) const {  // this lane's
    return (first + tile) * kLanes + threadIdx.x % kLanes;
  }
};

// For each box of the block's tiles and each tile, which of the tile's boxes are above it and overlap
// it too much. Every kWarps-th place belongs to a warp, and to a lane the words of its box: no other
// thread reads or writes them, but for the last place, where the word of the box's own tile is.
struct Words {
  Word* words;
  int pitch;  // from a place to the next

  __device__ __forceinline__ Word* of(int place, int own) const {
    return words + (unsigned)(place * pitch + own * kLanes + threadIdx.x % kLanes);
  }
};

// What a warp's tiles say of one of the block's: which boxes overlap a kept box, and which have a
// neighbour above them that is not known to be gone.
struct Finding {
  Word struck, waiting;
};

struct Shared {
  State known[kMaxTiles + kLookStep];  // of all places, as far as this block has seen
  Word open[kMaxTiles];                // of the block's tiles: the boxes that are not decided
  Word kept[kMaxTiles];                // and those that are kept
  Finding findings[kWarps][kWarps];    // for a tile, of all warps
  unsigned live[kWarps][kWarps];       // and the steps in which a warp has something to look for
};

__device__ void load_keys(const Problem& p, int start, uint32_t* keys) {
  const int size = min(p.n - start, kSlice);
#pragma unroll 4
  for (int k = threadIdx.x; k < size; k += kThreads) {
    keys[k] = key_of(__ldcg(p.weighted + start + k));
  }
}

// What a thread has to read of `overlaps` for one of the block's tiles, kAhead words at a time.
struct Step {
  int own, tile;  // the block's tile, and the first of the tiles whose words are read
  Word words[kAhead];

  __device__ __forceinline__ void load(const Problem& p, const Owned& owned) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int at = tile + k * kWarps;
      words[k] = own < owned.count && at < p.tiles ? __ldcg(words_of(p, at, owned.box(own))) : 0u;
    }
  }
  __device__ __forceinline__ void advance(int first, int end) {
    tile += kAhead * kWarps;
    if (tile < end) return;
    tile = first;
    ++own;
  }
};

// Nothing is decided at first. A box whose score is NaN is not kept, and is below all others.
__device__ __forceinline__ void find_eligible(const Problem& p, const Owned& owned, int start,
                                              const uint32_t* keys, Shared& shared) {
  for (int own = threadIdx.x / kLanes; own < owned.count; own += kWarps) {
    const int i = owned.box(own);
    if (i / kSlice != start / kSlice) continue;  // the same for all boxes of a tile
    const bool number = i < p.n && keys[i - start] != jetops::kNanRank;
    if (i < p.n && !number) p.keep[i] = 0;
    const Word eligible = __ballot_sync(kFullWarp, number);
    if (threadIdx.x % kLanes != 0) continue;
    shared.open[own] = eligible;
    shared.kept[own] = 0;
  }
}

// Slices are of keys, and so of tiles. The last slice goes on to the last place.
__device__ __forceinline__ void strike_slice(const Problem& p, const Owned& owned, int start,
                                             uint32_t* keys, const Words& words, Shared& shared) {
  const int first = start / kLanes + threadIdx.x / kLanes;
  const int end = start + kSlice < p.n ? (start + kSlice) / kLanes : p.places;
  Step next = {0, first};
  next.load(p, owned);
  load_keys(p, start, keys);
  __syncthreads();
  find_eligible(p, owned, start, keys, shared);
  while (next.own < owned.count) {
    const Step step = next;
    next.advance(first, end);
    next.load(p, owned);
    const int i = owned.box(step.own);
    uint32_t key = 0;  // ranks above all, and has nothing above it
    if (i < p.n && i / kSlice == start / kSlice) key = keys[i - start];
    if (i < p.n && i / kSlice != start / kSlice) key = key_of(__ldcg(p.weighted + i));
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int tile = step.tile + k * kWarps;
      if (tile >= end) break;
      const int box = tile * kLanes;
      Word above = those_above(step.words[k], keys + (box - start), box, i, key);
      if (tile == owned.first + step.own) {
        *words.of(p.places - 1, step.own) = above;
        above = 0;
      }
      if (tile < p.places - 1) *words.of(tile, step.own) = above;
    }
  }
}

__device__ __forceinline__ void strike(const Problem& p, const Owned& owned, uint32_t* keys,
                                       const Words& words, Shared& shared) {
  for (int start = 0; start < p.n; start += kSlice) {
    if (start > 0) __syncthreads();
    strike_slice(p, owned, start, keys, words, shared);
  }
}

// ---------------------------------------------------------------- 3: decide

__device__ __forceinline__ State published(const Problem& p, int tile) {
  State now;
#if __CUDA_ARCH__ >= 700
  asm volatile("ld.relaxed.gpu.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(now.kept), "=r"(now.gone)
               : "l"(p.state + tile));
#else
  asm volatile("ld.volatile.global.v2.u32 {%0, %1}, [%2];"
               : "=r"(now.kept), "=r"(now.gone)
               : "l"(p.state + tile));
#endif
  return now;
}

__device__ __forceinline__ void publish(const Problem& p, int tile, const State& state) {
#if __CUDA_ARCH__ >= 700
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(p.state + tile),
               "r"(state.kept), "r"(state.gone)
               : "memory");
#else
  asm volatile("st.volatile.global.v2.u32 [%0], {%1, %2};" ::"l"(p.state + tile),
               "r"(state.kept), "r"(state.gone)
               : "memory");
#endif
}

__device__ __forceinline__ Word any_of(Word word) {
#if __CUDA_ARCH__ >= 800
  return __reduce_or_sync(kFullWarp, word);
#else
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) word |= __shfl_xor_sync(kFullWarp, word, width);
  return word;
#endif
}

// `live` has a bit for each step, which goes when no box is waiting for a tile of it any more.
__device__ __forceinline__ Finding look(const Words& words, int own, Word open,
                                        const Shared& shared, unsigned* live) {
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / kLanes;
  const Word mine = (open >> lane & 1u) ? ~0u : 0u;
  Word kept = 0, waiting = 0;
  for (unsigned steps = *live; steps != 0; steps &= steps - 1) {
    const int step = __ffs((int)steps) - 1;
    const int place = step * kLookStep + warp;
    const Word* above = words.of(place, own);
    const State* known = shared.known + place;
    Word waiting_here = 0;
#pragma unroll
    for (int k = 0; k < kAtOnce; ++k) {
      const Word word = above[k * kWarps * words.pitch];
      const State state = known[k * kWarps];
      kept |= word & state.kept;
      waiting_here |= word & ~state.gone;
    }
    waiting |= waiting_here;
    if (!__any_sync(kFullWarp, (waiting_here & mine) != 0)) *live &= ~(1u << step);
  }
  const Finding finding = {__ballot_sync(kFullWarp, kept != 0), __ballot_sync(kFullWarp, waiting != 0)};
  return finding;
}

// What follows for a tile from what all warps have found. Within the tile nothing has to be waited for.
// `mine`, in each lane, are the boxes of the tile above its own.
__device__ __forceinline__ State conclude(Word open, const Finding& finding, Word mine) {
  State fresh = {0, open & finding.struck};
  open &= ~fresh.gone;
  while (true) {
    const Word now = open & ~finding.waiting & __ballot_sync(kFullWarp, (mine & open) == 0);
    if (now == 0) return fresh;
    const Word lost = open & __ballot_sync(kFullWarp, (mine & now) != 0);
    fresh.kept |= now;
    fresh.gone |= lost;
    open &= ~(now | lost);
  }
}

// A warp's own tile of up to kWarps that the block looks at together.
struct Tile {
  Word open, kept, mine;

  __device__ __forceinline__ void load(const Problem& p, const Owned& owned, const Words& words,
                                       int own, const Shared& shared) {
    if (own >= owned.count) return;
    open = shared.open[own];
    kept = shared.kept[own];
    mine = *words.of(p.places - 1, own);
  }
};

// Returns whether the tile has boxes that are not decided.
__device__ __forceinline__ bool decide_tile(const Problem& p, const Owned& owned, Tile& tile,
                                            int own, Shared& shared) {
  const int lane = threadIdx.x % kLanes;
  if (tile.open == 0) return false;
  Finding finding = {0, 0};
  if (lane < kWarps) finding = shared.findings[own % kWarps][lane];
  finding.struck = any_of(finding.struck);
  finding.waiting = any_of(finding.waiting);
  const State fresh = conclude(tile.open, finding, tile.mine);
  if ((fresh.kept | fresh.gone) == 0) return true;
  tile.kept |= fresh.kept;
  tile.open &= ~(fresh.kept | fresh.gone);
  if (lane == 0) {
    const State state = {tile.kept, ~(tile.kept | tile.open)};
    publish(p, owned.first + own, state);
    shared.open[own] = tile.open;
    shared.kept[own] = tile.kept;
  }
  if (tile.open != 0) return true;
  const int i = owned.box(own);
  if (i < p.n) p.keep[i] = tile.kept >> lane & 1u;
  return false;
}

__device__ __forceinline__ unsigned all_steps(const Problem& p) {
  return (1u << p.places / kLookStep) - 1u;
}

// Nothing is known at first.
__device__ __forceinline__ void know_nothing(const Problem& p, Shared& shared) {
  for (int place = threadIdx.x; place < p.places; place += kThreads) {
    const State nothing = {0, place < p.tiles ? 0 : ~0u};  // nobody waits for what is no tile
    shared.known[place] = nothing;
  }
  if (threadIdx.x < kWarps * kWarps) (&shared.live[0][0])[threadIdx.x] = all_steps(p);
}

// Decides what it can of the block's tiles from `first` on, at most kWarps. Returns whether this warp's
// tile has boxes that are not decided.
__device__ __forceinline__ bool decide_some(const Problem& p, const Owned& owned,
                                            const Words& words, int first, Shared& shared) {
  const int warp = threadIdx.x / kLanes, lane = threadIdx.x % kLanes;
  const int count = min(owned.count - first, kWarps);
  Tile tile;
  tile.load(p, owned, words, first + warp, shared);
  for (int k = 0; k < count; ++k) {
    const Word open = shared.open[first + k];
    if (open == 0) continue;
    unsigned live = owned.count <= kWarps ? shared.live[k][warp] : all_steps(p);
    const Finding finding = look(words, first + k, open, shared, &live);
    __syncwarp();  // all lanes have read `live`
    if (lane != 0) continue;
    shared.findings[k][warp] = finding;
    shared.live[k][warp] = live;
  }
  __syncthreads();
  return warp < count && decide_tile(p, owned, tile, first + warp, shared);
}

__device__ __forceinline__ void decide(const Problem& p, const Owned& owned, const Words& words,
                                       Shared& shared) {
  const int tile = threadIdx.x;  // whose state this thread looks after
  bool open = true;
  know_nothing(p, shared);
  for (int turn = 0; __syncthreads_or(open); ++turn) {
    note_turns(p, turn);
    open = false;
    for (int first = 0; first < owned.count; first += kWarps) {
      if (first > 0) __syncthreads();
      open |= decide_some(p, owned, words, first, shared);
    }
    if (tile >= p.tiles) continue;
    const State state = published(p, tile);
    shared.known[tile].kept |= state.kept;
    shared.known[tile].gone |= state.gone;
  }
}

// Where each part of the shared memory lies. Phase 1 has the scores and the boxes that the warps
// compare there; after it the keys take the place of the scores, and the state that of the boxes.
struct SharedLayout {
  size_t staged, words;

  __host__ __device__ __forceinline__ explicit SharedLayout(int n) {
    staged = staged_scores(n) * sizeof(float);
    const size_t boxes = kWarps * sizeof(Staged);
    words = staged + (boxes > sizeof(Shared) ? boxes : sizeof(Shared));
  }
};

__device__ __forceinline__ void strike_and_decide(const Problem& p, const Owned& owned,
                                                  const Words& words, uint32_t* keys,
                                                  Shared& shared) {
  strike(p, owned, keys, words, shared);
  note_time(p, 3);
  decide(p, owned, words, shared);
  note_time(p, 4);
}

__global__ void __launch_bounds__(kThreads) fused_attn_nms_kernel(const Problem given) {
#if __CUDA_ARCH__ < 600
  // This code has no barrier of a grid. It may be given a grid all the same, since drivers make code
  // for newer GPUs of its PTX; the first block does all the work then.
  if (blockIdx.x > 0) return;
  Problem p = given;
  p.words_in_shared_memory = given.words_in_shared_memory && given.blocks == 1;  // room for a share
  p.share = p.tiles;
  p.blocks = 1;
#else
  const Problem& p = given;
#endif
  extern __shared__ __align__(16) unsigned char memory[];
  const SharedLayout layout(p.n);
  note_time(p, 0);
  const State nothing = {0, 0};
  if (blockIdx.x == 0 && threadIdx.x < p.tiles) p.state[threadIdx.x] = nothing;
  float* scores = reinterpret_cast<float*>(memory);
  Staged* staged = reinterpret_cast<Staged*>(memory + layout.staged);
  weigh_and_compare(p, scores, staged[threadIdx.x / kLanes]);
  note_time(p, 1);
  wait_for_all(p);
  note_time(p, 2);
  const Owned owned(p);
  if (owned.count == 0) return;
  Shared& shared = *reinterpret_cast<Shared*>(memory + layout.staged);
  uint32_t* keys = reinterpret_cast<uint32_t*>(memory);
  // Twice, so that the compiler sees which memory it is: loads from shared memory are only fast,
  // and do not wait for those from elsewhere, where it knows.
  if (p.words_in_shared_memory) {
    const Words words = {reinterpret_cast<Word*>(memory + layout.words), p.share * kLanes};
    strike_and_decide(p, owned, words, keys, shared);
  } else {
    const Words words = {p.overlaps + owned.first * kLanes, p.tiles * kLanes};
    strike_and_decide(p, owned, words, keys, shared);
  }
}

// ---------------------------------------------------------------- launch

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int tiles_of(int64_t n) { return (int)divide_up(n, kLanes); }

int places_of(int64_t n) { return (int)divide_up(tiles_of(n) + 1, kLookStep) * kLookStep; }

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Where each part lies, in bytes from the start of the workspace.
struct Layout {
  size_t state, weighted, overlaps, total;

  explicit Layout(int64_t n) {
    state = kAlignment;  // the counter comes first
    weighted = state + aligned((size_t)tiles_of(n) * sizeof(State));
    overlaps = weighted + aligned((size_t)n * sizeof(float));
    total = overlaps + aligned((size_t)places_of(n) * tiles_of(n) * kLanes * sizeof(Word));
  }
};

bool allows_vector_loads(const void* scores, const void* attn_map, int64_t n, int dtype) {
  const uintptr_t bytes = dtype == JETOPS_FLOAT32 ? 16 : 8;
  return n % 4 == 0 && (uintptr_t)scores % bytes == 0 && (uintptr_t)attn_map % bytes == 0;
}

// The words go to shared memory if the device has enough. `bytes` is how much the kernel needs.
cudaError_t place_words(Problem* p, int device, size_t* bytes) {
  *bytes = SharedLayout(p->n).words;
  const size_t with_words = *bytes + (size_t)p->share * p->places * kLanes * sizeof(Word);
  int most = 0;
  cudaError_t error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  p->words_in_shared_memory = with_words <= (size_t)most;
  if (!p->words_in_shared_memory) return cudaSuccess;
  *bytes = with_words;
  if (with_words <= kUsualSharedBytes) return cudaSuccess;
  return cudaFuncSetAttribute(fused_attn_nms_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                              (int)with_words);
}

cudaError_t launch(Problem p, cudaStream_t stream) {
  int device = 0, processors = 0, cooperates = 0;
  size_t bytes = 0;
  cudaError_t error = jetops::processor_count(&processors);
  if (error == cudaSuccess) error = cudaGetDevice(&device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&cooperates, cudaDevAttrCooperativeLaunch, device);
  }
  if (error != cudaSuccess) return error;
  const int64_t wanted = divide_up(p.n, kBoxesABlock);
  p.blocks = !cooperates ? 1 : (int)(wanted < processors ? wanted : processors);
  p.share = (int)divide_up(p.tiles, p.blocks);
  error = place_words(&p, device, &bytes);
#if !JETOPS_GRID_BARRIER
  if (error == cudaSuccess) error = cudaMemsetAsync(p.arrived, 0, sizeof(unsigned), stream);
#endif
  if (error != cudaSuccess) return error;
  if (!cooperates) {
    fused_attn_nms_kernel<<<1, kThreads, bytes, stream>>>(p);
    return cudaGetLastError();
  }
  void* arguments[] = {&p};
  return cudaLaunchCooperativeKernel(reinterpret_cast<const void*>(&fused_attn_nms_kernel),
                                     dim3(p.blocks), dim3(kThreads), arguments, bytes, stream);
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
  p.places = places_of(n);
  p.threshold = jetops::make_threshold(iou_threshold);
  p.vector_loads = allows_vector_loads(scores, attn_map, n, dtype);
  p.vector_boxes = (uintptr_t)boxes % sizeof(float4) == 0;
  p.keep = keep;
  p.weighted = weighted != nullptr ? weighted : reinterpret_cast<float*>(base + layout.weighted);
  p.overlaps = reinterpret_cast<Word*>(base + layout.overlaps);
  p.state = reinterpret_cast<State*>(base + layout.state);
  p.arrived = reinterpret_cast<unsigned*>(base);
#if defined(JETOPS_NMS_PROFILE)
  p.times = jetops_nms_times;
#endif
  return launch(p, stream);
}

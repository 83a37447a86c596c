// Attention-weighted greedy NMS in one launch. nms_math.h defines the arithmetic and the order.
//
// Phase A, every block: a warp takes either a row of attn_map and reduces it to that box's weighted
// score, or a 32x32 tile of box pairs and writes which of them overlap too much. The overlap mask
// is undirected and in index order, because who ranks higher is not known yet; so the two kinds of
// work are independent, and reading attn_map overlaps with the arithmetic of the pairs.
//
// Hand-off: a block that is done draws a ticket; the one with the last ticket goes on alone. No
// block waits for another, so the grid may be larger than what is resident at a time.
//
// Phase B, the last block: sort the boxes by weighted score, then walk the ranks in tiles of 32.
// One warp decides a tile exactly as the sequential loop would. A box is struck out by kept boxes only.
#include "device.h"
#include "elements.cuh"
#include "jetops_kernels.h"
#include "nms_math.h"

namespace {

using jetops::Box;

typedef unsigned int Word;  // 32 boxes of a bit mask

constexpr int kLanes = jetops::kLanes;
constexpr unsigned kFullWarp = 0xFFFFFFFFu;
constexpr int kPreparing = 16;          // warps that prepare tiles in phase B; one more decides them
constexpr int kWarps = kPreparing + 1;  // 56 registers a thread fit into sm_53 and sm_62 then
constexpr int kThreads = kWarps * kLanes;
constexpr int kBlocksPerProcessor = 2;
constexpr int kHalf = kLanes / 2;
constexpr int kWordsPerChunk = 4 * kHalf;  // that a half-warp loads at a time
constexpr int kKeysPerLane = 8;
constexpr int kKeysPerWarp = kKeysPerLane * kLanes;
constexpr int kSharedKeys = 4096;  // that fit beside the rest in the 48 KiB that every GPU has
constexpr int kMaxWords = JETOPS_NMS_MAX_BOXES / kLanes;
constexpr size_t kAlignment = 256;
constexpr size_t kReserve = 2048;  // of shared memory, for the system and the variables of a few bytes

struct Problem {
  const float* boxes;
  const void* scores;
  const void* attn_map;
  int dtype;  // of scores and attn_map
  int n;
  int tiles;   // of 32 boxes
  int words;   // of one row of the overlap mask: as many as tiles, rounded up to 16 bytes
  int padded;  // keys to sort: a power of two, at least kKeysPerWarp
  jetops::Threshold threshold;
  bool vector_loads;
  uint8_t* keep;
  float* weighted;
  Word* mask;            // [n][words]
  uint64_t* spill_keys;  // null when the keys fit in shared memory
  unsigned* tickets;     // zero before the launch
#if defined(JETOPS_NMS_PROFILE)
  unsigned long long* times;  // nanoseconds; see csrc/bench/nms_phases.cu
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

// ---------------------------------------------------------------- phase A: weighted scores

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
#pragma unroll 4
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

// ---------------------------------------------------------------- phase A: overlapping pairs

__device__ __forceinline__ Box load_box(const Problem& p, int i) {
  if (i >= p.n) return jetops::make_box(0.0f, 0.0f, 0.0f, 0.0f);
  const float* box = p.boxes + 4 * (int64_t)i;
  return jetops::make_box(__ldg(box), __ldg(box + 1), __ldg(box + 2), __ldg(box + 3));
}

// Rows of 32 boxes against columns of 32 boxes; `staged` is this warp's own shared memory.
__device__ void compare_tile(const Problem& p, int tile_row, int tile_col, int lane, Box* staged) {
  const int row = tile_row * kLanes + lane;
  const int col = tile_col * kLanes + lane;
  const Box mine = load_box(p, row);
  __syncwarp();  // this warp may still be reading its previous tile
  staged[lane] = load_box(p, col);
  __syncwarp();

  Word word = 0, transposed = 0;
#pragma unroll 8
  for (int j = 0; j < kLanes; ++j) {
    const bool overlap = jetops::iou_exceeds(mine, staged[j], p.threshold);
    const Word column = __ballot_sync(kFullWarp, overlap);
    if (overlap) word |= 1u << j;
    if (lane == j) transposed = column;
  }
  if (tile_row == tile_col) word &= ~(1u << lane);  // no box overlaps itself
  if (row < p.n) p.mask[(int64_t)row * p.words + tile_col] = word;
  if (tile_row != tile_col && col < p.n) p.mask[(int64_t)col * p.words + tile_row] = transposed;
}

// The tiles on and above the diagonal, numbered without a square root: row r and row words-1-r
// together have words+1 tiles, so folding the triangle gives a rectangle of that width.
__device__ void compare_folded_tile(const Problem& p, int number, int lane, Box* staged) {
  const int width = p.words + 1;
  const int row = number / width;
  const int place = number % width;
  const int mirrored = p.words - 1 - row;
  if (place < p.words - row) {
    compare_tile(p, row, row + place, lane, staged);
  } else if (mirrored != row) {  // the middle row of an odd count is its own mirror image
    compare_tile(p, mirrored, mirrored + place - (p.words - row), lane, staged);
  }
}

// Rows and tiles alternate as long as there are both, so that every processor has some of each.
__device__ void phase_a(const Problem& p, Box* staged) {
  const int lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / kLanes;
  const int tiles = (p.words + 1) / 2 * (p.words + 1);
  const int mixed = 2 * (tiles < p.n ? tiles : p.n);
  const int total = tiles + p.n;
  for (int item = blockIdx.x * kWarps + warp; item < total; item += gridDim.x * kWarps) {
    const bool is_row = item < mixed ? item % 2 == 0 : p.n > tiles;
    const int number = item < mixed ? item / 2 : item - mixed / 2;
    if (is_row) {
      weigh_box(p, number, lane);
    } else {
      compare_folded_tile(p, number, lane, staged + warp * kLanes);
    }
  }
}

// ---------------------------------------------------------------- hand-off

__device__ bool is_last_block(unsigned* tickets) {
  __shared__ bool last;
  __threadfence();  // each thread: what I wrote is visible before the ticket is drawn
  __syncthreads();  // all threads of the block have got there
  if (threadIdx.x == 0) last = atomicAdd(tickets, 1u) == gridDim.x - 1;
  __syncthreads();
  __threadfence();  // nothing below is read before the ticket
  return last;
}

// ---------------------------------------------------------------- phase B: order

// What other blocks wrote is read past L1 (__ldcg), which may hold lines from before.
__device__ __forceinline__ uint64_t key_of(const Problem& p, int i) {
  if (i >= p.n) return ~(uint64_t)0;  // padding sorts behind everything
  const float score = __ldcg(p.weighted + i);
  return jetops::sort_key(score, __float_as_uint(score), (uint32_t)i);
}

__device__ __forceinline__ void order(uint64_t& a, uint64_t& b, bool rising) {
  const bool swap = (a > b) == rising;
  const uint64_t low = swap ? b : a;
  b = swap ? a : b;
  a = low;
}

// The strides below kKeysPerWarp of the bitonic network for runs of `size`. A lane holds eight
// neighbours: the three shortest strides stay inside a lane, the others are shuffles.
__device__ __forceinline__ void merge_in_warp(uint64_t key[kKeysPerLane], int first, int size,
                                              int stride) {
  const int lane = threadIdx.x % kLanes;
  const int place = first + lane * kKeysPerLane;
  for (; stride >= kKeysPerLane; stride /= 2) {
    const int other = stride / kKeysPerLane;
    const bool takes_smaller = ((lane & other) == 0) == ((place & size) == 0);
#pragma unroll
    for (int k = 0; k < kKeysPerLane; ++k) {
      const uint64_t theirs = __shfl_xor_sync(kFullWarp, (unsigned long long)key[k], other);
      if ((theirs < key[k]) == takes_smaller) key[k] = theirs;
    }
  }
#pragma unroll
  for (int inner = kKeysPerLane / 2; inner > 0; inner /= 2) {
    if (inner >= size) continue;
#pragma unroll
    for (int k = 0; k < kKeysPerLane; ++k) {
      if ((k & inner) == 0) order(key[k], key[k + inner], ((place + k) & size) == 0);
    }
  }
}

// `keys` is shared memory, or the workspace when there are too many.
__device__ void sort_boxes(const Problem& p, uint64_t* keys) {
  const int lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / kLanes;
  for (int first = warp * kKeysPerWarp; first < p.padded; first += kWarps * kKeysPerWarp) {
    uint64_t key[kKeysPerLane];
#pragma unroll
    for (int k = 0; k < kKeysPerLane; ++k) key[k] = key_of(p, first + lane * kKeysPerLane + k);
#pragma unroll 1
    for (int size = 2; size <= kKeysPerWarp; size *= 2) merge_in_warp(key, first, size, size / 2);
#pragma unroll
    for (int k = 0; k < kKeysPerLane; ++k) keys[first + lane * kKeysPerLane + k] = key[k];
  }
#pragma unroll 1
  for (int size = 2 * kKeysPerWarp; size <= p.padded; size *= 2) {
#pragma unroll 1
    for (int stride = size / 2; stride >= kKeysPerWarp; stride /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < p.padded / 2; i += kThreads) {
        const int low = 2 * i - (i & (stride - 1));
        uint64_t a = keys[low], b = keys[low + stride];
        order(a, b, (low & size) == 0);
        keys[low] = a;
        keys[low + stride] = b;
      }
    }
    __syncthreads();
    for (int first = warp * kKeysPerWarp; first < p.padded; first += kWarps * kKeysPerWarp) {
      uint64_t key[kKeysPerLane];
#pragma unroll
      for (int k = 0; k < kKeysPerLane; ++k) key[k] = keys[first + lane * kKeysPerLane + k];
      merge_in_warp(key, first, size, kKeysPerWarp / 2);
#pragma unroll
      for (int k = 0; k < kKeysPerLane; ++k) keys[first + lane * kKeysPerLane + k] = key[k];
    }
  }
  __syncthreads();
}

// ---------------------------------------------------------------- phase B: greedy scan
//
// The ranks are decided in tiles of 32 by the first warp, one tile a step; the other warps prepare
// the next tile meanwhile. A box of the next tile is lost if a box kept in an earlier step overlaps
// it; whether one kept in this very step does, the first warp finds out by itself from the overlaps
// between the two tiles. So there is one barrier a tile, and what a step waits for is short.
//
// Every preparing warp has two boxes of a tile, one a half-warp, whose rows of the mask it has
// loaded kAhead tiles before. A row is 64 words for each of kChunks.

struct Scan {
  Word kept[2][kMaxWords];        // by index: all kept up to the last step, and up to the one before
  Word to_previous[2][kLanes];    // for each box of a tile: which of the tile before it overlaps
  Word inside[2][kLanes];         // which of its own tile; its own bit says that it is lost already
  Word staged[kPreparing][2][kWordsPerChunk];  // rows, for access by bit
};

template <int kChunks>
__device__ __forceinline__ void load_rows(const Problem& p, const uint64_t* keys, int tile,
                                          uint4 row[kChunks]) {
  const int rank = tile * kLanes + 2 * (threadIdx.x / kLanes - 1) + threadIdx.x % kLanes / kHalf;
  const uint32_t index = tile < p.tiles ? jetops::key_index(keys[rank]) : (uint32_t)p.n;
  const int word = 4 * (threadIdx.x % kHalf);
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    row[c] = make_uint4(0, 0, 0, 0);
    const int start = c * kWordsPerChunk + word;
    if (index < (uint32_t)p.n && start < p.words) {
      row[c] = __ldcg(reinterpret_cast<const uint4*>(p.mask + (int64_t)index * p.words + start));
    }
  }
}

__device__ __forceinline__ Word common_bits(const uint4& a, const uint4& b) {
  return (a.x & b.x) | (a.y & b.y) | (a.z & b.z) | (a.w & b.w);
}

// What tile `tile` needs to be decided; `kept` holds what was kept two tiles before it and earlier.
template <int kChunks>
__device__ __forceinline__ void prepare_tile(const Problem& p, const uint64_t* keys, int tile,
                                             const uint4 row[kChunks], const Word* kept,
                                             Scan& scan) {
  const int lane = threadIdx.x % kLanes;
  const int half = lane / kHalf;
  const int warp = threadIdx.x / kLanes - 1;
  const uint64_t mine = keys[tile * kLanes + 2 * warp + half];
  const uint32_t in_tile = jetops::key_index(keys[tile * kLanes + lane]);
  const uint32_t in_previous =
      tile > 0 ? jetops::key_index(keys[(tile - 1) * kLanes + lane]) : (uint32_t)p.n;
  Word(*staged)[kWordsPerChunk] = scan.staged[warp];

  Word overlaps_kept = 0;
  bool inside[2] = {false, false}, to_previous[2] = {false, false};
#pragma unroll
  for (int c = 0; c < kChunks; ++c) {
    const int word = 4 * (lane % kHalf);
    const int start = c * kWordsPerChunk;
    overlaps_kept |=
        common_bits(row[c], *reinterpret_cast<const uint4*>(kept + start + word));
    if (kChunks > 1) __syncwarp();  // the chunk before may still be in use
    *reinterpret_cast<uint4*>(&staged[half][word]) = row[c];
    __syncwarp();
    const uint32_t place = in_tile / kLanes - start;  // wraps around below the chunk
    const uint32_t place_before = in_previous / kLanes - start;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      if (place < kWordsPerChunk) inside[h] = (staged[h][place] >> (in_tile % kLanes)) & 1u;
      if (place_before < kWordsPerChunk) {
        to_previous[h] = (staged[h][place_before] >> (in_previous % kLanes)) & 1u;
      }
    }
  }
  const bool never = jetops::key_is_nan(mine);  // padding as well
  const Word lost = __ballot_sync(kFullWarp, overlaps_kept != 0 || never);
  Word words[4];
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    words[h] = __ballot_sync(kFullWarp, inside[h]);
    words[2 + h] = __ballot_sync(kFullWarp, to_previous[h]);
    const Word half_lanes = h == 0 ? 0x0000FFFFu : 0xFFFF0000u;
    if (lost & half_lanes) words[h] |= 1u << (2 * warp + h);
  }
  __syncwarp();  // the rows of the next tile go to the same place
  if (lane == 0) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      scan.inside[tile % 2][2 * warp + h] = words[h];
      scan.to_previous[tile % 2][2 * warp + h] = words[2 + h];
    }
  }
}

// One warp: which boxes of a tile the sequential loop would keep, as a word by rank. A box is decided
// as soon as all that rank above it and overlap it are, so most tiles take one or two turns.
__device__ __forceinline__ Word decide_tile(const Scan& scan, int tile, Word kept_before) {
  const int lane = threadIdx.x;
  const Word inside = scan.inside[tile % 2][lane];
  const Word above = inside & ((1u << lane) - 1u);
  const bool lost = ((inside >> lane) & 1u) != 0 || (scan.to_previous[tile % 2][lane] & kept_before);
  Word open = __ballot_sync(kFullWarp, !lost);
  Word kept = 0;
  while (open != 0) {
    const bool is_open = (open >> lane) & 1u;
    const Word now = __ballot_sync(kFullWarp, is_open && (above & open) == 0);
    kept |= now;
    open &= ~now;
    if (open == 0) break;
    open &= ~__ballot_sync(kFullWarp, (above & now) != 0);
  }
  return kept;
}

template <int kChunks>
__device__ void scan_boxes(const Problem& p, const uint64_t* keys) {
  constexpr int kAhead = kChunks == 1 ? 4 : kChunks == 2 ? 2 : 1;
  __shared__ __align__(16) Scan scan;
  const int lane = threadIdx.x % kLanes;
  const bool decides = threadIdx.x < kLanes;
  for (int word = threadIdx.x; word < kChunks * kWordsPerChunk; word += kThreads) {
    scan.kept[0][word] = scan.kept[1][word] = 0;
  }
  uint4 row[kAhead][kChunks];
  if (!decides) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) load_rows<kChunks>(p, keys, k, row[k]);
  }
  __syncthreads();
  if (!decides) prepare_tile<kChunks>(p, keys, 0, row[0], scan.kept[0], scan);
  if (!decides) load_rows<kChunks>(p, keys, kAhead, row[0]);
  __syncthreads();

  Word kept = 0, kept_before = 0;  // of this tile and of the one before; the deciding warp's
  uint32_t index = (uint32_t)p.n, index_before;
  for (int start = 0; start < p.tiles; start += kAhead) {
#pragma unroll
    for (int k = 0; k < kAhead; ++k) {
      const int tile = start + k;
      if (tile >= p.tiles) break;
      if (decides) {
        index_before = index;
        kept_before = kept;
        index = jetops::key_index(keys[tile * kLanes + lane]);
        kept = decide_tile(scan, tile, kept_before);
        const bool is_kept = (kept >> lane) & 1u;
        // The other of the two lists is being read. This one has missed the tile before.
        Word* list = scan.kept[tile % 2];
        if (is_kept) atomicOr(&list[index / kLanes], 1u << (index % kLanes));
        if ((kept_before >> lane) & 1u) {
          atomicOr(&list[index_before / kLanes], 1u << (index_before % kLanes));
        }
        if (index < (uint32_t)p.n) p.keep[index] = is_kept;
      } else if (tile + 1 < p.tiles) {
          // rows of tile t are in row[t % kAhead]
        prepare_tile<kChunks>(p, keys, tile + 1, row[(k + 1) % kAhead], scan.kept[(tile + 1) % 2],
                              scan);
        load_rows<kChunks>(p, keys, tile + 1 + kAhead, row[(k + 1) % kAhead]);
      }
      __syncthreads();
    }
  }
}

template <int kChunks>
__global__ void __launch_bounds__(kThreads, kBlocksPerProcessor)
    fused_attn_nms_kernel(const Problem p) {
  extern __shared__ __align__(16) unsigned char scratch[];  // boxes in phase A, keys in phase B
  if (blockIdx.x == 0) note_time(p, 0);
  phase_a(p, reinterpret_cast<Box*>(scratch));
  if (!is_last_block(p.tickets)) return;
  note_time(p, 1);
  uint64_t* keys = p.spill_keys != nullptr ? p.spill_keys : reinterpret_cast<uint64_t*>(scratch);
  sort_boxes(p, keys);
  note_time(p, 2);
  scan_boxes<kChunks>(p, keys);
  note_time(p, 3);
}

// ---------------------------------------------------------------- launch

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int words_of(int64_t n) { return (int)divide_up(n, 4 * kLanes) * 4; }

int padded_of(int64_t n) {
  int padded = kKeysPerWarp;
  while (padded < n) padded *= 2;
  return padded;
}

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Where each part lies, in bytes from the start of the workspace.
struct Layout {
  size_t weighted, mask, keys, total;

  explicit Layout(int64_t n) {
    weighted = kAlignment;  // the ticket counter comes first
    mask = weighted + aligned((size_t)n * sizeof(float));
    keys = mask + aligned((size_t)n * words_of(n) * sizeof(Word));
    const size_t spilled = padded_of(n) > kSharedKeys ? (size_t)padded_of(n) : 0;
    total = keys + aligned(spilled * sizeof(uint64_t));
  }
};

bool allows_vector_loads(const void* scores, const void* attn_map, int64_t n, int dtype) {
  const uintptr_t bytes = dtype == JETOPS_FLOAT32 ? 16 : 8;
  return n % 4 == 0 && (uintptr_t)scores % bytes == 0 && (uintptr_t)attn_map % bytes == 0;
}

cudaError_t block_count(int64_t n, int* blocks) {
  int processors = 0;
  const cudaError_t error = jetops::processor_count(&processors);
  if (error != cudaSuccess) return error;
  const int64_t words = words_of(n);
  const int64_t items = n + (words + 1) / 2 * (words + 1);
  const int64_t wanted = divide_up(items, kWarps);
  const int64_t most = (int64_t)processors * kBlocksPerProcessor;
  *blocks = (int)(wanted < most ? wanted : most);
  return cudaSuccess;
}

// More than 48 KiB has to be asked for, and not every GPU has it. 0 in `bytes`: it does not fit.
template <int kChunks>
cudaError_t shared_bytes_for_keys(int padded, size_t* bytes) {
  *bytes = (size_t)padded * sizeof(uint64_t);
  if (padded <= kSharedKeys) return cudaSuccess;
  int device = 0, most = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  if (error != cudaSuccess) return error;
  if (*bytes + sizeof(Scan) + kReserve > (size_t)most) {
    *bytes = 0;
    return cudaSuccess;
  }
  return cudaFuncSetAttribute(fused_attn_nms_kernel<kChunks>,
                              cudaFuncAttributeMaxDynamicSharedMemorySize, (int)*bytes);
}

template <int kChunks>
cudaError_t launch(Problem p, uint64_t* spill_keys, cudaStream_t stream) {
  int blocks = 0;
  cudaError_t error = block_count(p.n, &blocks);
  if (error != cudaSuccess) return error;
  size_t bytes = 0;
  error = shared_bytes_for_keys<kChunks>(p.padded, &bytes);
  if (error != cudaSuccess) return error;
  if (bytes == 0) p.spill_keys = spill_keys;
  const size_t staged = (size_t)kThreads * sizeof(Box);
  error = cudaMemsetAsync(p.tickets, 0, sizeof(unsigned), stream);
  if (error != cudaSuccess) return error;
  fused_attn_nms_kernel<kChunks>
      <<<blocks, kThreads, bytes > staged ? bytes : staged, stream>>>(p);
  return cudaGetLastError();
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
  p.tiles = (int)divide_up(n, kLanes);
  p.words = words_of(n);
  p.padded = padded_of(n);
  p.threshold = jetops::make_threshold(iou_threshold);
  p.vector_loads = allows_vector_loads(scores, attn_map, n, dtype);
  p.keep = keep;
  p.weighted = weighted != nullptr ? weighted : reinterpret_cast<float*>(base + layout.weighted);
  p.mask = reinterpret_cast<Word*>(base + layout.mask);
  p.tickets = reinterpret_cast<unsigned*>(base);
#if defined(JETOPS_NMS_PROFILE)
  p.times = jetops_nms_times;
#endif
  uint64_t* spill_keys = reinterpret_cast<uint64_t*>(base + layout.keys);
  if (p.words <= kWordsPerChunk) return launch<1>(p, spill_keys, stream);
  if (p.words <= 2 * kWordsPerChunk) return launch<2>(p, spill_keys, stream);
  if (p.words <= 4 * kWordsPerChunk) return launch<4>(p, spill_keys, stream);
  return launch<8>(p, spill_keys, stream);
}

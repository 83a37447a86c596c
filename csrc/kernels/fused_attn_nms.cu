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
// One warp decides a tile exactly as the sequential loop would; the whole block then strikes out
// the overlaps of the tile's kept boxes. A box is struck out by kept boxes only.
#include "jetops_kernels.h"
#include "nms_math.h"

namespace {

using jetops::Box;

typedef unsigned int Word;  // 32 boxes of a bit mask

constexpr int kLanes = jetops::kLanes;
constexpr unsigned kFullWarp = 0xFFFFFFFFu;
constexpr int kThreads = 512;
constexpr int kWarps = kThreads / kLanes;
constexpr int kBlocksPerProcessor = 4;
constexpr int kSharedKeys = 4096;  // 32 KiB; more keys than that are sorted in the workspace
constexpr int kMaxWords = JETOPS_NMS_MAX_BOXES / kLanes;
constexpr size_t kAlignment = 256;

struct Problem {
  const float* boxes;
  const float* scores;
  const float* attn_map;
  int n;
  int words;   // of one row of the overlap mask; also tiles along one side
  int padded;  // keys to sort: a power of two, at least one tile
  float iou_threshold;
  bool vector_loads;
  uint8_t* keep;
  float* weighted;
  Word* mask;            // [n][words]
  uint64_t* spill_keys;  // null when the keys fit in shared memory
  unsigned* tickets;     // zero before the launch
};

// ---------------------------------------------------------------- phase A: weighted scores

__device__ __forceinline__ float add_product(float sum, float a, float b) {
  return jetops::add(sum, jetops::mul(a, b));
}

// Lane l holds the partial sums 4l to 4l+3 of nms_math.h.
__device__ __forceinline__ float weight_of_row(const Problem& p, const float* row, int lane) {
  float sum0 = 0.0f, sum1 = 0.0f, sum2 = 0.0f, sum3 = 0.0f;
  if (p.vector_loads) {  // n is a multiple of 4 then, so four columns are all inside or all outside
#pragma unroll 4
    for (int col = 4 * lane; col < p.n; col += jetops::kPartials) {
      const float4 a = __ldg(reinterpret_cast<const float4*>(row + col));
      const float4 s = __ldg(reinterpret_cast<const float4*>(p.scores + col));
      sum0 = add_product(sum0, a.x, s.x);
      sum1 = add_product(sum1, a.y, s.y);
      sum2 = add_product(sum2, a.z, s.z);
      sum3 = add_product(sum3, a.w, s.w);
    }
  } else {
    for (int col = 4 * lane; col < p.n; col += jetops::kPartials) {
      sum0 = add_product(sum0, __ldg(row + col), __ldg(p.scores + col));
      if (col + 1 < p.n) sum1 = add_product(sum1, __ldg(row + col + 1), __ldg(p.scores + col + 1));
      if (col + 2 < p.n) sum2 = add_product(sum2, __ldg(row + col + 2), __ldg(p.scores + col + 2));
      if (col + 3 < p.n) sum3 = add_product(sum3, __ldg(row + col + 3), __ldg(p.scores + col + 3));
    }
  }
  float sum = jetops::add(jetops::add(sum0, sum2), jetops::add(sum1, sum3));
#pragma unroll
  for (int width = kLanes / 2; width > 0; width /= 2) {
    sum = jetops::add(sum, __shfl_down_sync(kFullWarp, sum, width));
  }
  return sum;  // right in lane 0
}

__device__ __forceinline__ void weigh_box(const Problem& p, int i, int lane) {
  const float weight = weight_of_row(p, p.attn_map + (int64_t)i * p.n, lane);
  if (lane == 0) p.weighted[i] = jetops::mul(__ldg(p.scores + i), weight);
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
  for (int j = 0; j < kLanes; ++j) {
    const bool overlap =
        jetops::iou(mine, staged[j]) > p.iou_threshold && row != tile_col * kLanes + j;
    const Word column = __ballot_sync(kFullWarp, overlap);
    if (overlap) word |= 1u << j;
    if (lane == j) transposed = column;
  }
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
__device__ void sort_boxes(const Problem& p, uint64_t* keys) {
  for (int i = threadIdx.x; i < p.padded; i += kThreads) {
    uint64_t key = ~(uint64_t)0;  // padding sorts behind everything
    if (i < p.n) {
      const float score = __ldcg(p.weighted + i);
      key = jetops::sort_key(score, __float_as_uint(score), (uint32_t)i);
    }
    keys[i] = key;
  }
  for (int size = 2; size <= p.padded; size *= 2) {
    for (int stride = size / 2; stride > 0; stride /= 2) {
      __syncthreads();
      for (int i = threadIdx.x; i < p.padded / 2; i += kThreads) {
        const int low = 2 * i - (i & (stride - 1));
        const bool rising = (low & size) == 0;
        const uint64_t a = keys[low], b = keys[low + stride];
        if ((a > b) == rising) {
          keys[low] = b;
          keys[low + stride] = a;
        }
      }
    }
  }
  __syncthreads();
}

// ---------------------------------------------------------------- phase B: greedy scan

struct Scan {
  Word removed[kMaxWords];     // by index
  Word relation[2][kLanes];    // overlaps among the boxes of a tile, by rank; two tiles in turn
  int kept[kLanes];            // indices of the boxes that the current tile keeps
  int kept_count;
};

__device__ __forceinline__ Word mask_word(const Problem& p, int row, int word) {
  return __ldcg(p.mask + (int64_t)row * p.words + word);
}

__device__ void load_relation(const Problem& p, const uint64_t* keys, int tile, Word* relation) {
  const int lane = threadIdx.x % kLanes;
  const uint32_t other = jetops::key_index(keys[tile * kLanes + lane]);
  for (int r = threadIdx.x / kLanes; r < kLanes; r += kWarps) {
    const uint32_t mine = jetops::key_index(keys[tile * kLanes + r]);
    bool overlap = false;
    if (mine < (uint32_t)p.n && other < (uint32_t)p.n) {  // padding has the largest index
      overlap = (mask_word(p, mine, other / kLanes) >> (other % kLanes)) & 1u;
    }
    const Word word = __ballot_sync(kFullWarp, overlap);
    if (lane == 0) relation[r] = word;
  }
}

// One warp. The loop runs once for each kept box, in rank order: the sequential greedy itself.
__device__ void decide_tile(const Problem& p, const uint64_t* keys, int tile, Scan& scan) {
  const int lane = threadIdx.x;
  const uint64_t key = keys[tile * kLanes + lane];
  const uint32_t index = jetops::key_index(key);
  const Word overlaps = scan.relation[tile % 2][lane];
  const bool struck = jetops::key_is_nan(key) ||
                      ((scan.removed[index / kLanes] >> (index % kLanes)) & 1u) != 0;
  Word alive = __ballot_sync(kFullWarp, !struck);
  Word kept = 0;
  while (alive != 0) {
    const int next = __ffs(alive) - 1;
    kept |= 1u << next;
    alive &= ~(__shfl_sync(kFullWarp, overlaps, next) | (1u << next));
  }
  const bool is_kept = (kept >> lane) & 1u;
  if (is_kept) scan.kept[__popc(kept & ((1u << lane) - 1u))] = (int)index;
  if (lane == 0) scan.kept_count = __popc(kept);
  if (index < (uint32_t)p.n) p.keep[index] = is_kept;
}

__device__ void strike_out(const Problem& p, Scan& scan) {
  for (int k = threadIdx.x / kLanes; k < scan.kept_count; k += kWarps) {
    for (int word = threadIdx.x % kLanes; word < p.words; word += kLanes) {
      const Word overlaps = mask_word(p, scan.kept[k], word);
      if (overlaps != 0) atomicOr(&scan.removed[word], overlaps);
    }
  }
}

__device__ void scan_boxes(const Problem& p, const uint64_t* keys) {
  __shared__ Scan scan;
  for (int word = threadIdx.x; word < p.words; word += kThreads) scan.removed[word] = 0;
  load_relation(p, keys, 0, scan.relation[0]);
  __syncthreads();
  for (int tile = 0; tile < p.words; ++tile) {
    if (threadIdx.x < kLanes) decide_tile(p, keys, tile, scan);
    __syncthreads();
    // Independent of what was just decided, so its latency hides behind that of strike_out.
    if (tile + 1 < p.words) load_relation(p, keys, tile + 1, scan.relation[(tile + 1) % 2]);
    strike_out(p, scan);
    __syncthreads();
  }
}

__global__ void __launch_bounds__(kThreads) fused_attn_nms_kernel(const Problem p) {
  extern __shared__ __align__(16) unsigned char scratch[];  // boxes in phase A, keys in phase B
  phase_a(p, reinterpret_cast<Box*>(scratch));
  if (!is_last_block(p.tickets)) return;
  uint64_t* keys = p.spill_keys != nullptr ? p.spill_keys : reinterpret_cast<uint64_t*>(scratch);
  sort_boxes(p, keys);
  scan_boxes(p, keys);
}

// ---------------------------------------------------------------- launch

int words_of(int64_t n) { return (int)((n + kLanes - 1) / kLanes); }

int padded_of(int64_t n) {
  int padded = kLanes;
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

bool allows_vector_loads(const float* scores, const float* attn_map, int64_t n) {
  return n % 4 == 0 && (uintptr_t)scores % 16 == 0 && (uintptr_t)attn_map % 16 == 0;
}

cudaError_t block_count(int64_t n, int* blocks) {
  int device = 0, processors = 0;
  cudaError_t error = cudaGetDevice(&device);
  if (error != cudaSuccess) return error;
  error = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (error != cudaSuccess) return error;
  const int64_t words = words_of(n);
  const int64_t items = n + (words + 1) / 2 * (words + 1);
  const int64_t wanted = (items + kWarps - 1) / kWarps;
  const int64_t most = (int64_t)processors * kBlocksPerProcessor;
  *blocks = (int)(wanted < most ? wanted : most);
  return cudaSuccess;
}

size_t shared_bytes(int padded) {
  const size_t staged = (size_t)kThreads * sizeof(Box);
  const size_t keys = padded > kSharedKeys ? 0 : (size_t)padded * sizeof(uint64_t);
  return staged > keys ? staged : keys;
}

}  // namespace

extern "C" int64_t jetops_fused_attn_nms_workspace_bytes(int64_t n) {
  return n <= 0 ? 0 : (int64_t)Layout(n).total;
}

extern "C" cudaError_t jetops_fused_attn_nms_cuda(const float* boxes, const float* scores,
                                                  const float* attn_map, int64_t n,
                                                  float iou_threshold, uint8_t* keep,
                                                  float* weighted, void* workspace,
                                                  cudaStream_t stream) {
  if (n < 0 || n > JETOPS_NMS_MAX_BOXES) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  const Layout layout(n);
  unsigned char* base = static_cast<unsigned char*>(workspace);
  Problem p;
  p.boxes = boxes;
  p.scores = scores;
  p.attn_map = attn_map;
  p.n = (int)n;
  p.words = words_of(n);
  p.padded = padded_of(n);
  p.iou_threshold = iou_threshold;
  p.vector_loads = allows_vector_loads(scores, attn_map, n);
  p.keep = keep;
  p.weighted = weighted != nullptr ? weighted : reinterpret_cast<float*>(base + layout.weighted);
  p.mask = reinterpret_cast<Word*>(base + layout.mask);
  p.spill_keys =
      p.padded > kSharedKeys ? reinterpret_cast<uint64_t*>(base + layout.keys) : nullptr;
  p.tickets = reinterpret_cast<unsigned*>(base);

  int blocks = 0;
  cudaError_t error = block_count(n, &blocks);
  if (error != cudaSuccess) return error;
  error = cudaMemsetAsync(p.tickets, 0, sizeof(unsigned), stream);
  if (error != cudaSuccess) return error;
  fused_attn_nms_kernel<<<blocks, kThreads, shared_bytes(p.padded), stream>>>(p);
  return cudaGetLastError();
}

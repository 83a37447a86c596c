// y = dropout(gelu(x + bias)) and its backward, for a matrix x and a bias a column.
//
// A thread stays in its columns and walks down the rows: it reads the bias once, and in the backward
// pass adds up the bias gradient in registers. The mask is not stored; dropout_math.h makes it again
// from the seed. Blocks are `width` threads wide and kThreads / width high, so that narrow matrices
// fill them too.
//
// The bias gradient is summed in fp32 in an order that depends on the sizes and the GPU's number of
// processors alone: down the rows of a thread, then over the rows of a block, then over the blocks.
#include "device.h"
#include "dropout_math.h"
#include "elements.cuh"
#include "gelu_math.h"
#include "jetops_kernels.h"

namespace {

using jetops::Dropout;
using jetops::PackOf;

constexpr int kThreads = 256;
constexpr int kRowsAhead = 4;  // rows whose reads are under way at a time
constexpr int kForwardBlocks = 16;  // a processor, where the matrix has that many
constexpr int kBackwardBlocks = 4;  // fewer: each leaves a row of partial sums
constexpr int kSumColumns = 32;  // of a block of sum_kernel
constexpr int kSumGroups = 16;   // that share the slabs of a column

struct Problem {
  const void* x;
  const void* bias;
  const void* gradient;  // of y; backward only
  void* out;             // y, or the gradient of x
  float* partial_sums;   // [slabs][columns]; backward only
  const int64_t* seed;   // two numbers
  int64_t rows;
  int64_t columns;
  int64_t slabs;          // parts that the rows are cut into, a block each
  int64_t rows_per_slab;  // a multiple of a block's height
  int64_t column_blocks;
  int width;  // of a block, a power of two
  Dropout dropout;
};

// kItems is one element, or the elements of a pack. Elements of a pack are moved as words.
template <class Type, int kItems>
struct Access {
  typedef uint4 Raw;
  static __device__ __forceinline__ Raw read(const void* base, int64_t element) {
    return *reinterpret_cast<const uint4*>(static_cast<const typename Type::type*>(base) + element);
  }
  static __device__ __forceinline__ void to_floats(const Raw& raw, float* out) {
    jetops::unpack<Type>(raw, out);
  }
  static __device__ __forceinline__ void write(void* base, int64_t element, const float* in) {
    jetops::store_pack(static_cast<typename Type::type*>(base) + element, jetops::pack<Type>(in));
  }
};

template <class Type>
struct Access<Type, 1> {
  typedef typename Type::type Raw;
  static __device__ __forceinline__ Raw read(const void* base, int64_t element) {
    return static_cast<const Raw*>(base)[element];
  }
  static __device__ __forceinline__ void to_floats(const Raw& raw, float* out) {
    out[0] = Type::load(raw);
  }
  static __device__ __forceinline__ void write(void* base, int64_t element, const float* in) {
    static_cast<Raw*>(base)[element] = Type::store(in[0]);
  }
};

template <class Type, int kItems>
__device__ __forceinline__ void decide(uint32_t threshold, uint64_t key, uint64_t stream,
                                       int64_t element, bool* kept) {
  constexpr int kChunk = PackOf<Type>::kSize;
  const jetops::Philox random = jetops::philox(key, stream, (uint64_t)element / kChunk);
#pragma unroll
  for (int k = 0; k < kChunk; ++k) {
    const bool is_kept = jetops::is_kept<kChunk>(random, k, threshold);
    if (kItems == kChunk) {
      kept[k % kItems] = is_kept;
    } else if (k == (int)((uint64_t)element % kChunk)) {
      kept[0] = is_kept;
    }
  }
}

struct Place {
  int64_t column;     // first column of the thread; outside the matrix for a surplus thread
  int64_t first_row;
  int64_t last_row;   // one past
  int height;         // of a block: the thread takes every height-th row
};

template <int kItems>
__device__ __forceinline__ Place place_of(const Problem& p) {
  const int64_t column_block = blockIdx.x % p.column_blocks;
  const int64_t slab = blockIdx.x / p.column_blocks;
  Place place;
  place.height = kThreads / p.width;
  place.column = (column_block * p.width + threadIdx.x % p.width) * kItems;
  place.first_row = slab * p.rows_per_slab + threadIdx.x / p.width;
  place.last_row = (slab + 1) * p.rows_per_slab;
  if (place.last_row > p.rows) place.last_row = p.rows;
  return place;
}

template <class Type, class Gelu, int kItems, bool kDrops>
__global__ void __launch_bounds__(kThreads) forward_kernel(const Problem p) {
  typedef Access<Type, kItems> At;
  const Place place = place_of<kItems>(p);
  if (place.column >= p.columns) return;
  uint64_t key = 0, stream = 0;
  if (kDrops) {
    key = (uint64_t)p.seed[0];
    stream = (uint64_t)p.seed[1];
  }
  float bias[kItems];
  At::to_floats(At::read(p.bias, place.column), bias);

  const int64_t step = (int64_t)kRowsAhead * place.height;
  for (int64_t row = place.first_row; row < place.last_row; row += step) {
    typename At::Raw raw[kRowsAhead];
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      const int64_t here = row + r * place.height;
      if (here < place.last_row) raw[r] = At::read(p.x, here * p.columns + place.column);
    }
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      const int64_t here = row + r * place.height;
      if (here >= place.last_row) break;
      const int64_t element = here * p.columns + place.column;
      float value[kItems];
      bool kept[kItems];
      At::to_floats(raw[r], value);
      if (kDrops) decide<Type, kItems>(p.dropout.threshold, key, stream, element, kept);
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const float activated = Gelu::value(value[k] + bias[k]);
        value[k] = !kDrops ? activated : kept[k] ? activated * p.dropout.scale : 0.0f;
      }
      At::write(p.out, element, value);
    }
  }
}

// The sums of a block's rows, in the first row of threads.
template <int kItems>
__device__ __forceinline__ void sum_over_height(float* sum, int width, int height) {
  __shared__ float staged[kThreads * kItems];
  if (height == 1) return;
#pragma unroll
  for (int k = 0; k < kItems; ++k) staged[k * kThreads + threadIdx.x] = sum[k];
  __syncthreads();
  if ((int)threadIdx.x >= width) return;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
#pragma unroll 1
    for (int r = 1; r < height; ++r) sum[k] += staged[k * kThreads + r * width + threadIdx.x];
  }
}

template <class Type, class Gelu, int kItems, bool kDrops>
__global__ void __launch_bounds__(kThreads) backward_kernel(const Problem p) {
  typedef Access<Type, kItems> At;
  const Place place = place_of<kItems>(p);
  const bool inside = place.column < p.columns;
  uint64_t key = 0, stream = 0;
  if (kDrops) {
    key = (uint64_t)p.seed[0];
    stream = (uint64_t)p.seed[1];
  }
  float bias[kItems], sum[kItems];
  if (inside) At::to_floats(At::read(p.bias, place.column), bias);
#pragma unroll
  for (int k = 0; k < kItems; ++k) sum[k] = 0.0f;

  const int64_t step = (int64_t)kRowsAhead * place.height;
  const int64_t last_row = inside ? place.last_row : 0;
  for (int64_t row = place.first_row; row < last_row; row += step) {
    typename At::Raw raw[kRowsAhead], raw_gradient[kRowsAhead];
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      const int64_t here = row + r * place.height;
      if (here < last_row) {
        raw[r] = At::read(p.x, here * p.columns + place.column);
        raw_gradient[r] = At::read(p.gradient, here * p.columns + place.column);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowsAhead; ++r) {
      const int64_t here = row + r * place.height;
      if (here >= last_row) break;
      const int64_t element = here * p.columns + place.column;
      float value[kItems], gradient[kItems];
      bool kept[kItems];
      At::to_floats(raw[r], value);
      At::to_floats(raw_gradient[r], gradient);
      if (kDrops) decide<Type, kItems>(p.dropout.threshold, key, stream, element, kept);
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const float slope = gradient[k] * Gelu::slope(value[k] + bias[k]);
        value[k] = !kDrops ? slope : kept[k] ? slope * p.dropout.scale : 0.0f;
        sum[k] += value[k];
      }
      At::write(p.out, element, value);
    }
  }
  sum_over_height<kItems>(sum, p.width, place.height);
  if (!inside || (int)threadIdx.x >= p.width) return;
  const int64_t slab = blockIdx.x / p.column_blocks;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    p.partial_sums[slab * p.columns + place.column + k] = sum[k];
  }
}

template <class Type>
__global__ void __launch_bounds__(kSumColumns * kSumGroups)
    sum_kernel(const float* partial_sums, int64_t slabs, int64_t columns,
               typename Type::type* bias_gradient) {
  __shared__ float staged[kSumGroups][kSumColumns];
  const int64_t column = (int64_t)blockIdx.x * kSumColumns + threadIdx.x;
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 8
    for (int64_t slab = threadIdx.y; slab < slabs; slab += kSumGroups) {
      sum += partial_sums[slab * columns + column];
    }
  }
  staged[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int group = 1; group < kSumGroups; ++group) sum += staged[group][threadIdx.x];
  bias_gradient[column] = Type::store(sum);
}

// ---------------------------------------------------------------- launch

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Shape {
  int width;
  int64_t column_blocks, slabs, rows_per_slab;
};

// `items` is how many elements of a row one thread takes.
Shape shape_of(int64_t rows, int64_t columns, int items, int blocks) {
  const int64_t threads = divide_up(columns, items);
  Shape shape;
  shape.width = 1;
  while (shape.width < threads && shape.width < kThreads) shape.width *= 2;
  const int64_t height = kThreads / shape.width;
  shape.column_blocks = divide_up(threads, shape.width);
  const int64_t wanted = divide_up(blocks, shape.column_blocks);
  // A slab keeps all its threads busy with as many rows as they load at a time.
  const int64_t most = divide_up(rows, height * kRowsAhead);
  const int64_t slabs = wanted < most ? wanted : most;
  shape.rows_per_slab = divide_up(divide_up(rows, slabs), height) * height;
  shape.slabs = divide_up(rows, shape.rows_per_slab);
  return shape;
}

template <class Type>
bool takes_packs(const Problem& p) {
  return p.columns % PackOf<Type>::kSize == 0 && jetops::is_aligned(p.x) &&
         jetops::is_aligned(p.bias) && jetops::is_aligned(p.out) &&
         jetops::is_aligned(p.gradient);
}

template <class Type, class Gelu, int kItems, bool kDrops>
cudaError_t launch_kernels(const Problem& p, void* bias_gradient, cudaStream_t stream) {
  const unsigned blocks = (unsigned)(p.slabs * p.column_blocks);
  if (p.gradient == nullptr) {
    forward_kernel<Type, Gelu, kItems, kDrops><<<blocks, kThreads, 0, stream>>>(p);
    return cudaGetLastError();
  }
  backward_kernel<Type, Gelu, kItems, kDrops><<<blocks, kThreads, 0, stream>>>(p);
  const cudaError_t error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  const unsigned sum_blocks = (unsigned)divide_up(p.columns, kSumColumns);
  sum_kernel<Type><<<sum_blocks, dim3(kSumColumns, kSumGroups), 0, stream>>>(
      p.partial_sums, p.slabs, p.columns, static_cast<typename Type::type*>(bias_gradient));
  return cudaGetLastError();
}

template <class Type, class Gelu, int kItems>
cudaError_t launch_items(Problem p, void* bias_gradient, cudaStream_t stream) {
  int processors = 0;
  const cudaError_t error = jetops::processor_count(&processors);
  if (error != cudaSuccess) return error;
  const int blocks = processors * (p.gradient == nullptr ? kForwardBlocks : kBackwardBlocks);
  const Shape shape = shape_of(p.rows, p.columns, kItems, blocks);
  p.width = shape.width;
  p.column_blocks = shape.column_blocks;
  p.slabs = shape.slabs;
  p.rows_per_slab = shape.rows_per_slab;
  if (p.column_blocks > INT32_MAX / p.slabs) return cudaErrorInvalidValue;
  return p.dropout.threshold != 0
             ? launch_kernels<Type, Gelu, kItems, true>(p, bias_gradient, stream)
             : launch_kernels<Type, Gelu, kItems, false>(p, bias_gradient, stream);
}

template <class Type, class Gelu>
cudaError_t launch_gelu(const Problem& p, void* bias_gradient, cudaStream_t stream) {
  return takes_packs<Type>(p) ? launch_items<Type, Gelu, PackOf<Type>::kSize>(p, bias_gradient, stream)
                              : launch_items<Type, Gelu, 1>(p, bias_gradient, stream);
}

template <class Type>
cudaError_t launch_type(Problem p, void* bias_gradient, int form, double probability,
                        cudaStream_t stream) {
  p.dropout = jetops::make_dropout(probability, 32 / Type::kPerWord);
  const size_t size = sizeof(typename Type::type);
  if (p.dropout.scale == 0.0f) {
    const cudaError_t error = cudaMemsetAsync(p.out, 0, (size_t)(p.rows * p.columns) * size, stream);
    if (error != cudaSuccess || p.gradient == nullptr) return error;
    return cudaMemsetAsync(bias_gradient, 0, (size_t)p.columns * size, stream);
  }
  if (form == JETOPS_GELU_ERF) {
    return launch_gelu<Type, jetops::GeluErf<typename Type::Precision>>(p, bias_gradient, stream);
  }
  return launch_gelu<Type, jetops::GeluTanh>(p, bias_gradient, stream);
}

cudaError_t launch(const Problem& p, void* bias_gradient, int dtype, int form, double probability,
                   cudaStream_t stream) {
  if (p.rows < 0 || p.columns < 0 || !(probability >= 0.0 && probability <= 1.0) ||
      (form != JETOPS_GELU_ERF && form != JETOPS_GELU_TANH)) {
    return cudaErrorInvalidValue;
  }
  if (p.rows == 0 || p.columns == 0) return cudaSuccess;
  switch (dtype) {
    case JETOPS_FLOAT32:
      return launch_type<jetops::Float32>(p, bias_gradient, form, probability, stream);
    case JETOPS_FLOAT16:
      return launch_type<jetops::Float16>(p, bias_gradient, form, probability, stream);
    case JETOPS_BFLOAT16:
      return launch_type<jetops::BFloat16>(p, bias_gradient, form, probability, stream);
  }
  return cudaErrorInvalidValue;
}

}  // namespace

extern "C" cudaError_t jetops_bias_gelu_dropout_cuda(const void* x, const void* bias, void* y,
                                                     int64_t rows, int64_t columns, int dtype,
                                                     int form, double probability,
                                                     const int64_t* seed, cudaStream_t stream) {
  Problem p = {};
  p.x = x;
  p.bias = bias;
  p.out = y;
  p.rows = rows;
  p.columns = columns;
  p.seed = seed;
  return launch(p, nullptr, dtype, form, probability, stream);
}

extern "C" cudaError_t jetops_bias_gelu_dropout_workspace_bytes(int64_t rows, int64_t columns,
                                                                int64_t* bytes) {
  *bytes = 0;
  if (rows <= 0 || columns <= 0) return cudaSuccess;
  int processors = 0;
  const cudaError_t error = jetops::processor_count(&processors);
  if (error != cudaSuccess) return error;
  int64_t slabs = 0;
  for (int items = 1; items <= 8; items *= 2) {  // whichever of them the pointers will allow
    const Shape shape = shape_of(rows, columns, items, processors * kBackwardBlocks);
    if (shape.slabs > slabs) slabs = shape.slabs;
  }
  *bytes = slabs * columns * (int64_t)sizeof(float);
  return cudaSuccess;
}

extern "C" cudaError_t jetops_bias_gelu_dropout_backward_cuda(
    const void* grad_y, const void* x, const void* bias, void* grad_x, void* grad_bias,
    int64_t rows, int64_t columns, int dtype, int form, double probability, const int64_t* seed,
    void* workspace, cudaStream_t stream) {
  if (grad_y == nullptr && rows > 0 && columns > 0) return cudaErrorInvalidValue;
  Problem p = {};
  p.x = x;
  p.bias = bias;
  p.gradient = grad_y;
  p.out = grad_x;
  p.rows = rows;
  p.columns = columns;
  p.seed = seed;
  p.partial_sums = static_cast<float*>(workspace);
  if (rows == 0) {
    const size_t size = dtype == JETOPS_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
    return cudaMemsetAsync(grad_bias, 0, (size_t)columns * size, stream);
  }
  return launch(p, grad_bias, dtype, form, probability, stream);
}

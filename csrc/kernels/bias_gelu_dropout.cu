// y = dropout(gelu(x + bias)) and its backward, for a matrix x and a bias a column.
//
// A thread stays in its columns, reads the bias once and takes rows at a distance; in the backward it
// adds up the bias gradient in registers. Blocks that run at a time work on neighbouring rows, since
// memory is faster then. The mask is not stored; dropout_math.h makes it again from the seed. Blocks
// are as wide as a row of x needs, up to their number of threads, and else higher, so that narrow
// matrices fill them too.
//
// The bias gradient is summed in fp32 in an order that depends on the sizes and the GPU's number of
// processors alone: the rows of a thread, then the rows of a block, then the blocks.
#include "device.h"
#include "dropout_math.h"
#include "elements.cuh"
#include "gelu_math.h"
#include "jetops_kernels.h"

namespace {

using jetops::Dropout;
using jetops::PackOf;

constexpr int kForwardThreads = 64;  // of a block, by measurement
constexpr int kBackwardThreads = 256;
constexpr int kForwardRows = 4;   // that a thread reads before it works on the first
constexpr int kBackwardRows = 4;
constexpr int kBackwardBlocks = 8;  // a processor; each leaves a row of partial sums
constexpr int kMaxSlabs = 65535;
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
  int64_t slabs;  // blocks that share the rows
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

// Random numbers for elements of several rows, a chunk for each.
template <class Type, int kRows>
__device__ __forceinline__ void draw(const int64_t* seed, const int64_t* element,
                                     jetops::Philox* random) {
  uint64_t counter[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) counter[r] = (uint64_t)element[r] / PackOf<Type>::kSize;
  jetops::philox<kRows>((uint64_t)seed[0], (uint64_t)seed[1], counter, random);
}

// Of element + k; a pack is a whole chunk.
template <class Type, int kItems>
__device__ __forceinline__ bool is_kept(const jetops::Philox& random, int64_t element, int k,
                                        uint32_t threshold) {
  constexpr int kChunk = PackOf<Type>::kSize;
  const int place = kItems == kChunk ? k : (int)((uint64_t)element % kChunk);
  return jetops::is_kept<kChunk>(random, place, threshold);
}

// Rows of a thread: kRows at a time, a block's height apart, then the same in the next round.
template <int kRows>
struct Rows {
  int64_t first, step;
  int height;

  __device__ __forceinline__ explicit Rows(const Problem& p)
      : first((int64_t)blockIdx.y * (kRows * blockDim.y) + threadIdx.y),
        step(p.slabs * (kRows * blockDim.y)),
        height(blockDim.y) {}
};

template <class Type, class Gelu, int kItems, bool kDrops>
__global__ void __launch_bounds__(kForwardThreads) forward_kernel(const Problem p) {
  typedef Access<Type, kItems> At;
  constexpr int kRows = kForwardRows;
  const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * kItems;
  if (column >= p.columns) return;
  const Rows<kRows> rows(p);
  float bias[kItems];
  At::to_floats(At::read(p.bias, column), bias);
  for (int64_t row = rows.first; row < p.rows; row += rows.step) {
    typename At::Raw raw[kRows];
    int64_t element[kRows];
    bool inside[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      inside[r] = row + r * rows.height < p.rows;
      element[r] = (row + r * rows.height) * p.columns + column;
      if (inside[r]) raw[r] = At::read(p.x, element[r]);
    }
    jetops::Philox random[kRows];
    if (kDrops) draw<Type, kRows>(p.seed, element, random);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      float value[kItems];
      At::to_floats(raw[r], value);
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const float sum = value[k] + bias[k];
        if (kDrops) {
          const float y = Gelu::value_over(sum, p.dropout.kept_share, p.dropout.scale);
          value[k] =
              is_kept<Type, kItems>(random[r], element[r], k, p.dropout.threshold) ? y : 0.0f;
        } else {
          value[k] = Gelu::value(sum);
        }
      }
      if (inside[r]) At::write(p.out, element[r], value);
    }
  }
}

// The sums of a block's rows, in the first row of threads.
template <int kItems>
__device__ __forceinline__ void sum_over_height(float* sum) {
  __shared__ float staged[kBackwardThreads * kItems];
  const int height = blockDim.y, width = blockDim.x;
  if (height == 1) return;
  const int thread = threadIdx.y * width + threadIdx.x;
#pragma unroll
  for (int k = 0; k < kItems; ++k) staged[k * kBackwardThreads + thread] = sum[k];
  __syncthreads();
  if (threadIdx.y != 0) return;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
#pragma unroll 1
    for (int r = 1; r < height; ++r) sum[k] += staged[k * kBackwardThreads + r * width + threadIdx.x];
  }
}

template <class Type, class Gelu, int kItems, bool kDrops>
__global__ void __launch_bounds__(kBackwardThreads) backward_kernel(const Problem p) {
  typedef Access<Type, kItems> At;
  constexpr int kRows = kBackwardRows;
  const int64_t column = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * kItems;
  const int64_t end = column < p.columns ? p.rows : 0;  // all threads meet in sum_over_height
  const Rows<kRows> rows(p);
  float bias[kItems], sum[kItems];
  if (column < p.columns) At::to_floats(At::read(p.bias, column), bias);
#pragma unroll
  for (int k = 0; k < kItems; ++k) sum[k] = 0.0f;

  for (int64_t row = rows.first; row < end; row += rows.step) {
    typename At::Raw raw[kRows], raw_gradient[kRows];
    int64_t element[kRows];
    bool inside[kRows];
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      inside[r] = row + r * rows.height < p.rows;
      element[r] = (row + r * rows.height) * p.columns + column;
      if (inside[r]) {
        raw[r] = At::read(p.x, element[r]);
        raw_gradient[r] = At::read(p.gradient, element[r]);
      }
    }
    jetops::Philox random[kRows];
    if (kDrops) draw<Type, kRows>(p.seed, element, random);
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (!inside[r]) break;
      float value[kItems], gradient[kItems];
      At::to_floats(raw[r], value);
      At::to_floats(raw_gradient[r], gradient);
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        value[k] = gradient[k] * Gelu::slope(value[k] + bias[k]);
        if (kDrops) {
          const bool kept = is_kept<Type, kItems>(random[r], element[r], k, p.dropout.threshold);
          value[k] = kept ? value[k] * p.dropout.scale : 0.0f;
        }
        sum[k] += value[k];
      }
      At::write(p.out, element[r], value);
    }
  }
  sum_over_height<kItems>(sum);
  if (column >= p.columns || threadIdx.y != 0) return;
#pragma unroll
  for (int k = 0; k < kItems; ++k) {
    p.partial_sums[blockIdx.y * p.columns + column + k] = sum[k];
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

// What the forward and the backward have in common; the dtype settles the dropout.
Problem problem_of(const void* x, const void* bias, void* out, int64_t rows, int64_t columns,
                   const int64_t* seed) {
  Problem p = {};
  p.x = x;
  p.bias = bias;
  p.out = out;
  p.rows = rows;
  p.columns = columns;
  p.seed = seed;
  return p;
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

struct Shape {
  int width, height;
  int64_t column_blocks, slabs;
};

// `items` is how many elements of a row one thread takes, `rows_ahead` how many rows at a time.
Shape shape_of(int64_t rows, int64_t columns, int items, int rows_ahead, int block) {
  const int64_t threads = divide_up(columns, items);
  Shape shape;
  shape.width = 1;
  while (shape.width < threads && shape.width < block) shape.width *= 2;
  shape.height = block / shape.width;
  shape.column_blocks = divide_up(threads, shape.width);
  shape.slabs = divide_up(rows, (int64_t)shape.height * rows_ahead);
  if (shape.slabs > kMaxSlabs) shape.slabs = kMaxSlabs;
  return shape;
}

// Each slab of the backward costs a row of partial sums, so there are just enough for the GPU.
Shape backward_shape_of(int64_t rows, int64_t columns, int items, int processors) {
  Shape shape = shape_of(rows, columns, items, kBackwardRows, kBackwardThreads);
  const int64_t wanted = divide_up((int64_t)processors * kBackwardBlocks, shape.column_blocks);
  if (shape.slabs > wanted) shape.slabs = wanted;
  return shape;
}

template <class Type>
bool takes_packs(const Problem& p) {
  return p.columns % PackOf<Type>::kSize == 0 && jetops::is_aligned(p.x) &&
         jetops::is_aligned(p.bias) && jetops::is_aligned(p.out) &&
         jetops::is_aligned(p.gradient);
}

template <class Type, class Gelu, int kItems, bool kDrops>
cudaError_t launch_kernels(Problem p, void* bias_gradient, cudaStream_t stream) {
  int processors = 0;
  cudaError_t error = jetops::processor_count(&processors);
  if (error != cudaSuccess) return error;
  const bool forward = p.gradient == nullptr;
  const Shape shape = forward ? shape_of(p.rows, p.columns, kItems, kForwardRows, kForwardThreads)
                              : backward_shape_of(p.rows, p.columns, kItems, processors);
  if (shape.column_blocks > INT32_MAX) return cudaErrorInvalidValue;
  p.slabs = shape.slabs;
  const dim3 grid((unsigned)shape.column_blocks, (unsigned)shape.slabs);
  const dim3 block(shape.width, shape.height);
  if (forward) {
    forward_kernel<Type, Gelu, kItems, kDrops><<<grid, block, 0, stream>>>(p);
    return cudaGetLastError();
  }
  backward_kernel<Type, Gelu, kItems, kDrops><<<grid, block, 0, stream>>>(p);
  error = cudaGetLastError();
  if (error != cudaSuccess) return error;
  const unsigned sum_blocks = (unsigned)divide_up(p.columns, kSumColumns);
  sum_kernel<Type><<<sum_blocks, dim3(kSumColumns, kSumGroups), 0, stream>>>(
      p.partial_sums, p.slabs, p.columns, static_cast<typename Type::type*>(bias_gradient));
  return cudaGetLastError();
}

template <class Type, class Gelu, int kItems>
cudaError_t launch_items(const Problem& p, void* bias_gradient, cudaStream_t stream) {
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
  const Problem p = problem_of(x, bias, y, rows, columns, seed);
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
    const Shape shape = backward_shape_of(rows, columns, items, processors);
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
  Problem p = problem_of(x, bias, grad_x, rows, columns, seed);
  p.gradient = grad_y;
  p.partial_sums = static_cast<float*>(workspace);
  if (rows == 0) {
    const size_t size = dtype == JETOPS_FLOAT32 ? sizeof(float) : sizeof(uint16_t);
    return cudaMemsetAsync(grad_bias, 0, (size_t)columns * size, stream);
  }
  return launch(p, grad_bias, dtype, form, probability, stream);
}

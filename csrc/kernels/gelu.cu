// GELU, elementwise: 16-byte packs where both pointers allow it, single elements for the rest.
#include "gelu.cuh"
#include "jetops_kernels.h"

namespace {

constexpr int kThreads = 256;
constexpr int kPackBytes = 16;
constexpr int64_t kMaxBlocks = 65535;  // more work than this is taken in strides

template <class T>
struct alignas(kPackBytes) Pack {
  static constexpr int kSize = kPackBytes / sizeof(T);
  T item[kSize];
};

template <class Type, class Gelu>
__global__ void __launch_bounds__(kThreads)
    gelu_kernel(const typename Type::type* x, typename Type::type* y, int64_t n, int64_t packs) {
  typedef Pack<typename Type::type> Elements;
  const Gelu gelu;
  const int64_t first = (int64_t)blockIdx.x * kThreads + threadIdx.x;
  const int64_t stride = (int64_t)gridDim.x * kThreads;

  for (int64_t i = first; i < packs; i += stride) {
    Elements elements = reinterpret_cast<const Elements*>(x)[i];
#pragma unroll
    for (int k = 0; k < Elements::kSize; ++k) {
      elements.item[k] = Type::store(gelu(Type::load(elements.item[k])));
    }
    reinterpret_cast<Elements*>(y)[i] = elements;
  }
  for (int64_t i = packs * Elements::kSize + first; i < n; i += stride) {
    y[i] = Type::store(gelu(Type::load(x[i])));
  }
}

bool is_aligned(const void* pointer) { return (uintptr_t)pointer % kPackBytes == 0; }

template <class Type, class Gelu>
cudaError_t launch(const void* x, void* y, int64_t n, cudaStream_t stream) {
  typedef typename Type::type T;
  const int64_t size = Pack<T>::kSize;
  const int64_t packs = is_aligned(x) && is_aligned(y) ? n / size : 0;
  const int64_t work = packs > 0 ? packs : n;
  const int64_t wanted = (work + kThreads - 1) / kThreads;
  const int blocks = (int)(wanted < kMaxBlocks ? wanted : kMaxBlocks);
  gelu_kernel<Type, Gelu><<<blocks, kThreads, 0, stream>>>(
      static_cast<const T*>(x), static_cast<T*>(y), n, packs);
  return cudaGetLastError();
}

template <class Type>
cudaError_t launch_form(const void* x, void* y, int64_t n, int form, cudaStream_t stream) {
  if (form == JETOPS_GELU_ERF) return launch<Type, typename Type::Erf>(x, y, n, stream);
  if (form == JETOPS_GELU_TANH) return launch<Type, typename Type::Tanh>(x, y, n, stream);
  return cudaErrorInvalidValue;
}

}  // namespace

extern "C" cudaError_t jetops_gelu_cuda(const void* x, void* y, int64_t n, int dtype, int form,
                                        cudaStream_t stream) {
  if (n < 0) return cudaErrorInvalidValue;
  if (n == 0) return cudaSuccess;
  switch (dtype) {
    case JETOPS_FLOAT32: return launch_form<jetops::Float32>(x, y, n, form, stream);
    case JETOPS_FLOAT16: return launch_form<jetops::Float16>(x, y, n, form, stream);
    case JETOPS_BFLOAT16: return launch_form<jetops::BFloat16>(x, y, n, form, stream);
  }
  return cudaErrorInvalidValue;
}

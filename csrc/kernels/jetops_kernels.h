/* The CUDA launchers. No torch here: the bindings, a TensorRT plugin or any C program may call them.
 *
 * Every pointer is device memory, dense and row-major. Work is queued on `stream` and nothing waits
 * for it. An empty input launches nothing. The return value is that of the launch; an error of the
 * kernel itself shows up at the next synchronisation, as usual in CUDA. */
#ifndef JETOPS_KERNELS_H
#define JETOPS_KERNELS_H

#include <cuda_runtime_api.h>
#include <stdint.h>

#include "jetops_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[i] = gelu(x[i]) for n elements of `dtype` (enum jetops_dtype); `form` is enum jetops_gelu_form.
 * x and y may be the same memory. */
cudaError_t jetops_gelu_cuda(const void* x, void* y, int64_t n, int dtype, int form,
                             cudaStream_t stream);

/* Bytes of scratch memory that jetops_fused_attn_nms_cuda needs for n boxes. */
int64_t jetops_fused_attn_nms_workspace_bytes(int64_t n);

/* boxes [n,4] as x1 y1 x2 y2, scores [n], attn_map [n,n] -> keep [n] of 0 and 1, weighted [n].
 * nms_math.h defines the arithmetic. `weighted` may be null when the caller has no use for it.
 * `workspace` must be aligned to 256 bytes; its contents need no preparation.
 * n above JETOPS_NMS_MAX_BOXES, or negative, gives cudaErrorInvalidValue. */
cudaError_t jetops_fused_attn_nms_cuda(const float* boxes, const float* scores,
                                       const float* attn_map, int64_t n, float iou_threshold,
                                       uint8_t* keep, float* weighted, void* workspace,
                                       cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

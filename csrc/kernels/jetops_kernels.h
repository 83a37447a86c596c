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

/* grad_x[i] = grad_y[i] * gelu'(x[i]). */
cudaError_t jetops_gelu_backward_cuda(const void* grad_y, const void* x, void* grad_x, int64_t n,
                                      int dtype, int form, cudaStream_t stream);

/* y = dropout(gelu(x + bias)) for x [rows, columns] and bias [columns]. `probability` is that of
 * being dropped, within [0, 1]. `seed` is two numbers in device memory, read when the kernel runs;
 * dropout_math.h says which elements they drop. The sum is not rounded before gelu. What is dropped
 * is 0, also where gelu is not finite. x and y may be the same memory. */
cudaError_t jetops_bias_gelu_dropout_cuda(const void* x, const void* bias, void* y, int64_t rows,
                                          int64_t columns, int dtype, int form, double probability,
                                          const int64_t* seed, cudaStream_t stream);

/* Bytes of scratch memory that the backward needs on the current device. */
cudaError_t jetops_bias_gelu_dropout_workspace_bytes(int64_t rows, int64_t columns, int64_t* bytes);

/* The gradients of x and of bias for the same seed and probability as forward; the latter is summed
 * in fp32, in the same order in every run on one kind of GPU. Two launches. */
cudaError_t jetops_bias_gelu_dropout_backward_cuda(const void* grad_y, const void* x,
                                                   const void* bias, void* grad_x, void* grad_bias,
                                                   int64_t rows, int64_t columns, int dtype,
                                                   int form, double probability,
                                                   const int64_t* seed, void* workspace,
                                                   cudaStream_t stream);

/* Bytes of scratch memory that jetops_fused_attn_nms_cuda needs for n boxes. */
int64_t jetops_fused_attn_nms_workspace_bytes(int64_t n);

/* boxes [n,4] as x1 y1 x2 y2, scores [n], attn_map [n,n] -> keep [n] of 0 and 1, weighted [n].
 * `dtype` is that of scores and attn_map; boxes and weighted are fp32. nms_math.h defines the arithmetic. `weighted` may be null when the caller has no use for it.
 * `workspace` must be aligned to 256 bytes; its contents need no preparation.
 * n above JETOPS_NMS_MAX_BOXES, or negative, gives cudaErrorInvalidValue. */
cudaError_t jetops_fused_attn_nms_cuda(const float* boxes, const void* scores,
                                       const void* attn_map, int64_t n, int dtype,
                                       float iou_threshold, uint8_t* keep, float* weighted,
                                       void* workspace, cudaStream_t stream);

#ifdef __cplusplus
}
#endif
#endif

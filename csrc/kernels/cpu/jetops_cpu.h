/* The CPU kernels: the same contracts as jetops_kernels.h, on host memory and without a stream. Those
 * with `first` and `end` write the elements from the one up to the other, and may be called for
 * several such parts at a time. */
#ifndef JETOPS_CPU_H
#define JETOPS_CPU_H

#include <stdint.h>

#include "jetops_types.h"

#ifdef __cplusplus
extern "C" {
#endif

void jetops_gelu_cpu(const void* x, void* y, int64_t first, int64_t end, int dtype, int form);

void jetops_gelu_backward_cpu(const void* grad_y, const void* x, void* grad_x, int64_t first,
                              int64_t end, int dtype, int form);

void jetops_bias_gelu_dropout_cpu(const void* x, const void* bias, void* y, int64_t first,
                                  int64_t end, int64_t columns, int dtype, int form,
                                  double probability, const int64_t* seed);

/* `sums` is scratch memory for `columns` numbers. */
void jetops_bias_gelu_dropout_backward_cpu(const void* grad_y, const void* x, const void* bias,
                                           void* grad_x, void* grad_bias, int64_t rows,
                                           int64_t columns, int dtype, int form,
                                           double probability, const int64_t* seed, float* sums);

/* `scratch` is memory for 2 * n numbers, of one caller. */
void jetops_weighted_scores_cpu(const void* scores, const void* attn_map, int64_t n, int dtype,
                                int64_t first, int64_t end, float* weighted, float* scratch);

/* Bytes of scratch memory for n boxes, aligned as malloc aligns. */
int64_t jetops_greedy_nms_cpu_workspace_bytes(int64_t n);

void jetops_greedy_nms_cpu(const float* boxes, const float* weighted, int64_t n,
                           float iou_threshold, uint8_t* keep, void* workspace);

#ifdef __cplusplus
}
#endif
#endif

/* The CPU kernels: the same contracts as jetops_kernels.h, on host memory and without a stream. */
#ifndef JETOPS_CPU_H
#define JETOPS_CPU_H

#include <stdint.h>

#include "jetops_types.h"

#ifdef __cplusplus
extern "C" {
#endif

void jetops_gelu_cpu(const void* x, void* y, int64_t n, int dtype, int form);

/* Bytes of scratch memory for n boxes, aligned as malloc aligns. */
int64_t jetops_fused_attn_nms_cpu_workspace_bytes(int64_t n);

void jetops_fused_attn_nms_cpu(const float* boxes, const float* scores, const float* attn_map,
                               int64_t n, float iou_threshold, uint8_t* keep, float* weighted,
                               void* workspace);

#ifdef __cplusplus
}
#endif
#endif

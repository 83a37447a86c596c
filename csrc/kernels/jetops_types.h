/* Constants that the CPU and the CUDA kernels share. Plain C. */
#ifndef JETOPS_TYPES_H
#define JETOPS_TYPES_H

#include <stdint.h>

enum jetops_dtype {
  JETOPS_FLOAT32 = 0,
  JETOPS_FLOAT16 = 1,
  JETOPS_BFLOAT16 = 2
};

enum jetops_gelu_form {
  JETOPS_GELU_ERF = 0,
  JETOPS_GELU_TANH = 1
};

/* attn_map alone takes 1 GiB at this size, and the pairwise bit mask 32 MiB. */
#define JETOPS_NMS_MAX_BOXES 16384

#endif

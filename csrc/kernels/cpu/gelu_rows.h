// GELU and its slope for a short row of fp32 values; gelu_math.h defines the arithmetic.
#pragma once

#include "cpu/widest.h"
#include "gelu_math.h"
#include "jetops_types.h"

namespace jetops {

constexpr int64_t kBuffer = 256;  // values worked on at a time

// fp32 precision also for values that will be stored in 16 bits: they share one loop then.
JETOPS_WIDEST static inline void gelu_row(float* values, int64_t count, int form) {
  if (form == JETOPS_GELU_TANH) {
    for (int64_t i = 0; i < count; ++i) values[i] = GeluTanh::value(values[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) values[i] = GeluErf<Fine>::value(values[i]);
  }
}

JETOPS_WIDEST static inline void gelu_slope_row(float* values, int64_t count, int form) {
  if (form == JETOPS_GELU_TANH) {
    for (int64_t i = 0; i < count; ++i) values[i] = GeluTanh::slope(values[i]);
  } else {
    for (int64_t i = 0; i < count; ++i) values[i] = GeluErf<Fine>::slope(values[i]);
  }
}

}  // namespace jetops

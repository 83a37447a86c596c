// GELU and its backward on the CPU, without torch.
#include <algorithm>

#include "cpu/elements.h"
#include "cpu/gelu_rows.h"
#include "cpu/jetops_cpu.h"

extern "C" void jetops_gelu_cpu(const void* x, void* y, int64_t first, int64_t end, int dtype,
                                int form) {
  float values[jetops::kBuffer];
  for (int64_t start = first; start < end; start += jetops::kBuffer) {
    const int64_t count = std::min(jetops::kBuffer, end - start);
    jetops::load_all(jetops::element(x, start, dtype), count, dtype, values);
    jetops::gelu_row(values, count, form);
    jetops::store_all(values, count, dtype, jetops::element(y, start, dtype));
  }
}

extern "C" void jetops_gelu_backward_cpu(const void* grad_y, const void* x, void* grad_x,
                                         int64_t first, int64_t end, int dtype, int form) {
  float values[jetops::kBuffer], gradient[jetops::kBuffer];
  for (int64_t start = first; start < end; start += jetops::kBuffer) {
    const int64_t count = std::min(jetops::kBuffer, end - start);
    jetops::load_all(jetops::element(x, start, dtype), count, dtype, values);
    jetops::load_all(jetops::element(grad_y, start, dtype), count, dtype, gradient);
    jetops::gelu_slope_row(values, count, form);
    for (int64_t i = 0; i < count; ++i) values[i] *= gradient[i];
    jetops::store_all(values, count, dtype, jetops::element(grad_x, start, dtype));
  }
}

// bias_gelu_dropout and its backward on the CPU: the same decisions as on the GPU, bit for bit.
#include <algorithm>

#include "cpu/elements.h"
#include "cpu/gelu_rows.h"
#include "cpu/jetops_cpu.h"
#include "dropout_math.h"

namespace {

using jetops::Dropout;

// values[i] becomes 0 where element first + i is dropped, and is scaled where it is kept.
template <int kSize>
void drop_row(const Dropout& dropout, const int64_t* seed, int64_t first, int64_t count,
              float* values) {
  const uint64_t key = static_cast<uint64_t>(seed[0]), stream = static_cast<uint64_t>(seed[1]);
  int64_t i = 0;
  while (i < count) {
    const int64_t chunk = (first + i) / kSize;
    const uint64_t counter = static_cast<uint64_t>(chunk);
    jetops::Philox random;
    jetops::philox<1>(key, stream, &counter, &random);
    const int64_t stop = std::min(count, (chunk + 1) * kSize - first);
    for (; i < stop; ++i) {
      const int place = static_cast<int>(first + i - chunk * kSize);
      const bool kept = jetops::is_kept<kSize>(random, place, dropout.threshold);
      values[i] = kept ? values[i] * dropout.scale : 0.0f;
    }
  }
}

void drop(const Dropout& dropout, const int64_t* seed, int dtype, int64_t first, int64_t count,
          float* values) {
  if (dropout.scale == 0.0f) {
    std::fill(values, values + count, 0.0f);
  } else if (dropout.threshold != 0 && dtype == JETOPS_FLOAT32) {
    drop_row<4>(dropout, seed, first, count, values);
  } else if (dropout.threshold != 0) {
    drop_row<8>(dropout, seed, first, count, values);
  }
}

Dropout dropout_for(int dtype, double probability) {
  return jetops::make_dropout(probability, dtype == JETOPS_FLOAT32 ? 32 : 16);
}

// x + bias, of elements of one row.
void load_sum(const void* x, const void* bias, int64_t first, int64_t column, int64_t count,
              int dtype, float* sum) {
  float addend[jetops::kBuffer];
  jetops::load_all(jetops::element(x, first, dtype), count, dtype, sum);
  jetops::load_all(jetops::element(bias, column, dtype), count, dtype, addend);
  for (int64_t i = 0; i < count; ++i) sum[i] += addend[i];
}

}  // namespace

extern "C" void jetops_bias_gelu_dropout_cpu(const void* x, const void* bias, void* y,
                                             int64_t first, int64_t end, int64_t columns, int dtype,
                                             int form, double probability, const int64_t* seed) {
  const Dropout dropout = dropout_for(dtype, probability);
  float values[jetops::kBuffer];
  while (first < end) {
    const int64_t column = first % columns;
    const int64_t count = std::min(jetops::kBuffer, std::min(columns - column, end - first));
    load_sum(x, bias, first, column, count, dtype, values);
    jetops::gelu_row(values, count, form);
    drop(dropout, seed, dtype, first, count, values);
    jetops::store_all(values, count, dtype, jetops::element(y, first, dtype));
    first += count;
  }
}

extern "C" void jetops_bias_gelu_dropout_backward_cpu(
    const void* grad_y, const void* x, const void* bias, void* grad_x, void* grad_bias,
    int64_t rows, int64_t columns, int dtype, int form, double probability, const int64_t* seed,
    float* sums) {
  const Dropout dropout = dropout_for(dtype, probability);
  float values[jetops::kBuffer], gradient[jetops::kBuffer];
  std::fill(sums, sums + columns, 0.0f);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; column += jetops::kBuffer) {
      const int64_t count = std::min(jetops::kBuffer, columns - column);
      const int64_t first = row * columns + column;
      load_sum(x, bias, first, column, count, dtype, values);
      jetops::load_all(jetops::element(grad_y, first, dtype), count, dtype, gradient);
      jetops::gelu_slope_row(values, count, form);
      for (int64_t i = 0; i < count; ++i) values[i] *= gradient[i];
      drop(dropout, seed, dtype, first, count, values);
      for (int64_t i = 0; i < count; ++i) sums[column + i] += values[i];
      jetops::store_all(values, count, dtype, jetops::element(grad_x, first, dtype));
    }
  }
  jetops::store_all(sums, columns, dtype, grad_bias);
}

// Which elements dropout drops, once, for host and device.
//
// Elements are counted in row-major order and taken in chunks of 16 bytes: 8 elements of 16 bits, or
// 4 of 32. One Philox call decides a chunk; its counter is the number of the chunk, its key the first
// number of the seed and the other half of its counter the second. An element is dropped when its
// share of the 128 random bits, 16 or 32 of them, is below a threshold.
#pragma once

#include <math.h>

#include "hostdevice.h"
#include "philox.h"

namespace jetops {

// The threshold is p in units of 2^-bits, so that p is met to within half such a unit; the scale is
// taken from the threshold and not from p, and the mean of the output is therefore exact.
struct Dropout {
  uint32_t threshold;  // in the upper bits; 0: nothing is dropped and the seed is not read
  float scale;         // of what is kept; 0: everything is dropped
  float kept_share;    // 1 / scale
};

inline Dropout make_dropout(double p, int bits) {
  Dropout dropout = {0u, 1.0f, 1.0f};
  if (p >= 1.0) {
    dropout.scale = dropout.kept_share = 0.0f;
    return dropout;
  }
  const double units = ldexp(1.0, bits);
  double threshold = floor(p * units + 0.5);
  if (threshold > units - 1.0) threshold = units - 1.0;
  dropout.threshold = (uint32_t)threshold << (32 - bits);
  dropout.scale = (float)(units / (units - threshold));
  dropout.kept_share = (float)((units - threshold) / units);
  return dropout;
}

JETOPS_HD uint32_t word_of(const Philox& random, int index) {
#if defined(__CUDA_ARCH__)
  // Registers have no addresses: with an index that is known at run time only, an array goes to memory.
  const uint32_t low = index & 1 ? random.word[1] : random.word[0];
  const uint32_t high = index & 1 ? random.word[3] : random.word[2];
  return index & 2 ? high : low;
#else
  return random.word[index];
#endif
}

// The random bits of an element at the top of a word, to be compared with `threshold`, which is
// kept there too. An upper half of a word may bring the lower along: it cannot change the answer.
template <int kSize>  // elements in a chunk: 4 or 8
JETOPS_HD bool is_kept(const Philox& random, int element, uint32_t threshold) {
  const uint32_t word = word_of(random, kSize == 4 ? element : element / 2);
  return (kSize == 8 && element % 2 == 0 ? word << 16 : word) >= threshold;
}

}  // namespace jetops

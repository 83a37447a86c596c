// Philox4x32-7, a counter-based random number generator: Salmon, Moraes, Dror and Shaw, "Parallel
// Random Numbers: As Easy as 1, 2, 3" (SC 2011), who found seven rounds to pass all of BigCrush; ten,
// the usual number, are a margin of safety that a dropout mask need not pay for. The same numbers on
// host and device, for any counter at any time, so nothing has to be stored for the backward pass.
#pragma once

#include "hostdevice.h"

namespace jetops {

struct Philox {
  uint32_t word[4];
};

JETOPS_HD void philox_round(uint32_t word[4], uint32_t key0, uint32_t key1) {
  const uint64_t product0 = (uint64_t)0xD2511F53u * word[0];
  const uint64_t product1 = (uint64_t)0xCD9E8D57u * word[2];
  const uint32_t next0 = (uint32_t)(product1 >> 32) ^ word[1] ^ key0;
  const uint32_t next2 = (uint32_t)(product0 >> 32) ^ word[3] ^ key1;
  word[0] = next0;
  word[1] = (uint32_t)product1;
  word[2] = next2;
  word[3] = (uint32_t)product0;
}

constexpr int kPhiloxRounds = 7;

// Random numbers for `kCount` counters at a time, which share the work on the key. The low half of
// a 128-bit counter is counter[i], the high half `stream`.
template <int kCount>
JETOPS_HD void philox(uint64_t key, uint64_t stream, const uint64_t* counter, Philox* random) {
  for (int i = 0; i < kCount; ++i) {
    random[i].word[0] = (uint32_t)counter[i];
    random[i].word[1] = (uint32_t)(counter[i] >> 32);
    random[i].word[2] = (uint32_t)stream;
    random[i].word[3] = (uint32_t)(stream >> 32);
  }
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  for (int round = 0; round < kPhiloxRounds; ++round) {
    for (int i = 0; i < kCount; ++i) philox_round(random[i].word, key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
}

}  // namespace jetops

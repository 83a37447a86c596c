// Philox4x32-10, a counter-based random number generator: Salmon, Moraes, Dror and Shaw, "Parallel
// Random Numbers: As Easy as 1, 2, 3" (SC 2011). The same numbers on host and device, for any counter
// at any time, so nothing has to be stored for the backward pass.
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

// The low half of the 128-bit counter is `counter`, the high half `stream`.
JETOPS_HD Philox philox(uint64_t key, uint64_t stream, uint64_t counter) {
  Philox state = {{(uint32_t)counter, (uint32_t)(counter >> 32), (uint32_t)stream,
                   (uint32_t)(stream >> 32)}};
  uint32_t key0 = (uint32_t)key, key1 = (uint32_t)(key >> 32);
  for (int round = 0; round < 10; ++round) {
    philox_round(state.word, key0, key1);
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return state;
}

}  // namespace jetops

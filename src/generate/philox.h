// Philox4x32-10, the counter-based generator of Random123 (Salmon et al., SC 2011): the numbers of
// a step are a pure function of seed and step, so CPU and GPU draw the same without shared state.
#pragma once

#include <array>
#include <cstdint>

namespace apr {

// One block of four words. counter: [4], key: [2].
constexpr std::array<uint32_t, 4> philox4x32_10(std::array<uint32_t, 4> counter,
                                                std::array<uint32_t, 2> key) {
  constexpr int kRounds = 10;
  for (int round = 0; round < kRounds; ++round) {
    const uint64_t product0 = uint64_t{0xD2511F53} * counter[0];
    const uint64_t product1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<uint32_t>(product1),
               static_cast<uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<uint32_t>(product0)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

// The 64 random bits of a sampling step: words 0 (high) and 1 (low) of the block whose counter is
// {step low, step high, 0, 0} and whose key is {seed low, seed high}.
constexpr uint64_t philox_u64(uint64_t seed, uint64_t step) {
  const auto block =
      philox4x32_10({static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32), 0, 0},
                    {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return uint64_t{block[0]} << 32 | block[1];
}

// A draw from [0, total): the high 64 bits of bits * total.
constexpr uint64_t scale_to(uint64_t bits, uint64_t total) {
  const uint64_t low_low = (bits & 0xFFFFFFFF) * (total & 0xFFFFFFFF);
  const uint64_t high_low = (bits >> 32) * (total & 0xFFFFFFFF);
  const uint64_t low_high = (bits & 0xFFFFFFFF) * (total >> 32);
  const uint64_t middle = (low_low >> 32) + (high_low & 0xFFFFFFFF) + low_high;
  return (bits >> 32) * (total >> 32) + (high_low >> 32) + (middle >> 32);
}

}  // namespace apr

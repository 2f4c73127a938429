#include "base/sha256.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace apr {
namespace {

constexpr size_t kBlockBytes = 64;

constexpr Sha256State kStart{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};

uint32_t big_endian(const std::byte* data) {
  uint32_t word = 0;
  for (size_t byte = 0; byte < sizeof word; ++byte) {
    word = word << 8 | std::to_integer<uint32_t>(data[byte]);
  }
  return word;
}

}  // namespace

void sha256_blocks_plain(Sha256State& state, const std::byte* data, size_t n_blocks) {
  for (size_t block = 0; block < n_blocks; ++block, data += kBlockBytes) {
    std::array<uint32_t, 64> w;  // the message schedule
    for (size_t t = 0; t < w.size(); ++t) {
      if (t < 16) {
        w[t] = big_endian(data + 4 * t);
        continue;
      }
      const uint32_t s0 = std::rotr(w[t - 15], 7) ^ std::rotr(w[t - 15], 18) ^ w[t - 15] >> 3;
      const uint32_t s1 = std::rotr(w[t - 2], 17) ^ std::rotr(w[t - 2], 19) ^ w[t - 2] >> 10;
      w[t] = w[t - 16] + s0 + w[t - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state;
    for (size_t t = 0; t < w.size(); ++t) {
      const uint32_t sum1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
      const uint32_t t1 = h + sum1 + ((e & f) ^ (~e & g)) + kSha256Round[t] + w[t];
      const uint32_t sum0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
      const uint32_t t2 = sum0 + ((a & b) ^ (a & c) ^ (b & c));
      h = g, g = f, f = e, e = d + t1;
      d = c, c = b, b = a, a = t1 + t2;
    }
    const Sha256State worked{a, b, c, d, e, f, g, h};
    for (size_t word = 0; word < state.size(); ++word) {
      state[word] += worked[word];
    }
  }
}

Sha256::Sha256(Sha256Blocks blocks) : blocks_(blocks), state_(kStart) {
  if (blocks_ == nullptr) {
    blocks_ = sha256_blocks_native() != nullptr ? sha256_blocks_native() : sha256_blocks_plain;
  }
}

void Sha256::add(std::span<const std::byte> bytes) {
  total_bytes_ += bytes.size();
  if (tail_bytes_ > 0) {
    const auto part = bytes.first(std::min(bytes.size(), kBlockBytes - tail_bytes_));
    std::copy(part.begin(), part.end(), tail_.begin() + static_cast<ptrdiff_t>(tail_bytes_));
    tail_bytes_ += part.size();
    bytes = bytes.subspan(part.size());
    if (tail_bytes_ < kBlockBytes) {
      return;
    }
    blocks_(state_, tail_.data(), 1);
  }
  blocks_(state_, bytes.data(), bytes.size() / kBlockBytes);
  const auto rest = bytes.last(bytes.size() % kBlockBytes);
  std::copy(rest.begin(), rest.end(), tail_.begin());
  tail_bytes_ = rest.size();
}

std::string Sha256::hex() {
  // One bit, zeros, and the length in bits as the last eight bytes of a block.
  const uint64_t n_bits = total_bytes_ * 8;
  std::array<std::byte, kBlockBytes + sizeof n_bits> padding{};
  padding[0] = std::byte{0x80};
  const size_t n_zeros = (2 * kBlockBytes - tail_bytes_ - 1 - sizeof n_bits) % kBlockBytes;
  const size_t n_padding = 1 + n_zeros + sizeof n_bits;
  for (size_t byte = 0; byte < sizeof n_bits; ++byte) {
    padding[n_padding - 1 - byte] = static_cast<std::byte>(n_bits >> 8 * byte & 0xff);
  }
  add(std::span(padding).first(n_padding));
  std::string text;
  for (const uint32_t word : state_) {
    text += fmt::format("{:08x}", word);
  }
  return text;
}

}  // namespace apr

// Names and checks cache entries by their content: FNV-1a with 128 bits. No defence against
// forgery.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace apr::cuda {

class ContentHash {
 public:
  // Adds a field: its length first, so that fields cannot run into each other.
  void add(std::string_view field) {
    const uint64_t size = field.size();
    for (int byte = 0; byte < 8; ++byte) {
      step(static_cast<uint8_t>(size >> (8 * byte)));
    }
    for (const char byte : field) {
      step(static_cast<uint8_t>(byte));
    }
  }

  // 32 hexadecimal digits.
  std::string hex() const {
    std::string digits;
    for (int shift = 124; shift >= 0; shift -= 4) {
      digits += "0123456789abcdef"[static_cast<size_t>(state_ >> shift) & 15];
    }
    return digits;
  }

 private:
  __extension__ using Word = unsigned __int128;
  static constexpr Word wide(uint64_t high, uint64_t low) {
    return (static_cast<Word>(high) << 64) | low;
  }

  void step(uint8_t byte) { state_ = (state_ ^ byte) * wide(0x0000000001000000, 0x13b); }

  Word state_ = wide(0x6c62272e07bb0142, 0x62b821756295c58d);
};

}  // namespace apr::cuda

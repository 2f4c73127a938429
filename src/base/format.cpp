#include "base/format.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>

namespace apr {

std::string format_bytes(uint64_t n_bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(n_bytes);
  size_t unit_idx = 0;
  while (value >= 1000.0 && unit_idx + 1 < kUnits.size()) {
    value /= 1000.0;
    ++unit_idx;
  }
  return unit_idx == 0 ? fmt::format("{} B", n_bytes)
                       : fmt::format("{:.1f} {}", value, kUnits[unit_idx]);
}

std::string format_shape(std::span<const int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace apr

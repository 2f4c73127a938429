// Numbers for people.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace apr {

// "491.4 MB": decimal units, one digit after the point, plain below 1000 bytes ("12 B").
std::string format_bytes(uint64_t n_bytes);

// "[151936, 896]": a shape, slowest axis first.
std::string format_shape(std::span<const int64_t> shape);

}  // namespace apr

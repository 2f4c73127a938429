// A matrix to decode and what must come out: shared by the tests of dequantisation on the host and
// on the GPU.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "apr/quant.h"
#include "support/quant_golden.h"

namespace apr::test {

// Scratch before a launch, and the guards around it after one: a NaN that no decoder makes, for
// those have zeros below.
inline constexpr uint32_t kUnwritten = 0x7fc0dead;
inline constexpr int64_t kGuardElems = 64;  // before and after the output

struct DequantProblem {
  const QuantType* type = nullptr;
  int64_t n_rows = 0;
  int64_t n_cols = 0;           // of the weight: whole blocks
  int64_t n_stored = 0;         // columns of the output
  std::vector<std::byte> raw;   // [n_rows, n_cols] in type
  std::vector<float> expected;  // [n_rows, n_stored] f32, by the scalar reference

  std::string name() const {
    return fmt::format("{} {}x{}, {} stored", type->name, n_rows, n_cols, n_stored);
  }
};

// `work(first, last)` over parts of [0, n) on every core.
template <class Work>
void in_parallel(int64_t n, const Work& work) {
  const int64_t n_threads = std::min<int64_t>(n, std::max(1U, std::thread::hardware_concurrency()));
  std::vector<std::jthread> threads;
  for (int64_t thread = 0; thread < n_threads; ++thread) {
    threads.emplace_back(
        [&, thread] { work(n * thread / n_threads, n * (thread + 1) / n_threads); });
  }
}

// Fills in `expected` of a problem whose other parts are there.
inline void decode_expected(DequantProblem& problem) {
  const int64_t row_bytes = problem.type->row_bytes(problem.n_cols);
  problem.expected.resize(static_cast<size_t>(problem.n_rows * problem.n_stored));
  in_parallel(problem.n_rows, [&](int64_t first, int64_t last) {
    std::vector<float> row(static_cast<size_t>(problem.n_cols));
    for (int64_t row_idx = first; row_idx < last; ++row_idx) {
      problem.type->dequantize(problem.raw.data() + row_idx * row_bytes,
                               problem.n_cols / problem.type->block_elems, row.data());
      std::copy_n(row.begin(), problem.n_stored,
                  problem.expected.begin() + row_idx * problem.n_stored);
    }
  });
}

// The golden blocks of the type first, where it has some, then random bytes, all of which are valid
// blocks. Half-precision scales that are no number come up, as they would in a hostile file.
inline DequantProblem random_problem(const QuantType& type, int64_t n_rows, int64_t n_cols,
                                     int64_t n_stored, uint64_t seed = 7) {
  DequantProblem problem{&type, n_rows, n_cols, n_stored, {}, {}};
  problem.raw.resize(static_cast<size_t>(n_rows * type.row_bytes(n_cols)));
  for (size_t at = 0; at < problem.raw.size(); at += sizeof(uint64_t)) {
    seed += 0x9e3779b97f4a7c15U;  // splitmix64
    uint64_t word = (seed ^ seed >> 30) * 0xbf58476d1ce4e5b9U;
    word = (word ^ word >> 27) * 0x94d049bb133111ebU;
    word ^= word >> 31;
    std::memcpy(problem.raw.data() + at, &word, std::min(sizeof word, problem.raw.size() - at));
  }
  const std::vector<uint8_t> golden = load_golden(type.name).blocks;
  std::transform(
      golden.begin(),
      golden.begin() + static_cast<std::ptrdiff_t>(std::min(golden.size(), problem.raw.size())),
      problem.raw.begin(), [](uint8_t byte) { return std::byte{byte}; });
  decode_expected(problem);
  return problem;
}

// The output as it is before a launch: guards, [n_rows, n_stored], guards.
template <class Elem>
std::vector<Elem> unwritten_output(const DequantProblem& problem) {
  return std::vector<Elem>(problem.expected.size() + 2 * static_cast<size_t>(kGuardElems),
                           static_cast<Elem>(kUnwritten));
}

// Nothing where `output` (f32 bits) is right: guards as before, every value written and bit for bit
// the expected one. Of two NaNs the bits may differ: a product's are the machine's choice.
inline std::string difference(const DequantProblem& problem, std::span<const uint32_t> output) {
  const auto n_elems = static_cast<int64_t>(problem.expected.size());
  for (int64_t elem = 0; elem < kGuardElems; ++elem) {
    for (const int64_t at : {elem, kGuardElems + n_elems + elem}) {
      if (output[static_cast<size_t>(at)] != kUnwritten) {
        return fmt::format("{}: guard element {} was written", problem.name(), at);
      }
    }
  }
  std::vector<std::string> found(static_cast<size_t>(problem.n_rows));
  in_parallel(problem.n_rows, [&](int64_t first, int64_t last) {
    for (int64_t row = first; row < last; ++row) {
      const float* expected = problem.expected.data() + row * problem.n_stored;
      const uint32_t* bits = output.data() + kGuardElems + row * problem.n_stored;
      for (int64_t col = 0; col < problem.n_stored; ++col) {
        const float value = std::bit_cast<float>(bits[col]);
        const bool both_nan = value != value && expected[col] != expected[col];
        if (bits[col] == kUnwritten || (bits[col] != bits_of(expected[col]) && !both_nan)) {
          found[static_cast<size_t>(row)] = fmt::format(
              "{}: row {} column {}: {} ({:#010x}), expected {} ({:#010x})", problem.name(), row,
              col, value, bits[col], expected[col], bits_of(expected[col]));
          break;
        }
      }
    }
  });
  const auto first = std::find_if(found.begin(), found.end(),
                                  [](const std::string& message) { return !message.empty(); });
  return first == found.end() ? std::string() : *first;
}

}  // namespace apr::test

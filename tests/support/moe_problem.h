// Experts, tokens and a choice, and what must come out of the expert op within which bounds: shared
// by the tests of its kernels on the host and on the GPU.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "apr/quant.h"
#include "support/quant_golden.h"
#include "support/quant_offsets.h"

namespace apr::test {

// The matrices of all experts: blocks of the golden file with moderate values, or small floats.
struct MoeStack {
  const QuantType* type = nullptr;
  int64_t n_experts = 0, n_rows = 0, n_cols = 0;
  std::vector<std::byte> raw;          // [n_experts, n_rows, row_bytes]
  std::vector<float> values, offsets;  // [n_experts, n_rows, n_cols]
  double largest = 0.0;                // |value|

  MoeStack(const QuantType& of, int64_t experts, int64_t rows, int64_t cols, std::mt19937& random)
      : type(&of), n_experts(experts), n_rows(rows), n_cols(cols) {
    const auto block_bytes = static_cast<size_t>(of.block_bytes);
    const auto block_elems = static_cast<size_t>(of.block_elems);
    const QuantGolden golden = load_golden(of.name);
    std::vector<size_t> usable;
    for (size_t block = 0; (block + 1) * block_elems <= golden.values.size(); ++block) {
      const auto first = golden.values.begin() + static_cast<ptrdiff_t>(block * block_elems);
      if (std::all_of(first, first + of.block_elems,
                      [](float value) { return std::isfinite(value) && std::abs(value) < 1e3F; })) {
        usable.push_back(block);
      }
    }
    const size_t n_blocks = static_cast<size_t>(experts * rows * cols) / block_elems;
    for (size_t block = 0; block < n_blocks; ++block) {
      if (usable.empty()) {  // little-endian floats: the top byte makes them about 1
        for (size_t byte = 0; byte < block_bytes; ++byte) {
          raw.push_back(byte + 1 == block_bytes ? static_cast<std::byte>(0x38 + random() % 4)
                                                : static_cast<std::byte>(random() % 256));
        }
        continue;
      }
      const auto* from = reinterpret_cast<const std::byte*>(golden.blocks.data()) +
                         usable[random() % usable.size()] * block_bytes;
      raw.insert(raw.end(), from, from + block_bytes);
    }
    values.resize(n_blocks * block_elems);
    offsets.resize(values.size());
    of.dequantize(raw.data(), static_cast<int64_t>(n_blocks), values.data());
    for (size_t block = 0; block < n_blocks; ++block) {
      block_offsets(of, raw.data() + block * block_bytes, offsets.data() + block * block_elems);
    }
    for (const float value : values) {
      largest = std::max(largest, std::abs(static_cast<double>(value)));
    }
  }
};

// How a product rounds its operands.
enum class MoeArithmetic { kF32, kStaged, kHalf };

struct Bounded {
  double value = 0.0, bound = 0.0;
};

// How far a staged value may be off where the largest of its 32 is `largest`: half a step, and the
// roundings of the factors.
inline double staged_error(double largest) {
  return largest / 65024.0 + 4 * 0x1p-24 * largest;
}

// silu(gate) * up: silu's slope is at most 1.1; silu and the product round eight times.
inline Bounded swiglu_of(const Bounded& gate, const Bounded& up) {
  const double silu = gate.value / (1.0 + std::exp(-gate.value));
  return {silu * up.value, 1.1 * gate.bound * (std::abs(up.value) + up.bound) +
                               std::abs(silu) * up.bound +
                               16 * 0x1p-24 * std::abs(silu * up.value)};
}

// A row of an expert times x, and how far a kernel may be off, with u = 2^-24.
//   kF32     every lane adds n_cols / 32 products, then five times across; weights round twice.
//   kStaged  x is rounded to half a step of (the largest of its 32) / 32512; scale, offset, sums
//   and
//            products of a group round six times, groups and warps are added at most n_cols / 128 +
//            21 times; relative to the absolute parts, of which the offset is one.
//   kHalf    w and x are rounded to 11 bits, those far below the largest of the stack, or of the
//            row, to 2^-38 of it; tensor cores add with at least 23 bits.
inline Bounded moe_product(const MoeStack& stack, int64_t expert, int64_t row,
                           const std::vector<Bounded>& x, MoeArithmetic how) {
  const size_t first = static_cast<size_t>((expert * stack.n_rows + row) * stack.n_cols);
  double row_largest = 0.0;
  for (const Bounded& elem : x) {
    row_largest = std::max(row_largest, std::abs(elem.value));
  }
  Bounded sum;
  double magnitude = 0.0, group_largest = 0.0;
  for (size_t col = 0; col < x.size(); ++col) {
    if (col % 32 == 0) {
      group_largest = 0.0;
      for (size_t near = col; near < std::min(col + 32, x.size()); ++near) {
        group_largest = std::max(group_largest, std::abs(x[near].value) + x[near].bound);
      }
    }
    const double w = std::abs(static_cast<double>(stack.values[first + col]));
    const double size = std::abs(x[col].value) + x[col].bound;
    double x_error = x[col].bound, w_error = 0.0, offset = 0.0;
    if (how == MoeArithmetic::kStaged) {
      x_error += staged_error(group_largest);
      offset = 2.0 * static_cast<double>(stack.offsets[first + col]);
    } else if (how == MoeArithmetic::kHalf) {
      x_error += size * 0x1p-11 + row_largest * 0x1p-37;
      w_error = w * 0x1p-11 + stack.largest * 0x1p-37;
    }
    sum.value += static_cast<double>(stack.values[first + col]) * x[col].value;
    sum.bound += w * x_error + w_error * (size + x_error);
    magnitude += (w + w_error + offset) * (size + x_error);
  }
  const double n = static_cast<double>(stack.n_cols);
  const double roundings = how == MoeArithmetic::kF32      ? n / 32.0 + 12.0
                           : how == MoeArithmetic::kStaged ? n / 128.0 + 27.0
                                                           : n / 2.0 + 64.0;
  sum.bound += roundings * 0x1p-24 * 1.01 * magnitude;
  return sum;
}

struct MoeProblem {
  int64_t n_tokens, n_experts, n_used, model_dim, ffn_dim;
  std::mt19937 random;
  MoeStack gate, up, down;
  std::vector<float> x, init, residual;  // [n_tokens, model_dim]
  std::vector<int32_t> ids;              // [n_tokens, n_used]
  std::vector<float> weights;            // [n_tokens, n_used]

  struct Shape {
    int64_t n_tokens, n_experts, n_used, model_dim, ffn_dim;
  };

  // Expert 0 is chosen by most tokens, every third one by none.
  MoeProblem(const QuantType& gate_type, const QuantType& up_type, const QuantType& down_type,
             const Shape& shape)
      : n_tokens(shape.n_tokens),
        n_experts(shape.n_experts),
        n_used(shape.n_used),
        model_dim(shape.model_dim),
        ffn_dim(shape.ffn_dim),
        random(11),
        gate(gate_type, n_experts, ffn_dim, model_dim, random),
        up(up_type, n_experts, ffn_dim, model_dim, random),
        down(down_type, n_experts, model_dim, ffn_dim, random) {
    std::normal_distribution<float> normal(0.0F, 1.0F);
    const float scale = static_cast<float>(1.0 / (gate.largest * std::sqrt(model_dim) + 1e-30));
    for (int64_t elem = 0; elem < n_tokens * model_dim; ++elem) {
      x.push_back(normal(random) * scale * (elem % 97 == 5 ? 30.0F : 1.0F));  // outliers
      init.push_back(normal(random));
      residual.push_back(normal(random));
    }
    std::vector<int32_t> usable;
    for (int32_t expert = 0; expert < n_experts; ++expert) {
      if (expert % 3 != 2 || n_experts - n_experts / 3 < n_used) {
        usable.push_back(expert);
      }
    }
    for (int64_t token = 0; token < n_tokens; ++token) {
      std::shuffle(usable.begin(), usable.end(), random);
      const auto hot = std::find(usable.begin(), usable.end(), 0);
      if (random() % 5 != 0) {
        std::iter_swap(
            hot, usable.begin() + static_cast<ptrdiff_t>(random() % static_cast<uint64_t>(n_used)));
      }
      float total = 0.0F;
      for (int64_t slot = 0; slot < n_used; ++slot) {
        ids.push_back(usable[static_cast<size_t>(slot)]);
        weights.push_back(0.1F + static_cast<float>(random() % 1000) / 1000.0F);
        total += weights.back();
      }
      std::for_each(weights.end() - n_used, weights.end(), [&](float& weight) { weight /= total; });
    }
  }

  std::string name() const {
    return fmt::format("{} {} {}: {} tokens, {} experts, {} used, {} x {}, seed 11",
                       gate.type->name, up.type->name, down.type->name, n_tokens, n_experts, n_used,
                       model_dim, ffn_dim);
  }

  // One token's result: (init + sum of weight * down(silu(gate x) * (up x))) + residual. A sum over
  // slots rounds n_used + 4 times.
  std::vector<Bounded> expected(int64_t token, MoeArithmetic of_gate, MoeArithmetic of_up,
                                MoeArithmetic of_down, bool with_init, bool with_residual) const {
    std::vector<Bounded> row;
    for (int64_t col = 0; col < model_dim; ++col) {
      row.push_back({x[static_cast<size_t>(token * model_dim + col)], 0.0});
    }
    std::vector<Bounded> result(static_cast<size_t>(model_dim));
    std::vector<double> size(result.size());
    for (int64_t col = 0; col < model_dim; ++col) {
      const auto at = static_cast<size_t>(token * model_dim + col);
      const double added = (with_init ? static_cast<double>(init[at]) : 0.0) +
                           (with_residual ? static_cast<double>(residual[at]) : 0.0);
      result[static_cast<size_t>(col)].value = added;
      size[static_cast<size_t>(col)] =
          std::abs(static_cast<double>(init[at])) + std::abs(static_cast<double>(residual[at]));
    }
    for (int64_t slot = 0; slot < n_used; ++slot) {
      const auto pair = static_cast<size_t>(token * n_used + slot);
      std::vector<Bounded> hidden;
      for (int64_t col = 0; col < ffn_dim; ++col) {
        const Bounded g = moe_product(gate, ids[pair], col, row, of_gate);
        const Bounded u = moe_product(up, ids[pair], col, row, of_up);
        hidden.push_back(swiglu_of(g, u));
      }
      const double weight = static_cast<double>(weights[pair]);
      for (int64_t col = 0; col < model_dim; ++col) {
        const Bounded part = moe_product(down, ids[pair], col, hidden, of_down);
        result[static_cast<size_t>(col)].value += weight * part.value;
        result[static_cast<size_t>(col)].bound += weight * part.bound;
        size[static_cast<size_t>(col)] += std::abs(weight * part.value);
      }
    }
    for (size_t col = 0; col < result.size(); ++col) {
      result[col].bound += static_cast<double>(n_used + 4) * 0x1p-24 * size[col] + 1e-30;
    }
    return result;
  }

  // Checks row `token` of y, which has the bits of the row at `found`.
  void check(int64_t token, const float* found, MoeArithmetic of_gate, MoeArithmetic of_up,
             MoeArithmetic of_down, bool with_init, bool with_residual) const {
    const std::vector<Bounded> wanted =
        expected(token, of_gate, of_up, of_down, with_init, with_residual);
    for (size_t col = 0; col < wanted.size(); ++col) {
      const double error = std::abs(static_cast<double>(found[col]) - wanted[col].value);
      ASSERT_TRUE(error <= wanted[col].bound)
          << name() << ", token " << token << ", column " << col << ": " << found[col]
          << ", expected " << wanted[col].value << " +- " << wanted[col].bound;
    }
  }
};

}  // namespace apr::test

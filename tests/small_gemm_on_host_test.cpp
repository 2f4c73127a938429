// small_gemm as it is, on the host: indices, fragments, tails, splits and what adds them up,
// without a GPU. What is not written stays NaN.
#include <gtest/gtest.h>

#define APR_QUANT_FILE "apr_quant_files.h"
// Kernels of the overlay, see tests/cuda_tests.cmake.
#include "product_rows.cuh"
#include "scale_rows.cu"
#include "small_gemm.cu"

#include "support/simt_memory.h"
#include "support/tier_problem.h"

namespace apr {
namespace {

using test::Aligned;
using test::MoeStack;

struct Shape {
  std::vector<int64_t> part_rows;
  int64_t n_cols, n_tokens;
  unsigned n_blocks;
  int row_warps_log2, n_slots, n_splits;
};

template <class T, bool kOutside>
void check(const char* type, const Shape& shape) {
  SCOPED_TRACE(fmt::format(
      "{}, scales {}, rows {}, {} columns, {} tokens, {} blocks, 2^{} warps a "
      "tile, {} slots, {} splits, seed 7",
      type, kOutside ? "outside" : "inside", fmt::join(shape.part_rows, " + "), shape.n_cols,
      shape.n_tokens, shape.n_blocks, shape.row_warps_log2, shape.n_slots, shape.n_splits));
  std::mt19937 random(7);
  std::vector<MoeStack> parts;
  std::vector<Aligned<uint8_t>> packed;
  std::vector<float> largest;
  SmallGemmParams params{};
  largest.reserve(shape.part_rows.size());
  int64_t n_rows_in_all = 0;
  for (const int64_t n_rows : shape.part_rows) {
    parts.emplace_back(*find_quant_type(type), 1, n_rows, shape.n_cols, random);
    packed.push_back(test::to_planes<T>(parts.back().raw, n_rows, shape.n_cols));
    largest.push_back(static_cast<float>(parts.back().largest));
    params.parts[params.n_parts++] = {packed.back().data(), &largest.back(),
                                      static_cast<int32_t>(n_rows), params.n_tiles,
                                      static_cast<int32_t>(n_rows_in_all)};
    const int64_t tile_rows = int64_t{32} << shape.row_warps_log2;
    params.n_tiles += static_cast<int32_t>((n_rows + tile_rows - 1) / tile_rows);
    n_rows_in_all += n_rows;
  }
  const Aligned<float> x(test::tier_x(shape.n_tokens, shape.n_cols, random));
  const Aligned<uint16_t> halves(x.size());
  const Aligned<float> undo(static_cast<size_t>(shape.n_tokens));
  simt::launch({static_cast<unsigned>(shape.n_tokens), 1, 1}, 32, 0, [&] {
    ScaleRowsParams rows{};
    rows.x = x.data();
    rows.y = {halves.data(), undo.data()};
    rows.n_cols = static_cast<int32_t>(shape.n_cols);
    scale_rows<4>(rows);
  });

  const unsigned n_token_tiles = static_cast<unsigned>(shape.n_tokens + 63) / 64;
  params.stride = n_rows_in_all + 3;
  params.split_stride = shape.n_tokens * params.stride + 1;
  const Aligned<float> products(static_cast<size_t>(shape.n_splits * params.split_stride));
  params.x = halves.data();
  params.products = products.data();
  params.n_cols = static_cast<int32_t>(shape.n_cols);
  params.n_tokens = static_cast<int32_t>(shape.n_tokens);
  params.row_warps_log2 = shape.row_warps_log2;
  params.n_slots = shape.n_slots;
  params.n_splits = shape.n_splits;
  const int tokens = static_cast<int>(std::min<int64_t>(shape.n_tokens, kSmallGemmTokens));
  simt::launch({shape.n_blocks, n_token_tiles, 1}, kSmallGemmThreads,
               static_cast<size_t>(shape.n_slots * small_gemm_slot_bytes(quant::unit_bytes<T>(),
                                                                         1 << shape.row_warps_log2,
                                                                         (tokens + 7) / 8)),
               [&] { small_gemm<T, kOutside>(params); });
  for (int64_t token = 0; token < shape.n_tokens; ++token) {
    int64_t first_col = 0;
    for (size_t part = 0; part < parts.size(); ++part) {
      const ProductRow<1> found({products.data(), undo.data(), params.stride, params.split_stride},
                                {&largest[part], nullptr, static_cast<int32_t>(first_col),
                                 static_cast<int32_t>(shape.part_rows[part]), shape.n_splits},
                                token);
      for (int64_t row = 0; row < shape.part_rows[part]; ++row) {
        const test::Bounded wanted =
            test::tier_product(parts[part], row, x.data() + token * shape.n_cols, kOutside);
        const double value = found.at(static_cast<int>(row)).v[0];
        ASSERT_LE(std::abs(value - wanted.value), wanted.bound)
            << "token " << token << ", part " << part << ", row " << row << ": " << value
            << ", reference " << wanted.value;
      }
      first_col += shape.part_rows[part];
    }
    for (int64_t split = 0; split < shape.n_splits; ++split) {
      const float* past = products.data() + split * params.split_stride + token * params.stride;
      ASSERT_TRUE(std::isnan(past[first_col]) && std::isnan(past[first_col + 2]));
    }
  }
}

TEST(SmallGemmOnHost, WithScalesOutsideIsWithinItsBound) {
  using namespace quant;
  check<Q4_K, true>("Q4_K", {{300}, 512, 5, 3, 3, 3, 2});
  check<Q4_K, true>("Q4_K", {{128, 40}, 768, 32, 5, 2, 4, 3});
  check<Q6_K, true>("Q6_K", {{256}, 256, 9, 1, 3, 2, 1});
  check<Q2_K, true>("Q2_K", {{70}, 512, 8, 1, 2, 2, 2});
  check<Q8_0, true>("Q8_0", {{16, 33, 130}, 352, 17, 4, 2, 2, 1});
  check<Q5_1, true>("Q5_1", {{48}, 96, 3, 1, 2, 2, 1});
}

TEST(SmallGemmOnHost, WithScalesInsideIsWithinItsBound) {
  using namespace quant;
  check<Q4_K, false>("Q4_K", {{300}, 512, 64, 3, 3, 3, 2});
  check<Q6_K, false>("Q6_K", {{130}, 512, 65, 3, 2, 2, 2});
  check<Q2_K, false>("Q2_K", {{64, 64}, 256, 33, 1, 3, 2, 1});
  check<IQ2_XXS, false>("IQ2_XXS", {{17}, 1280, 40, 2, 2, 4, 3});
  check<NVFP4, false>("NVFP4", {{32}, 320, 2, 2, 2, 2, 1});
  check<MXFP4, false>("MXFP4", {{48}, 64, 1, 1, 3, 2, 1});
}

}  // namespace
}  // namespace apr

// small_gemm and matvec_rows as they are, on the host: indices, fragments, tails, splits and what
// adds them up, without a GPU. What is not written stays NaN.
#include <gtest/gtest.h>

#define APR_QUANT_FILE "apr_quant_files.h"
// Kernels of the overlay, see tests/cuda_tests.cmake.
#include "matvec_rows.cu"
#include "product_rows.cuh"
#include "scale_rows.cu"
#include "small_gemm.cu"

#include "support/simt_memory.h"
#include "support/tier_problem.h"

namespace apr {
namespace {

using test::Aligned;
using test::MoeStack;

struct Problem {
  std::vector<int64_t> part_rows;
  int64_t n_cols, n_tokens;
};

// Matrices of one type, x and its rows as f16, and what is made of them.
template <class T>
class Products {
 public:
  Products(const char* type, const Problem& problem) : problem_(problem) {
    std::mt19937 random(7);
    for (const int64_t n_rows : problem.part_rows) {
      parts_.emplace_back(*find_quant_type(type), 1, n_rows, problem.n_cols, random);
      packed_.push_back(test::to_planes<T>(parts_.back().raw, n_rows, problem.n_cols));
      largest_.push_back(static_cast<float>(parts_.back().largest));
      n_rows_ += n_rows;
    }
    x_ = Aligned<float>(test::tier_x(problem.n_tokens, problem.n_cols, random));
    halves_ = Aligned<uint16_t>(x_.size());
    undo_ = Aligned<float>(static_cast<size_t>(problem.n_tokens));
    simt::launch({static_cast<unsigned>(problem.n_tokens), 1, 1}, 32, 0, [&] {
      ScaleRowsParams rows{};
      rows.x = x_.data();
      rows.y = {halves_.data(), undo_.data()};
      rows.n_cols = static_cast<int32_t>(problem.n_cols);
      scale_rows<4>(rows);
    });
  }

  // Arguments for tiles of so many rows.
  template <class Params>
  Params params(int64_t tile_rows, int n_splits) {
    Params params{};
    int64_t first_col = 0;
    for (size_t part = 0; part < parts_.size(); ++part) {
      const int64_t n_rows = problem_.part_rows[part];
      params.parts[params.n_parts++] = {packed_[part].data(), &largest_[part],
                                        static_cast<int32_t>(n_rows), params.n_tiles,
                                        static_cast<int32_t>(first_col)};
      params.n_tiles += static_cast<int32_t>((n_rows + tile_rows - 1) / tile_rows);
      first_col += n_rows;
    }
    n_splits_ = n_splits;
    stride_ = params.stride = n_rows_ + 3;
    split_stride_ = params.split_stride = problem_.n_tokens * params.stride + 1;
    products_ = Aligned<float>(static_cast<size_t>(n_splits * params.split_stride));
    params.x = halves_.data();
    params.products = products_.data();
    params.n_cols = static_cast<int32_t>(problem_.n_cols);
    params.n_tokens = static_cast<int32_t>(problem_.n_tokens);
    params.n_splits = n_splits;
    return params;
  }

  // As whoever reads them adds them up.
  void check(bool exact_weights) const {
    for (int64_t token = 0; token < problem_.n_tokens; ++token) {
      int64_t first_col = 0;
      for (size_t part = 0; part < parts_.size(); ++part) {
        const ProductRow<1> found({products_.data(), undo_.data(), stride_, split_stride_},
                                  {&largest_[part], nullptr, static_cast<int32_t>(first_col),
                                   static_cast<int32_t>(problem_.part_rows[part]), n_splits_},
                                  token);
        for (int64_t row = 0; row < problem_.part_rows[part]; ++row) {
          const test::Bounded wanted = test::tier_product(
              parts_[part], row, x_.data() + token * problem_.n_cols, exact_weights);
          const double value = found.at(static_cast<int>(row)).v[0];
          ASSERT_LE(std::abs(value - wanted.value), wanted.bound)
              << "token " << token << ", part " << part << ", row " << row << ": " << value
              << ", reference " << wanted.value;
        }
        first_col += problem_.part_rows[part];
      }
      for (int64_t split = 0; split < n_splits_; ++split) {
        const float* past = products_.data() + split * split_stride_ + token * stride_;
        ASSERT_TRUE(std::isnan(past[first_col]) && std::isnan(past[first_col + 2]));
      }
    }
  }

 private:
  Problem problem_;
  std::vector<MoeStack> parts_;
  std::vector<Aligned<uint8_t>> packed_;
  std::vector<float> largest_;
  Aligned<float> x_{size_t{0}}, undo_{size_t{0}}, products_{size_t{0}};
  Aligned<uint16_t> halves_{size_t{0}};
  int64_t n_rows_ = 0, stride_ = 0, split_stride_ = 0;
  int n_splits_ = 1;
};

std::string describe(const char* type, const Problem& problem) {
  return fmt::format("{}, rows {}, {} columns, {} tokens, seed 7", type,
                     fmt::join(problem.part_rows, " + "), problem.n_cols, problem.n_tokens);
}

struct SmallGemmLaunch {
  unsigned n_blocks;
  int row_warps_log2, n_slots, n_splits;
};

template <class T>
void check_small_gemm(const char* type, const Problem& problem, const SmallGemmLaunch& by) {
  SCOPED_TRACE(describe(type, problem) +
               fmt::format(", {} blocks, 2^{} warps a tile, {} slots, {} splits", by.n_blocks,
                           by.row_warps_log2, by.n_slots, by.n_splits));
  Products<T> products(type, problem);
  auto params =
      products.template params<SmallGemmParams>(int64_t{32} << by.row_warps_log2, by.n_splits);
  params.row_warps_log2 = by.row_warps_log2;
  params.n_slots = by.n_slots;
  const int tokens = static_cast<int>(std::min<int64_t>(problem.n_tokens, kSmallGemmTokens));
  simt::launch({by.n_blocks, static_cast<unsigned>(problem.n_tokens + 63) / 64, 1},
               kSmallGemmThreads,
               static_cast<size_t>(by.n_slots * small_gemm_slot_bytes(quant::unit_bytes<T>(),
                                                                      1 << by.row_warps_log2,
                                                                      (tokens + 7) / 8)),
               [&] { small_gemm<T>(params); });
  products.check(false);
}

struct MatvecRowsLaunch {
  unsigned n_blocks;
  int n_col_warps, n_splits;
};

template <class T, int kTiles>
void check_matvec_rows(const char* type, const Problem& problem, const MatvecRowsLaunch& by) {
  SCOPED_TRACE(describe(type, problem) + fmt::format(", {} blocks, {} warps a row, {} splits",
                                                     by.n_blocks, by.n_col_warps, by.n_splits));
  Products<T> products(type, problem);
  auto params = products.template params<MatvecRowsParams>(quant::kUnitRows, by.n_splits);
  params.n_col_warps = by.n_col_warps;
  const int split_units = (quant::units_of(problem.n_cols) + by.n_splits - 1) / by.n_splits;
  simt::launch({by.n_blocks, static_cast<unsigned>(by.n_splits), 1}, kMatvecWarps * 32,
               static_cast<size_t>(rings_and_grid_bytes<T>() +
                                   matvec_rows_own_bytes(split_units, problem.n_tokens,
                                                         T::kHasOffset ? T::kGroupElems : 0)),
               [&] { matvec_rows<T, kTiles>(params); });
  products.check(true);
}

TEST(SmallGemmOnHost, IsWithinItsBound) {
  using namespace quant;
  check_small_gemm<Q4_K>("Q4_K", {{300}, 512, 64}, {3, 3, 3, 2});
  check_small_gemm<Q4_K>("Q4_K", {{128, 40}, 768, 32}, {5, 2, 4, 3});
  check_small_gemm<Q6_K>("Q6_K", {{130}, 512, 65}, {3, 2, 2, 2});
  check_small_gemm<Q2_K>("Q2_K", {{64, 64}, 256, 33}, {1, 3, 2, 1});
  check_small_gemm<Q8_0>("Q8_0", {{16, 33, 130}, 352, 17}, {4, 2, 2, 1});
  check_small_gemm<IQ2_XXS>("IQ2_XXS", {{17}, 1280, 40}, {2, 2, 4, 3});
  check_small_gemm<NVFP4>("NVFP4", {{32}, 320, 2}, {2, 2, 2, 1});
  check_small_gemm<MXFP4>("MXFP4", {{48}, 64, 1}, {1, 3, 2, 1});
}

// Every number of warps that share a row, splits of different size, fewer units than warps, tails
// of rows, columns and tokens, types with a grid.
TEST(MatvecRowsOnHost, IsWithinItsBound) {
  using namespace quant;
  check_matvec_rows<Q4_K, 1>("Q4_K", {{300}, 512, 5}, {3, 2, 1});
  check_matvec_rows<Q4_K, 1>("Q4_K", {{128, 40}, 1280, 8}, {2, 8, 2});
  check_matvec_rows<Q4_K, 2>("Q4_K", {{128, 40}, 768, 11}, {5, 1, 3});
  check_matvec_rows<Q4_K, 2>("Q4_K", {{80}, 1792, 16}, {2, 16, 2});
  check_matvec_rows<Q4_K, 2>("Q4_K", {{16}, 256, 9}, {1, 1, 1});
  check_matvec_rows<Q6_K, 2>("Q6_K", {{256}, 256, 9}, {1, 4, 1});
  check_matvec_rows<Q2_K, 1>("Q2_K", {{70}, 512, 8}, {1, 2, 2});
  check_matvec_rows<Q2_K, 2>("Q2_K", {{48}, 512, 15}, {1, 2, 1});
  check_matvec_rows<Q8_0, 2>("Q8_0", {{16, 33, 130}, 352, 12}, {4, 2, 1});
  check_matvec_rows<Q5_1, 1>("Q5_1", {{48}, 96, 3}, {1, 1, 1});
  check_matvec_rows<IQ2_XXS, 1>("IQ2_XXS", {{17}, 1280, 1}, {2, 4, 3});
  check_matvec_rows<IQ3_S, 2>("IQ3_S", {{32}, 512, 16}, {1, 2, 1});
  check_matvec_rows<NVFP4, 1>("NVFP4", {{32}, 320, 2}, {2, 2, 1});
  check_matvec_rows<MXFP4, 2>("MXFP4", {{48}, 64, 13}, {1, 1, 1});
}

}  // namespace
}  // namespace apr

// matvec_mma and matvec_pair as they are, on the host: the staging of x, tiles, parts, warps and
// what ends a row, without a GPU. What is not written stays NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#define APR_QUANT_FILE "apr_quant_files.h"
#define APR_SECOND_QUANT_FILE "apr_quant_files.h"
// Kernels of the overlay, see tests/cuda_tests.cmake.
#include "matvec_mma.cu"
#include "matvec_pair.cu"
#include "matvec_parts.h"

#include "support/moe_problem.h"
#include "support/simt_memory.h"

namespace apr {
namespace {

using test::Aligned;
using test::Bounded;
using test::MoeStack;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(Reciprocal, IsWithinAnUlp) {
  for (const float binade : {kLeastReciprocal, 0.5F, 1.0F, 0x1p124F}) {
    for (uint32_t mantissa = 0; mantissa < 1U << 23; mantissa += 3) {
      const float x = binade * (1.0F + static_cast<float>(mantissa) * 0x1p-23F);
      ASSERT_LE(std::abs(static_cast<double>(reciprocal(x)) * x - 1.0), 0x1p-23) << x;
    }
  }
}

// x of whole units, staged with groups of so many values.
struct Staged {
  std::vector<int32_t> quants;
  std::vector<float> values;  // the integers times their scales
  std::vector<int32_t> sums;
};

template <int kGroupElems>
Staged stage(const std::vector<float>& x) {
  const auto n_cols = static_cast<int>(x.size());
  const Aligned<float> from(x);
  Staged result{std::vector<int32_t>(x.size()), std::vector<float>(x.size()),
                std::vector<int32_t>(x.size() / kGroupElems)};
  MatvecParams params{};
  params.x = from.data();
  simt::launch({1, 1, 1}, kMatvecWarps * 32,
               static_cast<size_t>(staged_x_bytes(n_cols, kGroupElems)), [&] {
                 APR_DYNAMIC_SHARED(uint4, shared);
                 __shared__ float square_sums[kMatvecWarps];
                 const StagedX staged(shared, n_cols);
                 float held[8];
                 stage_x<kGroupElems>(params, n_cols, held, staged, square_sums);
                 __syncthreads();
                 for (size_t col = threadIdx.x; col < result.values.size(); col += blockDim.x) {
                   const int quant = 256 * staged.planes[col] +
                                     staged.planes[static_cast<size_t>(staged.plane_bytes) + col];
                   result.quants[col] = quant;
                   result.values[col] = staged.scales[col / 32] * static_cast<float>(quant);
                 }
                 for (size_t group = threadIdx.x; group < result.sums.size(); group += blockDim.x) {
                   result.sums[group] = staged.sums[group];
                 }
               });
  return result;
}

std::vector<float> random_x(size_t n_cols, std::mt19937& random) {
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> x(n_cols);
  for (size_t col = 0; col < n_cols; ++col) {
    x[col] = normal(random) * (col % 97 == 5 ? 50.0F : 1.0F);
  }
  return x;
}

// How far column `col` may be off.
double staging_error(const std::vector<float>& x, size_t col) {
  double largest = 0.0;
  for (size_t near = col / 32 * 32; near < std::min(col / 32 * 32 + 32, x.size()); ++near) {
    largest = std::max(largest, std::abs(static_cast<double>(x[near])));
  }
  return test::staged_error(largest);
}

template <int kGroupElems>
void check_staging(float scale) {
  SCOPED_TRACE(fmt::format("groups of {}, scale {}, seed 9", kGroupElems, scale));
  std::mt19937 random(9);
  for (const size_t n_cols : {256U, 4096U, 9216U}) {  // one round of the threads, three
    std::vector<float> x = random_x(n_cols, random);
    for (float& value : x) {
      value *= scale;
    }
    std::fill(x.begin() + 64, x.begin() + 96, 0.0F);
    x[128] = -*std::max_element(x.begin() + 128, x.begin() + 160);
    const Staged staged = stage<kGroupElems>(x);
    for (size_t col = 0; col < n_cols; ++col) {
      ASSERT_LE(std::abs(static_cast<double>(staged.values[col]) - x[col]), staging_error(x, col))
          << "column " << col << " of " << n_cols << ": " << x[col];
    }
    for (size_t group = 0; group < staged.sums.size(); ++group) {
      const auto first = staged.quants.begin() + static_cast<ptrdiff_t>(group * kGroupElems);
      ASSERT_EQ(staged.sums[group], std::accumulate(first, first + kGroupElems, 0)) << group;
    }
  }
}

TEST(StagedX, IsWithinHalfAStep) {
  check_staging<32>(1.0F);
  check_staging<16>(1.0F);
  check_staging<32>(1e30F);
  check_staging<32>(1e-28F);
  check_staging<16>(1e-28F);
}

TEST(StagedX, ShowsWhatHasNoScale) {
  for (const float bad :
       {kInfinity, -kInfinity, std::numeric_limits<float>::quiet_NaN(), 0x1p127F}) {
    std::vector<float> x(256, 1.0F);
    x[40] = bad;
    const Staged staged = stage<32>(x);
    for (size_t col = 0; col < x.size(); ++col) {
      ASSERT_EQ(std::isfinite(staged.values[col]), col / 32 != 1)
          << "column " << col << ", " << bad;
    }
  }
  for (const float tiny : {0x1p-101F, 0x1p-113F, 0x1p-120F, 0x1p-126F, 0x1p-140F}) {
    std::vector<float> x(256, tiny);
    x[3] = 0.0F;
    const Staged staged = stage<16>(x);
    EXPECT_EQ(staged.quants, std::vector<int32_t>(256, 0)) << tiny;
    EXPECT_EQ(staged.sums, std::vector<int32_t>(16, 0)) << tiny;
    EXPECT_EQ(staged.values, std::vector<float>(256, 0.0F)) << tiny;
  }
}

struct Case {
  std::vector<int64_t> part_rows;
  int64_t n_cols;
  bool norm, bias, residual, swiglu;
  int n_col_warps;
  unsigned n_blocks;
};

// One product: matrices of type T and what is added to them.
template <class T>
class Product {
 public:
  Product(const char* type, const Case& how, const std::vector<float>& x,
          const std::vector<float>& norm_weight, std::mt19937& random)
      : how_(how), x_(x), norm_weight_(norm_weight) {
    std::normal_distribution<float> normal(0.0F, 1.0F);
    residual_ = Aligned<float>(static_cast<size_t>(how.part_rows[0]));
    for (size_t row = 0; row < residual_.size(); ++row) {
      residual_.data()[row] = normal(random);
    }
    params_.x = x_.data();
    params_.norm_weight = how.norm ? norm_weight_.data() : nullptr;
    params_.residual = how.residual ? residual_.data() : nullptr;
    params_.eps = kEps;
    params_.n_col_warps = how.n_col_warps;
    for (const int64_t n_rows : how.part_rows) {
      stacks_.emplace_back(*find_quant_type(type), 1, n_rows, how.n_cols, random);
      packed_.push_back(test::to_planes<T>(stacks_.back().raw, n_rows, how.n_cols));
      biases_.emplace_back(static_cast<size_t>(n_rows));
      for (int64_t row = 0; row < n_rows; ++row) {
        biases_.back().data()[row] = normal(random);
      }
      outs_.emplace_back(static_cast<size_t>(n_rows) + 1);  // NaN
    }
    for (size_t part = 0; part < stacks_.size(); ++part) {
      params_.parts[params_.n_parts++] = {
          {packed_[part].data(), static_cast<int32_t>(how.part_rows[part]),
           static_cast<int32_t>(how.n_cols)},
          how.bias ? biases_[part].data() : nullptr,
          outs_[part].data()};
    }
    number_tiles(params_, how.swiglu);
  }

  const MatvecParams& params() const { return params_; }
  static int shared_bytes(int64_t n_cols) {
    return staged_x_bytes(static_cast<int>(n_cols), T::kGroupElems) + rings_and_grid_bytes<T>();
  }

  void check() const {
    const std::vector<Bounded> x = input();
    for (size_t part = 0; part < (how_.swiglu ? 1 : outs_.size()); ++part) {
      const float* y = outs_[part].data();
      const int64_t n_rows = how_.part_rows[part];
      ASSERT_TRUE(std::isnan(y[n_rows])) << "written past the end";
      for (int64_t row = 0; row < n_rows; ++row) {
        Bounded wanted = moe_product(stacks_[part], 0, row, x, test::MoeArithmetic::kStaged);
        if (how_.swiglu) {
          wanted =
              swiglu_of(wanted, moe_product(stacks_[1], 0, row, x, test::MoeArithmetic::kStaged));
        }
        wanted.value += how_.bias ? biases_[part].data()[row] : 0.0F;
        wanted.value += how_.residual ? residual_.data()[row] : 0.0F;
        wanted.bound += 0x1p-23 * std::abs(wanted.value) + 1e-30;
        ASSERT_LE(std::abs(y[row] - wanted.value), wanted.bound)
            << "part " << part << ", row " << row << ": " << y[row] << ", expected "
            << wanted.value;
      }
    }
  }

 private:
  static constexpr float kEps = 1e-6F;

  // x as the products see it; a norm sums n_cols squares.
  std::vector<Bounded> input() const {
    double squares = 0.0;
    for (int64_t col = 0; col < how_.n_cols; ++col) {
      squares += static_cast<double>(x_.data()[col]) * x_.data()[col];
    }
    const auto n_cols = static_cast<double>(how_.n_cols);
    const double scale = 1.0 / std::sqrt(squares / n_cols + kEps);
    std::vector<Bounded> x;
    for (int64_t col = 0; col < how_.n_cols; ++col) {
      const double value = x_.data()[col] * (how_.norm ? scale * norm_weight_.data()[col] : 1.0);
      x.push_back({value, how_.norm ? (n_cols / 512.0 + 20.0) * 0x1p-24 * std::abs(value) : 0.0});
    }
    return x;
  }

  Case how_;
  Aligned<float> x_, norm_weight_, residual_{size_t{0}};
  std::vector<MoeStack> stacks_;
  std::vector<Aligned<uint8_t>> packed_;
  std::vector<Aligned<float>> biases_, outs_;
  MatvecParams params_{};
};

std::string describe(const char* type, const Case& how) {
  return fmt::format("{}, rows {}, {} columns, norm {}, swiglu {}, {} warps a tile, {} blocks",
                     type, fmt::join(how.part_rows, " + "), how.n_cols, how.norm, how.swiglu,
                     how.n_col_warps, how.n_blocks);
}

template <class T>
void check_matvec(const char* type, const Case& how) {
  SCOPED_TRACE(describe(type, how));
  std::mt19937 random(7);
  const std::vector<float> x = random_x(static_cast<size_t>(how.n_cols), random);
  const Product<T> product(type, how, x, random_x(x.size(), random), random);
  simt::launch({how.n_blocks, 1, 1}, kMatvecWarps * 32,
               static_cast<size_t>(Product<T>::shared_bytes(how.n_cols)), [&] {
                 if (how.swiglu) {
                   matvec_mma<T, MatvecEpilogue::kSwiglu>(product.params());
                 } else {
                   matvec_mma<T, MatvecEpilogue::kNone>(product.params());
                 }
               });
  product.check();
}

TEST(MatvecOnHost, IsWithinItsBound) {
  using namespace quant;
  check_matvec<Q4_K>("Q4_K", {{35, 16, 50}, 512, true, true, false, false, 2, 2});
  check_matvec<Q4_K>("Q4_K", {{50, 50}, 768, true, false, false, true, 4, 1});
  check_matvec<Q4_K>("Q4_K", {{20}, 5120, true, false, false, false, 8, 1});  // two rounds of x
  check_matvec<Q6_K>("Q6_K", {{40}, 512, false, false, true, false, 16, 2});
  check_matvec<Q6_K>("Q6_K", {{33, 33}, 256, false, false, false, true, 2, 3});
  check_matvec<Q8_0>("Q8_0", {{64, 17}, 352, true, false, false, false, 1, 1});
  check_matvec<IQ3_S>("IQ3_S", {{20}, 256, false, true, true, false, 4, 1});
  check_matvec<Q5_1>("Q5_1", {{130, 130}, 96, true, false, false, true, 16, 2});
}

TEST(MatvecPairOnHost, IsTwoProducts) {
  using namespace quant;
  const Case first{{35, 20}, 512, true, true, false, false, 2, 2};
  const Case second{{50}, 512, true, true, false, false, 4, 1};
  std::mt19937 random(7);
  const std::vector<float> x = random_x(512, random), norm_weight = random_x(512, random);
  const Product<Q4_K> a("Q4_K", first, x, norm_weight, random);
  const Product<Q6_K> b("Q6_K", second, x, norm_weight, random);
  const MatvecPairParams params{a.params(), b.params(), 2};
  simt::launch({3, 1, 1}, kMatvecWarps * 32,
               static_cast<size_t>(
                   std::max(Product<Q4_K>::shared_bytes(512), Product<Q6_K>::shared_bytes(512))),
               [&] { matvec_pair<Q4_K, Q6_K>(params); });
  a.check();
  b.check();
}

}  // namespace
}  // namespace apr

// FP8 products on the GPU: conversions against those of the host bit by bit, products against f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "cuda/launch_product_rows.h"
#include "cuda/projection.h"
#include "e4m3.cuh"
#include "support/compare.h"
#include "support/gpu_dequant.h"
#include "support/gpu_e4m3.h"
#include "support/open_gguf.h"
#include "support/quant_encode.h"

namespace apr::cuda {
namespace {

// The rows of `files`, of quant types those of `types`; none: all.
KernelLibrary kernels_of(const std::vector<std::string_view>& files,
                         const std::vector<std::string_view>& types = {}) {
  const auto is_in = [](std::string_view name, const std::vector<std::string_view>& names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  const std::string arch = use_device(0).architecture;
  std::vector<KernelRow> rows;
  for (const KernelRow& row : kernel_table()) {
    if (runs_on(row, arch) && is_in(row.file, files) &&
        (types.empty() || row.quant_type.empty() || is_in(row.quant_type, types))) {
      rows.push_back(row);
    }
  }
  KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  return {compiler, rows, arch};
}

std::vector<float> random_values(size_t n_elems, std::mt19937& random, float size = 1.0F) {
  std::normal_distribution<float> normal(0.0F, size);
  std::vector<float> values(n_elems);
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

// Every code's value, the middles between neighbours, and the floats beside both; then what is too
// large, infinite or no number; both signs.
std::vector<float> telling_values() {
  std::vector<float> values;
  for (uint32_t code = 0; code < 0x7e; ++code) {
    const float value = e4m3_value(code), middle = (value + e4m3_value(code + 1)) / 2;
    for (const float of : {value, middle}) {
      values.insert(values.end(), {of, std::nextafter(of, 0.0F), std::nextafter(of, INFINITY)});
    }
  }
  values.insert(values.end(), {448.0F, 464.0F, 465.0F, 1e5F, 3e38F, 1e-40F, INFINITY, NAN});
  const size_t n_positive = values.size();
  for (size_t at = 0; at < n_positive; ++at) {
    values.push_back(-values[at]);
  }
  values.resize((values.size() + 31) / 32 * 32, 0.0F);
  return values;
}

bool same_code(uint8_t a, uint8_t b) {
  return a == b || ((a & 0x7f) == 0x7f && (b & 0x7f) == 0x7f);  // a NaN may keep its sign
}

TEST(GpuFp8, ConvertsEveryValueAsTheHostDoes) {
  APR_NEED_E4M3();
  const KernelLibrary kernels = kernels_of({"dequant.cu"}, {"F32"});
  const std::vector<float> values = telling_values();
  const auto n_cols = static_cast<int64_t>(values.size());
  const std::vector<std::byte> raw = test::encode(test::kTypeF32, values);
  for (const int64_t n_missing : {0, 3}) {  // in vectors, and one by one
    const test::DequantProblem problem{
        find_quant_type("F32"),
        1,
        n_cols,
        n_cols - n_missing,
        raw,
        {values.begin(), values.end() - static_cast<std::ptrdiff_t>(n_missing)}};
    const std::vector<uint8_t> codes =
        test::run_gpu_dequant<uint8_t>(kernels, "dequant.F32.raw.e4m3", problem, false);
    for (size_t at = 0; at < problem.expected.size(); ++at) {
      ASSERT_TRUE(same_code(codes[at + test::kGuardElems], e4m3_bits(values[at])))
          << values[at] << ": " << int{codes[at + test::kGuardElems]};
    }
  }
}

TEST(GpuFp8, DecodesEveryTypeToTheCodesOfItsValues) {
  APR_NEED_E4M3();
  const KernelLibrary kernels = kernels_of({"dequant.cu"});
  for (const QuantType& type : quant_types()) {
    const int64_t n_cols = type.block_elems == 1 ? 288 : 2 * type.block_elems;
    const test::DequantProblem problem = test::random_problem(type, 7, n_cols, n_cols);
    const bool planes = has_planes(type);
    const std::vector<uint8_t> codes = test::run_gpu_dequant<uint8_t>(
        kernels, fmt::format("dequant.{}.{}.e4m3", type.name, planes ? "planes" : "raw"), problem,
        planes, 16.0F);
    for (size_t at = 0; at < problem.expected.size(); ++at) {
      ASSERT_TRUE(same_code(codes[at + test::kGuardElems], e4m3_bits(problem.expected[at] * 16.0F)))
          << type.name << " element " << at << ": " << problem.expected[at];
    }
    EXPECT_EQ(codes.back(), static_cast<uint8_t>(test::kUnwritten)) << type.name;
  }
}

// The power of two that brings `largest` to [2^7, 2^8).
float power(float largest) {
  return largest > 0.0F ? std::ldexp(1.0F, 7 - std::ilogb(largest)) : 0x1p-6F;
}

float largest_of(std::span<const float> values) {
  float largest = 0.0F;
  for (const float value : values) {
    largest = std::max(largest, std::abs(value));
  }
  return largest;
}

// Values as E4M3 with their power of two keeps them.
std::vector<float> rounded(std::span<const float> values, float scale) {
  std::vector<float> result(values.size());
  std::transform(values.begin(), values.end(), result.begin(),
                 [scale](float value) { return e4m3_value(e4m3_bits(value * scale)) / scale; });
  return result;
}

constexpr float kSizes[] = {1.0F, 1e5F, 0.0F, 1e-6F, 30.0F};  // of rows: hot and zero ones, too

std::vector<float> make_x(int64_t n_rows, int64_t n_cols, std::mt19937& random) {
  std::vector<float> x = random_values(static_cast<size_t>(n_rows * n_cols), random);
  for (size_t at = 0; at < x.size(); ++at) {
    x[at] *= kSizes[at / static_cast<size_t>(n_cols) % std::size(kSizes)];
  }
  return x;
}

TEST(GpuFp8, ScalesRowsAsTheHostDoes) {
  APR_NEED_E4M3();
  const KernelLibrary kernels = kernels_of({"scale_rows.cu"});
  const Stream stream = create_stream();
  std::mt19937 random(2);
  for (const int64_t n_cols : {1, 33, 64, 896, 4100}) {
    constexpr int64_t kRows = 6;
    std::vector<float> x = make_x(kRows, n_cols, random);
    x.back() = INFINITY;  // must not become 448
    const DeviceBuffer x_device = test::to_device<float>(x);
    const DeviceBuffer codes_device(x.size(), "a test"), undo_device(kRows * 4, "a test");
    ScaleRowsParams params{x_device.as<float>(), {}, static_cast<int32_t>(n_cols)};
    params.y_e4m3 = {codes_device.as<uint8_t>(), undo_device.as<float>()};
    launch_scale_rows(kernels, stream, params, kRows);
    const std::vector<uint8_t> codes = test::to_host<uint8_t>(codes_device);
    const std::vector<float> undo = test::to_host<float>(undo_device);
    for (int64_t row = 0; row < kRows; ++row) {
      const std::span<const float> of(&x[static_cast<size_t>(row * n_cols)],
                                      static_cast<size_t>(n_cols));
      const bool is_finite = row + 1 < kRows;
      const float scale = is_finite ? power(largest_of(of)) : NAN;
      for (size_t col = 0; col < of.size(); ++col) {
        ASSERT_TRUE(
            same_code(codes[static_cast<size_t>(row * n_cols) + col], e4m3_bits(of[col] * scale)))
            << n_cols << " columns, row " << row << ", column " << col;
      }
      if (is_finite) {
        EXPECT_EQ(undo[static_cast<size_t>(row)], 64.0F / scale);
      }
    }
  }
}

struct Shape {
  const char* type;
  uint32_t type_id;
  int64_t n_rows, n_cols;
  bool e4m3;
};

// With w' and x' the factors as E4M3 has them, s' = sum |w' x'|, m = max |w| max |x|, k columns:
// y against sum w' x': tensor cores align the 32 products of a step and the sum so far to the
//   largest of them and cut what is below 2^-13 of it, 33 terms a step; without fast sums the
//   result goes to f32 every 4 steps, so 132 * 2^-13 s' of each 128 columns; f32 sums 2 k 2^-24 s'.
//   Powers of two are undone exactly.
// y against sum w x: beside that, each factor is off by 2^-4 of itself (3 bits behind the point)
// and,
//   below 2^-6 against maxima of 2^7 and more, by 2^-17 of the largest:
//   (2^-3 + 2^-8) s + 2.2 k 2^-17 m.
struct Expected {
  double y, bound, y_rounded, rounded_bound;
};
Expected expect(std::span<const float> w, std::span<const float> x, std::span<const float> w8,
                std::span<const float> x8, double largest) {
  const auto k = static_cast<double>(w.size());
  double y = 0.0, s = 0.0, y8 = 0.0, s8 = 0.0;
  for (size_t col = 0; col < w.size(); ++col) {
    y += static_cast<double>(w[col]) * x[col];
    s += std::abs(static_cast<double>(w[col]) * x[col]);
    y8 += static_cast<double>(w8[col]) * x8[col];
    s8 += std::abs(static_cast<double>(w8[col]) * x8[col]);
  }
  const double sums = (132 * 0x1p-13 + 2 * k * 0x1p-24) * s8 + 1e-40;
  return {y, (0x1p-3 + 0x1p-8) * s + 2.2 * k * 0x1p-17 * largest + sums, y8, sums};
}

TEST(GpuFp8, ProductsAreWithinTheirBounds) {
  APR_NEED_E4M3();
  constexpr int64_t kMaxRows = 2048, kScratchBytes = 48 << 10;  // matrices are made in tiles
  const Shape shapes[] = {{"F32", test::kTypeF32, 16, 16, true},
                          {"F16", test::kTypeF16, 48, 64, true},
                          {"MXFP4", test::kTypeMxfp4, 272, 96, true},
                          {"F32", test::kTypeF32, 64, 896, true},
                          {"BF16", test::kTypeBf16, 1040, 544, true},
                          {"F32", test::kTypeF32, 65, 64, false},  // take no E4M3
                          {"F32", test::kTypeF32, 64, 40, false}};
  std::mt19937 random(1);
  std::vector<Weight> weights(std::size(shapes));
  std::vector<std::vector<std::byte>> raw(weights.size());
  std::vector<std::vector<float>> values(weights.size());
  std::vector<ProjectionGroup> groups;
  for (size_t idx = 0; idx < weights.size(); ++idx) {
    const Shape& shape = shapes[idx];
    const auto n_elems = static_cast<size_t>(shape.n_rows * shape.n_cols);
    raw[idx] = test::encode(shape.type_id, random_values(n_elems, random, 0.1F));
    values[idx] = test::decode(shape.type_id, raw[idx]);
    Weight& weight = weights[idx];
    weight.name = fmt::format("{} [{}, {}]", shape.type, shape.n_rows, shape.n_cols);
    weight.type = find_quant_type(shape.type);
    weight.shape = {shape.n_rows, shape.n_cols};
    weight.data = raw[idx].data();
    weight.size_bytes = static_cast<int64_t>(raw[idx].size());
    weight.n_rows = shape.n_rows;
    weight.n_cols = shape.n_cols;
    weight.row_bytes = weight.type->row_bytes(shape.n_cols);
    EXPECT_EQ(takes_e4m3(weight), shape.e4m3);
    groups.push_back({static_cast<int>(idx / 2), true, {&weight}, shape.e4m3});
  }
  const KernelLibrary kernels = kernels_of({"dequant.cu", "scale_rows.cu", "product_rows.cu"},
                                           {"F32", "F16", "BF16", "MXFP4"});
  const Stream stream = create_stream();
  const DeviceWeights on_device(weights);
  std::vector<std::unique_ptr<Projection>> projections;
  for (const HalfStore store : {HalfStore::kCached, HalfStore::kStreamed}) {
    Projection::Options options{PrefillGemm::kFp8, false, kMaxRows, 0, kScratchBytes};
    options.store.store = store;
    projections.push_back(
        std::make_unique<Projection>(kernels, stream, use_device(0), on_device, groups, options));
    EXPECT_EQ(projections.back()->half_store(), store);
    EXPECT_EQ(projections.back()->report().ran, PrefillGemm::kFp8);
    EXPECT_EQ(projections.back()->report().reason.find("f16 for 2 of 7 matrices: "), 0U);
  }
  std::vector<int64_t> row_counts = {128, 300, 2048};
  for (int64_t n_tokens = 1; n_tokens <= 17; ++n_tokens) {
    row_counts.push_back(n_tokens);
  }
  for (size_t idx = 0; idx < weights.size(); ++idx) {
    const Weight& weight = weights[idx];
    const auto n_cols = static_cast<size_t>(weight.n_cols);
    const std::vector<float> x = make_x(kMaxRows, weight.n_cols, random);
    const float largest_w = largest_of(values[idx]);
    const std::vector<float> w8 = rounded(values[idx], power(largest_w));
    const DeviceBuffer x_device = test::to_device<float>(x);
    const std::vector<float> bias(static_cast<size_t>(weight.n_rows), 0.75F);
    const DeviceBuffer bias_device = test::to_device<float>(bias);
    int64_t n_beyond_f16 = 0;
    for (const auto& projection : projections) {
      for (const int64_t n_tokens : row_counts) {
        const int64_t gap = n_tokens % 2 == 0 ? 7 : 0;
        const bool has_bias = n_tokens % 3 == 0;
        SCOPED_TRACE(fmt::format("{}, {}, {} rows, gap {}", weight.name,
                                 projection->half_store() == HalfStore::kCached, n_tokens, gap));
        const int64_t ldc = weight.n_rows + gap;
        const DeviceBuffer y_device = test::to_device<float>(
            std::vector<float>(static_cast<size_t>((n_tokens + 1) * ldc), test::kGuard));
        const PrefillGemm ran =
            projection->project({&weight, has_bias ? bias_device.as<float>() : nullptr,
                                 x_device.as<float>(), y_device.as<float>(), n_tokens, ldc});
        ASSERT_EQ(ran, shapes[idx].e4m3 ? PrefillGemm::kFp8 : PrefillGemm::kF16);
        const std::vector<float> y = test::to_host<float>(y_device);
        for (int64_t token = 0; token <= n_tokens; ++token) {
          if (token > 18 && token < n_tokens - 3) {
            continue;  // f64 takes its time
          }
          const bool is_token = token < n_tokens;
          const std::span<const float> row_x =
              std::span(x).subspan(static_cast<size_t>(is_token ? token : 0) * n_cols, n_cols);
          const float largest_x = largest_of(row_x);
          const std::vector<float> x8 = rounded(row_x, power(largest_x));
          for (int64_t row = 0; row < ldc; ++row) {
            const float found = y[static_cast<size_t>(token * ldc + row)];
            if (!is_token || row >= weight.n_rows) {
              ASSERT_EQ(found, test::kGuard) << "token " << token << ", column " << row;
              continue;
            }
            const size_t first = static_cast<size_t>(row) * n_cols;
            const Expected wanted = expect(std::span(values[idx]).subspan(first, n_cols), row_x,
                                           std::span(w8).subspan(first, n_cols), x8,
                                           static_cast<double>(largest_w) * largest_x);
            const double added = has_bias ? 0.75 : 0.0;
            const double slack = has_bias ? 0x1p-23 * std::abs(wanted.y) + 1e-7 : 0.0;
            ASSERT_LE(std::abs(found - added - wanted.y), wanted.bound + slack)
                << "token " << token << ", row " << row;
            if (ran == PrefillGemm::kFp8) {
              ASSERT_LE(std::abs(found - added - wanted.y_rounded), wanted.rounded_bound + slack)
                  << "token " << token << ", row " << row << ": " << found << " of "
                  << wanted.y_rounded;
              n_beyond_f16 += std::abs(found - added - wanted.y) > 0x1p-9 * std::abs(wanted.y);
            }
          }
        }
      }
    }
    EXPECT_EQ(n_beyond_f16 > 0, shapes[idx].e4m3) << weight.name << ": E4M3 leaves a trace";
  }
}

}  // namespace
}  // namespace apr::cuda

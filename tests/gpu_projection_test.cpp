// Prefill products on the GPU against dot products in f64 of what the scalar reference decodes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <deque>
#include <random>

#include "apr_quant_files.h"
#include "cuda/projection.h"
#include "support/gpu.h"
#include "support/quant_encode.h"
#include "support/quant_golden.h"

namespace apr::cuda {
namespace {

constexpr int64_t kMostInputRows = 300;
constexpr int64_t kRowCounts[] = {1, 2, 3, 16, 17, 64, 65, 128, 300};
using test::kGuard;
constexpr int64_t kTileScratchBytes = 64 << 10;  // so that matrices are made in tiles

// A matrix with its bytes, values and name.
struct ProjectionMatrix {
  std::string name;
  std::vector<std::byte> data;
  std::vector<float> values;  // [n_rows, n_cols]
};

// Blocks of the goldens whose values are finite and neither all zero nor huge, in a random order;
// plain types hold normal values times `size`.
ProjectionMatrix make_matrix(std::string_view type_name, int64_t n_rows, int64_t n_cols, float size,
                             std::mt19937& random) {
  const QuantType& type = *find_quant_type(type_name);
  ProjectionMatrix matrix;
  matrix.name = fmt::format("{} [{}, {}] of size {}", type_name, n_rows, n_cols, size);
  const size_t n_elems = static_cast<size_t>(n_rows * n_cols);
  if (type.block_elems == 1) {
    std::normal_distribution<float> normal(0.0F, size);
    std::vector<float> values(n_elems);
    for (float& value : values) {
      value = normal(random);
    }
    matrix.data = test::encode(type.id, values);
  } else {
    const test::QuantGolden golden = test::load_golden(type_name);
    const size_t elems = static_cast<size_t>(type.block_elems);
    std::vector<size_t> usable;
    for (size_t block = 0; block < golden.values.size() / elems; ++block) {
      float largest = 0.0F;
      bool finite = true;
      for (size_t elem = 0; elem < elems; ++elem) {
        const float value = golden.values[block * elems + elem];
        finite = finite && std::isfinite(value);
        largest = std::max(largest, std::abs(value));
      }
      if (finite && largest > 1e-6F && largest < 1e3F) {
        usable.push_back(block);
      }
    }
    if (usable.empty()) {
      throw std::runtime_error("no usable golden block of " + std::string(type_name));
    }
    const size_t block_bytes = static_cast<size_t>(type.block_bytes);
    for (size_t block = 0; block < n_elems / elems; ++block) {
      const std::byte* from = reinterpret_cast<const std::byte*>(golden.blocks.data()) +
                              usable[random() % usable.size()] * block_bytes;
      matrix.data.insert(matrix.data.end(), from, from + block_bytes);
    }
  }
  matrix.values.resize(n_elems);
  type.dequantize(matrix.data.data(), static_cast<int64_t>(n_elems) / type.block_elems,
                  matrix.values.data());
  return matrix;
}

Weight weight_of(const ProjectionMatrix& matrix, std::string_view type_name, int64_t n_rows,
                 int64_t n_cols) {
  Weight weight;
  weight.name = matrix.name;
  weight.type = find_quant_type(type_name);
  weight.shape = {n_rows, n_cols};
  weight.data = matrix.data.data();
  weight.size_bytes = static_cast<int64_t>(matrix.data.size());
  weight.n_rows = n_rows;
  weight.n_cols = n_cols;
  weight.row_bytes = weight.type->row_bytes(n_cols);
  return weight;
}

// What the products of one matrix must be, and how far off each mode may be.
struct ExpectedProduct {
  std::vector<double> y, f16_bound, f32_bound, dp4a_bound;  // [kMostInputRows, n_rows]
};

// |min| of every sub-block of 32 of a Q4_K row; zeros for other types.
std::vector<double> minima(const Weight& weight, int64_t row) {
  std::vector<double> found(static_cast<size_t>((weight.n_cols + 31) / 32), 0.0);
  if (weight.type->name != "Q4_K") {
    return found;
  }
  for (size_t block = 0; block < found.size() / 8; ++block) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(weight.data) + row * weight.row_bytes +
                        static_cast<int64_t>(block) * weight.type->block_bytes;
    uint8_t scales[8], mins[8];
    quant::unpack_scale_min_k4(bytes + 4, scales, mins);
    uint16_t dmin = 0;
    std::memcpy(&dmin, bytes + 2, sizeof dmin);
    for (size_t sub = 0; sub < 8; ++sub) {
      found[block * 8 + sub] = std::abs(static_cast<double>(test::from_f16(dmin)) * mins[sub]);
    }
  }
  return found;
}

// Bounds, with u = 2^-24, s = sum |w x|, m = max |w| max |x|, k columns.
// f32:  any order of k products and sums: k u s (second order: 1.01).
// f16:  both factors rounded to 11 bits: 2^-10 s, and where scaled values below 2^-14 are rounded
//       to multiples of 2^-24, half of one against maxima of 2^13 and more: 2^-38 m a column for
//       each factor. Sums on tensor cores, which cut instead of rounding: 2 k u s. The two powers
//       are undone exactly.
// dp4a: x rounded to multiples of scale = max|x of 32| / 127: half of one (1.001: the scale is
//       rounded) times |w|. The integer dots are exact; w = scale_w q - min, so the f32 terms add
//       up to s + 2 sum |min x|: (k / 32 + 8) roundings, and sums of two terms for each.
ExpectedProduct expect(const Weight& weight, const ProjectionMatrix& matrix,
                       std::span<const float> x) {
  constexpr double kU = 0x1p-24;
  const size_t n_rows = static_cast<size_t>(weight.n_rows);
  const size_t n_cols = static_cast<size_t>(weight.n_cols);
  double largest_w = 0.0;
  for (const float w : matrix.values) {
    largest_w = std::max(largest_w, static_cast<double>(std::abs(w)));
  }
  const size_t n_elems = kMostInputRows * n_rows;
  ExpectedProduct expected{std::vector<double>(n_elems), std::vector<double>(n_elems),
                           std::vector<double>(n_elems), std::vector<double>(n_elems)};
  const double k = static_cast<double>(n_cols);
  for (size_t row = 0; row < n_rows; ++row) {
    const std::vector<double> mins = minima(weight, static_cast<int64_t>(row));
    const float* w = &matrix.values[row * n_cols];
    for (size_t token = 0; token < kMostInputRows; ++token) {
      double y = 0.0, s = 0.0, largest_x = 0.0, rounded = 0.0, min_terms = 0.0;
      for (size_t first = 0; first < n_cols; first += 32) {
        double largest_of_32 = 0.0, sum_w = 0.0, sum_x = 0.0;
        for (size_t col = first; col < std::min(first + 32, n_cols); ++col) {
          const double product = static_cast<double>(w[col]) * x[token * n_cols + col];
          const double magnitude = std::abs(static_cast<double>(x[token * n_cols + col]));
          y += product;
          s += std::abs(product);
          sum_w += std::abs(static_cast<double>(w[col]));
          sum_x += magnitude;
          largest_of_32 = std::max(largest_of_32, magnitude);
        }
        largest_x = std::max(largest_x, largest_of_32);
        rounded += 1.001 * largest_of_32 / 254 * sum_w;
        min_terms += mins[first / 32] * (sum_x + 32 * largest_of_32 / 254);
      }
      const size_t at = token * n_rows + row;
      const double tiny = 1e-43;  // products below the normal range of f32
      expected.y[at] = y;
      expected.f32_bound[at] = 1.01 * k * kU * s + k * tiny;
      expected.f16_bound[at] =
          (0x1p-10 * 1.001 + 2 * k * kU) * s + 2 * k * 0x1p-38 * largest_w * largest_x + k * tiny;
      expected.dp4a_bound[at] =
          rounded + (k / 32 + 8) * 2 * kU * (s + rounded + 2 * min_terms) + k * tiny;
    }
  }
  return expected;
}

// Rows of very different size: ordinary, hot, all zero, small.
std::vector<float> make_x(int64_t n_cols, std::mt19937& random) {
  constexpr float kSizes[] = {1.0F, 1e6F, 0.0F, 1e-6F, 30.0F};
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> x(static_cast<size_t>(kMostInputRows * n_cols));
  for (size_t at = 0; at < x.size(); ++at) {
    x[at] = normal(random) * kSizes[at / static_cast<size_t>(n_cols) % std::size(kSizes)];
  }
  return x;
}

// Every kernel of the types in `types`, plain and fused.
KernelLibrary kernels_for(std::span<const std::string_view> types, std::string_view arch) {
  std::vector<KernelRow> rows;
  for (const KernelRow& row : kernel_table()) {
    const bool wanted = row.name.starts_with("dequant.") || row.name.starts_with("absmax.") ||
                        row.name.starts_with("dp4a_gemm.") || row.file == "scale_rows.cu" ||
                        row.file == "product_rows.cu" || row.file == "quantize_rows.cu";
    if (wanted && runs_on(row, arch) &&
        (row.quant_type.empty() ||
         std::find(types.begin(), types.end(), row.quant_type) != types.end())) {
      rows.push_back(row);
    }
  }
  KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  return {compiler, rows, arch};
}

// The system's table, but new device memory is full of NaN, and free memory is what the test says.
size_t free_bytes_for_tests = 0;
cudaError_t (*system_malloc)(void**, size_t) = nullptr;
Api poisoning_api() {
  Api table = api();
  system_malloc = table.cudaMalloc;
  table.cudaMalloc = [](void** data, size_t n_bytes) {
    const cudaError_t status = system_malloc(data, n_bytes);
    if (status == cudaSuccess) {
      ::cudaMemset(*data, 0xff, n_bytes);
      ::cudaDeviceSynchronize();
    }
    return status;
  };
  table.cudaMemGetInfo = [](size_t* free_bytes, size_t* total_bytes) {
    *free_bytes = free_bytes_for_tests;
    *total_bytes = size_t{1} << 37;
    return cudaSuccess;
  };
  return table;
}

struct Mode {
  const char* name;
  PrefillGemm gemm;
  HalfStore store;
};

TEST(GpuProjection, IsWithinItsBoundInEveryMode) {
  APR_NEED_GPU();
  const Api table = poisoning_api();
  const ScopedApi scope(table);
  std::mt19937 random(1);
  const std::string_view types[] = {"F32",  "F16",  "BF16", "Q4_0",
                                    "Q8_0", "Q4_K", "Q6_K", "IQ2_XXS"};
  std::deque<ProjectionMatrix> matrices;
  std::vector<Weight> weights;
  for (const std::string_view type : types) {
    for (const int64_t n_cols : {32, 96, 256, 896, 1280}) {
      for (const int64_t n_rows : {65, 272}) {
        if (n_cols % find_quant_type(type)->block_elems == 0) {
          const ProjectionMatrix& matrix =
              matrices.emplace_back(make_matrix(type, n_rows, n_cols, 0.1F, random));
          weights.push_back(weight_of(matrix, type, n_rows, n_cols));
        }
      }
    }
  }
  for (const std::string_view type : {"F32", "F16", "BF16"}) {  // tiny, half of it subnormal as f16
    const ProjectionMatrix& matrix =
        matrices.emplace_back(make_matrix(type, 65, 256, 1e-6F, random));
    weights.push_back(weight_of(matrix, type, 65, 256));
  }
  // Columns that no vector fits.
  const ProjectionMatrix& odd = matrices.emplace_back(make_matrix("F32", 65, 33, 1.0F, random));
  weights.push_back(weight_of(odd, "F32", 65, 33));

  const DeviceFacts device = use_device(0);
  const KernelLibrary kernels = kernels_for(types, device.architecture);
  const Stream stream = create_stream();
  const DeviceWeights on_device(weights);
  std::vector<ProjectionGroup> groups;
  for (size_t idx = 0; idx < weights.size(); ++idx) {  // three a layer, some as heads
    groups.push_back({static_cast<int>(idx / 3), idx % 5 != 4, {&weights[idx]}});
  }
  constexpr Mode kModes[] = {{"f16 cached", PrefillGemm::kF16, HalfStore::kCached},
                             {"f16 streamed", PrefillGemm::kF16, HalfStore::kStreamed},
                             {"f32", PrefillGemm::kF32, HalfStore::kStreamed},
                             {"dp4a", PrefillGemm::kDp4a, HalfStore::kStreamed}};
  std::vector<std::unique_ptr<Projection>> projections;
  for (const Mode& mode : kModes) {
    free_bytes_for_tests = mode.store == HalfStore::kCached ? size_t{1} << 34 : 0;
    projections.push_back(std::make_unique<Projection>(
        kernels, stream, device, on_device, groups,
        Projection::Options{mode.gemm, false, kMostInputRows, 0, kTileScratchBytes}));
    EXPECT_EQ(projections.back()->half_store(), mode.store) << mode.name;
    EXPECT_EQ(projections.back()->report().ran, mode.gemm) << mode.name;
  }

  for (size_t idx = 0; idx < weights.size(); ++idx) {
    const Weight& weight = weights[idx];
    const std::vector<float> x = make_x(weight.n_cols, random);
    const ExpectedProduct expected = expect(weight, matrices[idx], x);
    const DeviceBuffer x_device = test::to_device<float>(x);
    const std::vector<float> bias(static_cast<size_t>(weight.n_rows), 0.75F);
    const DeviceBuffer bias_device = test::to_device<float>(bias);
    for (size_t mode_idx = 0; mode_idx < std::size(kModes); ++mode_idx) {
      const Mode& mode = kModes[mode_idx];
      for (const int64_t n_tokens : kRowCounts) {
        for (const int64_t gap : {0, 7}) {
          SCOPED_TRACE(fmt::format("{}, {}, {} rows, gap {}, seed 1", weight.name, mode.name,
                                   n_tokens, gap));
          const int64_t ldc = weight.n_rows + gap;
          const bool has_bias = gap == 0 && n_tokens % 2 == 1;
          std::vector<float> y(static_cast<size_t>((n_tokens + 1) * ldc), kGuard);
          const DeviceBuffer y_device = test::to_device<float>(y);
          APR_CUDA(api().cudaDeviceSynchronize());  // the upload went through another stream
          const PrefillGemm ran = projections[mode_idx]->project(
              {&weight, has_bias ? bias_device.as<float>() : nullptr, x_device.as<float>(),
               y_device.as<float>(), n_tokens, ldc});
          const bool dp4a = weight.type->name == "Q4_K" && gap == 0;
          ASSERT_EQ(ran, mode.gemm == PrefillGemm::kDp4a && !dp4a ? PrefillGemm::kF32 : mode.gemm);
          y = test::to_host<float>(y_device);
          const std::vector<double>& bounds = ran == PrefillGemm::kF16   ? expected.f16_bound
                                              : ran == PrefillGemm::kF32 ? expected.f32_bound
                                                                         : expected.dp4a_bound;
          for (size_t at = 0; at < y.size(); ++at) {
            const size_t token = at / static_cast<size_t>(ldc);
            const size_t row = at % static_cast<size_t>(ldc);
            if (token >= static_cast<size_t>(n_tokens) || row >= bias.size()) {
              ASSERT_EQ(y[at], kGuard) << "token " << token << ", column " << row << " was written";
              continue;
            }
            const size_t of = token * bias.size() + row;
            const double wanted = expected.y[of] + (has_bias ? 0.75 : 0.0);
            const double bound = bounds[of] + (has_bias ? 0x1p-23 * std::abs(wanted) + 1e-7 : 0.0);
            ASSERT_LE(std::abs(y[at] - wanted), bound) << "token " << token << ", row " << row
                                                       << ": " << y[at] << ", reference " << wanted;
          }
        }
      }
    }
  }
}

// TF32 keeps 10 bits after the point: 1 + 2^-12 becomes 1.
TEST(GpuProjection, F32DoesNotMultiplyInTf32) {
  APR_NEED_GPU();
  constexpr int64_t kRows = 64, kCols = 256, kTokens = 128;
  constexpr float kValue = 1.0F + 0x1p-12F;
  ProjectionMatrix matrix{"ones", {}, std::vector<float>(kRows * kCols, kValue)};
  matrix.data = test::encode(test::kTypeF32, matrix.values);
  const std::vector<Weight> weights{weight_of(matrix, "F32", kRows, kCols)};
  const std::string_view types[] = {"F32"};
  const DeviceFacts device = use_device(0);
  const KernelLibrary kernels = kernels_for(types, device.architecture);
  const Stream stream = create_stream();
  const DeviceWeights on_device(weights);
  const std::vector<ProjectionGroup> groups{{0, true, {&weights[0]}}};
  Projection projection(kernels, stream, device, on_device, groups,
                        Projection::Options{PrefillGemm::kF32, false, kTokens});
  const std::vector<float> x(kTokens * kCols, kValue);
  const DeviceBuffer x_device = test::to_device<float>(x);
  const DeviceBuffer y_device(kTokens * kRows * 4, "a test");
  APR_CUDA(api().cudaDeviceSynchronize());  // the uploads went through another stream
  projection.project(
      {&weights[0], nullptr, x_device.as<float>(), y_device.as<float>(), kTokens, kRows});
  EXPECT_TRUE(projection.dequant_launches().empty());  // F32 is used in place
  const double wanted = kCols * std::pow(1.0 + 0x1p-12, 2);
  const double bound = kCols * 0x1p-24 * wanted;  // k u s
  ASSERT_GT(wanted - kCols, 10 * bound);          // what TF32 would give is far outside
  for (const float y : test::to_host<float>(y_device)) {
    ASSERT_NEAR(y, wanted, bound);
  }
}

}  // namespace
}  // namespace apr::cuda

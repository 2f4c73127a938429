// The matrix-vector kernels on the GPU against products in f64.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "apr/error.h"
#include "cuda/launch_matvec.h"
#include "cuda/weights.h"
#include "support/gpu.h"
#include "support/quant_golden.h"
#include "support/quant_offsets.h"

namespace apr::cuda {
namespace {

using test::kGuard;
constexpr float kEps = 1e-6F;

// Blocks of a type with finite values of moderate size: those of the golden file, or for plain
// types small numbers.
class Blocks {
 public:
  explicit Blocks(const QuantType& type) : type_(type) {
    const test::QuantGolden golden = test::load_golden(type.name);
    const size_t elems = static_cast<size_t>(type.block_elems);
    for (size_t first = 0; first + elems <= golden.values.size(); first += elems) {
      const bool usable =
          std::all_of(golden.values.begin() + static_cast<ptrdiff_t>(first),
                      golden.values.begin() + static_cast<ptrdiff_t>(first + elems),
                      [](float value) { return std::isfinite(value) && std::abs(value) < 1e4F; });
      if (usable) {
        starts_.push_back(first / elems * static_cast<size_t>(type.block_bytes));
      }
    }
    bytes_ = golden.blocks;
  }
  bool empty() const { return starts_.empty(); }
  void append(std::mt19937& random, std::vector<std::byte>& to) const {
    const size_t start = starts_[random() % starts_.size()];
    const std::byte* block = reinterpret_cast<const std::byte*>(bytes_.data()) + start;
    to.insert(to.end(), block, block + type_.block_bytes);
  }

 private:
  const QuantType& type_;
  std::vector<uint8_t> bytes_;
  std::vector<size_t> starts_;
};

struct MatvecMatrix {
  int64_t n_rows, n_cols;
  std::vector<std::byte> raw;           // [n_rows, row_bytes]
  std::vector<float> weights, offsets;  // [n_rows, n_cols]
  DeviceBuffer device;
  WeightRef ref;
};

MatvecMatrix make_matrix(const QuantType& type, const Blocks& blocks, int64_t n_rows,
                         int64_t n_cols, std::mt19937& random) {
  MatvecMatrix matrix{n_rows, n_cols, {}, {}, {}, {}, {}};
  const int64_t n_blocks = n_rows * n_cols / type.block_elems;
  for (int64_t block = 0; block < n_blocks; ++block) {
    blocks.append(random, matrix.raw);
  }
  matrix.weights.resize(static_cast<size_t>(n_rows * n_cols));
  matrix.offsets.resize(matrix.weights.size());
  type.dequantize(matrix.raw.data(), n_blocks, matrix.weights.data());
  for (int64_t block = 0; block < n_blocks; ++block) {
    test::block_offsets(type, matrix.raw.data() + block * type.block_bytes,
                        matrix.offsets.data() + block * type.block_elems);
  }
  std::vector<std::byte> resident = matrix.raw;
  if (has_planes(type)) {
    resident.resize(static_cast<size_t>(planes_bytes(type, n_rows, n_cols)));
    pack_planes(type, matrix.raw.data(), n_rows, n_cols, resident.data());
  }
  matrix.device = test::to_device<std::byte>(resident);
  matrix.ref = {reinterpret_cast<const uint8_t*>(matrix.device.data()),
                static_cast<int32_t>(n_rows), static_cast<int32_t>(n_cols)};
  return matrix;
}

struct ExpectedRow {
  double value, bound;
};

// The product of a row with x, and how far the kernel may be off. `x_error`: of each staged value.
// With u = 2^-24: scale, offset, sums and products of a group take at most six roundings, the
// groups and warps at most n_cols / 128 + 21 additions; all relative to the absolute parts.
ExpectedRow expected_product(const MatvecMatrix& matrix, int64_t row, const std::vector<double>& x,
                             const std::vector<double>& x_error) {
  double value = 0.0, magnitude = 0.0, error = 0.0;
  for (int64_t col = 0; col < matrix.n_cols; ++col) {
    const size_t at = static_cast<size_t>(row * matrix.n_cols + col);
    const size_t elem = static_cast<size_t>(col);
    value += matrix.weights[at] * x[elem];
    magnitude += (std::abs(matrix.weights[at]) + 2.0 * matrix.offsets[at]) * std::abs(x[elem]);
    error += std::abs(matrix.weights[at]) * x_error[elem];
  }
  const double roundings = 6.0 + static_cast<double>(matrix.n_cols) / 128.0 + 21.0;
  return {value, error + roundings * 0x1p-24 * magnitude * 1.01};
}

struct MatvecCase {
  std::vector<int64_t> part_rows;
  int64_t n_cols;
  bool norm, bias, residual, swiglu, exact;
  float x_scale = 1.0F;
};

void check(const KernelLibrary& kernels, const DeviceFacts& device, const QuantType& type,
           const Blocks& blocks, const MatvecCase& how) {
  SCOPED_TRACE(
      fmt::format("{}: {} parts, first {} x {}, norm {}, bias {}, residual {}, swiglu {}, "
                  "exact {}, x scale {}, seed 7",
                  type.name, how.part_rows.size(), how.part_rows[0], how.n_cols, how.norm, how.bias,
                  how.residual, how.swiglu, how.exact, how.x_scale));
  std::mt19937 random(7);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  const size_t n_cols = static_cast<size_t>(how.n_cols);
  std::vector<float> x(n_cols), norm_weight(n_cols);
  for (size_t col = 0; col < n_cols; ++col) {
    x[col] = normal(random) * how.x_scale * (col % 97 == 5 ? 50.0F : 1.0F);  // outliers
    norm_weight[col] = 1.0F + 0.3F * normal(random);
  }
  double square_sum = 0.0;
  for (const float value : x) {
    square_sum += static_cast<double>(value) * value;
  }
  const double norm_scale = 1.0 / std::sqrt(square_sum / static_cast<double>(n_cols) + kEps);
  std::vector<double> normed(n_cols), x_error(n_cols);
  for (size_t col = 0; col < n_cols; ++col) {
    normed[col] = how.norm ? x[col] * norm_scale * norm_weight[col] : x[col];
  }
  for (size_t col = 0; col < n_cols; ++col) {
    const size_t first = col / 32 * 32;
    double largest = 0.0;
    for (size_t near = first; near < std::min(first + 32, n_cols); ++near) {
      largest = std::max(largest, std::abs(normed[near]));
    }
    // Rounded to half a step of largest / 32512, the factors with it; a norm sums n_cols squares.
    const double norm_error =
        how.norm ? (static_cast<double>(n_cols) / 512.0 + 20.0) * 0x1p-24 : 0.0;
    x_error[col] = (how.exact ? 0.0 : largest / 65024.0 + 4 * 0x1p-24 * largest) +
                   norm_error * std::abs(normed[col]);
  }

  const DeviceBuffer x_device = test::to_device<float>(x);
  const DeviceBuffer norm_device = test::to_device<float>(norm_weight);
  std::vector<MatvecMatrix> matrices;
  std::vector<DeviceBuffer> outs, biases;
  std::vector<std::vector<float>> bias_values;
  std::vector<float> residual(static_cast<size_t>(how.part_rows[0]));
  for (float& value : residual) {
    value = normal(random);
  }
  const DeviceBuffer residual_device = test::to_device<float>(residual);
  MatvecParams params{};
  params.x = x_device.as<float>();
  params.norm_weight = how.norm ? norm_device.as<float>() : nullptr;
  params.residual = how.residual ? residual_device.as<float>() : nullptr;
  params.eps = kEps;
  for (const int64_t n_rows : how.part_rows) {
    matrices.push_back(make_matrix(type, blocks, n_rows, how.n_cols, random));
    std::vector<float>& bias = bias_values.emplace_back(static_cast<size_t>(n_rows));
    for (float& value : bias) {
      value = normal(random);
    }
    biases.push_back(test::to_device<float>(bias));
    const std::vector<float> guards(static_cast<size_t>(n_rows) + 2, kGuard);
    outs.push_back(test::to_device<float>(guards));
    params.parts[params.n_parts++] = {matrices.back().ref,
                                      how.bias ? biases.back().as<float>() : nullptr,
                                      outs.back().as<float>() + 1};
  }
  const Stream stream = create_stream();
  launch_matvec(kernels, stream, device, type, params, how.swiglu, how.exact);
  APR_CUDA(api().cudaStreamSynchronize(stream.get()));

  for (size_t part = 0; part < (how.swiglu ? 1 : outs.size()); ++part) {
    const std::vector<float> y = test::to_host<float>(outs[part]);
    ASSERT_EQ(y.front(), kGuard);
    ASSERT_EQ(y.back(), kGuard);
    for (int64_t row = 0; row < how.part_rows[part]; ++row) {
      const size_t at = static_cast<size_t>(row);
      ExpectedRow wanted = expected_product(matrices[part], row, normed, x_error);
      if (how.swiglu) {
        // silu's slope is at most 1.1; silu and the product round eight times.
        const ExpectedRow up = expected_product(matrices[1], row, normed, x_error);
        const double silu = wanted.value / (1.0 + std::exp(-wanted.value));
        wanted.bound = 1.1 * wanted.bound * (std::abs(up.value) + up.bound) +
                       (std::abs(silu) + 1e-30) * up.bound +
                       16 * 0x1p-24 * std::abs(silu * up.value);
        wanted.value = silu * up.value;
      }
      if (how.bias) {
        wanted.value += bias_values[part][at];
      }
      if (how.residual) {
        wanted.value += residual[at];
      }
      wanted.bound += 0x1p-23 * std::abs(wanted.value) + 1e-30;
      ASSERT_LE(std::abs(y[at + 1] - wanted.value), wanted.bound)
          << "part " << part << ", row " << row << ": " << y[at + 1] << ", expected "
          << wanted.value;
    }
  }
}

// Both matvec kernels of a type on device 0.
struct TypeKernels {
  explicit TypeKernels(const std::string& name)
      : type(*find_quant_type(name)),
        device(use_device(0)),
        compiler(APR_TEST_KERNEL_CACHE),
        kernels(compiler,
                std::vector{kernel_row("matvec_mma." + name), kernel_row("matvec_fma." + name)},
                device.architecture,
                static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes) {}

  // The product of a matrix with x.
  std::vector<float> multiply(const MatvecMatrix& matrix, const DeviceBuffer& x, bool exact) const {
    const DeviceBuffer y =
        test::to_device<float>(std::vector<float>(static_cast<size_t>(matrix.n_rows), kGuard));
    MatvecParams params{};
    params.x = x.as<float>();
    params.parts[0] = {matrix.ref, nullptr, y.as<float>()};
    params.n_parts = 1;
    const Stream stream = create_stream();
    launch_matvec(kernels, stream, device, type, params, false, exact);
    APR_CUDA(api().cudaStreamSynchronize(stream.get()));
    return test::to_host<float>(y);
  }

  const QuantType& type;
  DeviceFacts device;
  KernelCompiler compiler;
  KernelLibrary kernels;
};

TEST(GpuMatvec, IsWithinItsBoundOfTheExactProduct) {
  APR_NEED_GPU();
  const DeviceFacts device = use_device(0);
  KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  for (const QuantType& type : quant_types()) {
    const Blocks blocks(type);
    if (blocks.empty()) {
      continue;  // F32, F16, BF16 have no golden blocks; the backend's tests run their kernel
    }
    std::vector<KernelRow> rows;
    for (const KernelRow& row : kernel_table()) {
      if (row.quant_type == type.name &&
          (row.name.starts_with("matvec_mma.") || row.name.starts_with("matvec_fma."))) {
        rows.push_back(row);
      }
    }
    const KernelLibrary kernels(
        compiler, rows, device.architecture,
        static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes);
    const int64_t block = std::max<int64_t>(type.block_elems, 32);
    for (const bool exact : {false, true}) {
      check(kernels, device, type, blocks, {{16}, 256, false, false, false, false, exact});
      check(kernels, device, type, blocks, {{1}, block, true, true, true, false, exact});
      check(kernels, device, type, blocks,
            {{33, 17, 16}, 3 * block, true, true, false, false, exact});
      check(kernels, device, type, blocks, {{272}, 4096, true, false, true, false, exact});
      check(kernels, device, type, blocks, {{48, 48}, 7 * block, false, false, false, true, exact});
      check(kernels, device, type, blocks, {{35}, 12288, false, true, false, false, exact, 1e6F});
      check(kernels, device, type, blocks, {{2500}, 512, false, false, true, false, exact, 1e-6F});
    }
    if (HasFatalFailure()) {
      return;
    }
  }
}

// Both products of every pair: of two matrices and of one.
TEST(GpuMatvec, OfAPairOfTypesIsWithinItsBound) {
  APR_NEED_GPU();
  const DeviceFacts device = use_device(0);
  KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  std::vector<KernelRow> rows;
  for (const KernelRow& row : kernel_table()) {
    if (row.name.starts_with("matvec_pair.")) {
      rows.push_back(row);
    }
  }
  ASSERT_GT(rows.size(), 10U);
  const KernelLibrary kernels(
      compiler, rows, device.architecture,
      static_cast<int64_t>(device.shared_bytes_per_block) - kStaticSharedBytes);
  for (const KernelRow& row : rows) {
    for (const int64_t n_cols : {256, 1024, 3584}) {
      SCOPED_TRACE(fmt::format("{}, {} columns, seed 11", row.name, n_cols));
      std::mt19937 random(11);
      std::normal_distribution<float> normal(0.0F, 1.0F);
      std::vector<float> x(static_cast<size_t>(n_cols));
      std::vector<double> exact_x, x_error;
      for (float& value : x) {
        value = normal(random);
        exact_x.push_back(value);
      }
      for (size_t col = 0; col < x.size(); ++col) {
        double largest = 0.0;
        for (size_t near = col / 32 * 32; near < col / 32 * 32 + 32; ++near) {
          largest = std::max(largest, std::abs(exact_x[near]));
        }
        x_error.push_back(largest / 65024.0 + 4 * 0x1p-24 * largest);
      }
      const DeviceBuffer x_device = test::to_device<float>(x);
      const QuantType* types[2] = {find_quant_type(row.quant_type),
                                   find_quant_type(row.second_type)};
      ASSERT_TRUE(matvec_pair_fits(*types[0], *types[1], n_cols, device));
      const std::vector<int64_t> part_rows[2] = {{512, 130}, {144}};
      MatvecParams params[2] = {};
      std::vector<MatvecMatrix> matrices;
      std::vector<DeviceBuffer> outs;
      for (const int side : {0, 1}) {
        params[side].x = x_device.as<float>();
        for (const int64_t n_rows : part_rows[side]) {
          matrices.push_back(
              make_matrix(*types[side], Blocks(*types[side]), n_rows, n_cols, random));
          outs.push_back(
              test::to_device<float>(std::vector<float>(static_cast<size_t>(n_rows) + 1, kGuard)));
          params[side].parts[params[side].n_parts++] = {matrices.back().ref, nullptr,
                                                        outs.back().as<float>()};
        }
      }
      const Stream stream = create_stream();
      launch_matvec_pair(kernels, stream, device, *types[0], params[0], *types[1], params[1]);
      APR_CUDA(api().cudaStreamSynchronize(stream.get()));
      for (size_t part = 0; part < matrices.size(); ++part) {
        const std::vector<float> y = test::to_host<float>(outs[part]);
        ASSERT_EQ(y.back(), kGuard);
        for (int64_t at = 0; at < matrices[part].n_rows; ++at) {
          ExpectedRow wanted = expected_product(matrices[part], at, exact_x, x_error);
          wanted.bound += 0x1p-23 * std::abs(wanted.value) + 1e-30;
          ASSERT_LE(std::abs(y[static_cast<size_t>(at)] - wanted.value), wanted.bound)
              << "part " << part << ", row " << at;
        }
      }
    }
  }
}

TEST(GpuMatvec, KeepsWhatIsNotFinite) {
  APR_NEED_GPU();
  const TypeKernels q4_k("Q4_K");
  std::mt19937 random(3);
  const MatvecMatrix matrix = make_matrix(q4_k.type, Blocks(q4_k.type), 16, 512, random);
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    for (const bool exact : {false, true}) {
      std::vector<float> x(512, 1.0F);
      x[300] = bad;
      for (const float value : q4_k.multiply(matrix, test::to_device<float>(x), exact)) {
        EXPECT_FALSE(std::isfinite(value)) << "exact " << exact << ", x has " << bad;
      }
    }
  }
}

TEST(GpuMatvec, GivesTheSameBitsAgain) {
  APR_NEED_GPU();
  const TypeKernels q6_k("Q6_K");
  std::mt19937 random(5);
  const MatvecMatrix matrix = make_matrix(q6_k.type, Blocks(q6_k.type), 4000, 1024, random);
  std::normal_distribution<float> normal(0.0F, 1.0F);
  std::vector<float> x(1024);
  for (float& value : x) {
    value = normal(random);
  }
  const DeviceBuffer x_device = test::to_device<float>(x);
  const std::vector<float> first = q6_k.multiply(matrix, x_device, false);
  for (int repeat = 1; repeat < 20; ++repeat) {
    ASSERT_EQ(q6_k.multiply(matrix, x_device, false), first) << "repeat " << repeat;
  }
}

}  // namespace
}  // namespace apr::cuda

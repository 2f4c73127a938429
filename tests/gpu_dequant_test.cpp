// Dequantisation on the GPU, bit for bit the scalar reference: every type in both layouts, full
// shapes, partial last blocks, many rows, and every tensor of the fixtures. Scratch is NaN before;
// guards around it stay as they were.
#include <gtest/gtest.h>

#include <set>

#include "cuda/dequantizer.h"
#include "f16_value.cuh"
#include "support/fixtures.h"
#include "support/gpu_dequant.h"

namespace apr {
namespace {

using cuda::KernelLibrary;

// The rows of the kernel table named, for device 0.
KernelLibrary load_rows(const std::vector<std::string>& names) {
  std::vector<cuda::KernelRow> rows;
  for (const std::string& name : names) {
    rows.push_back(cuda::kernel_row(name));
  }
  cuda::KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  return {compiler, rows, cuda::use_device(0).architecture};
}

class GpuDequant : public testing::TestWithParam<const QuantType*> {
 protected:
  void SetUp() override {
    APR_NEED_GPU();
    std::vector<std::string> names;
    for (const bool planes : layouts()) {
      names.push_back(test::dequant_row(type(), planes, false));
      names.push_back(test::dequant_row(type(), planes, true));
    }
    kernels_ = std::make_unique<KernelLibrary>(load_rows(names));
  }

  const QuantType& type() const { return *GetParam(); }
  int64_t block() const { return std::max(type().block_elems, 32); }
  std::vector<bool> layouts() const {
    return type().block_elems == 1 ? std::vector<bool>{false} : std::vector<bool>{false, true};
  }

  void check(int64_t n_rows, int64_t n_cols, int64_t n_stored) const {
    const test::DequantProblem problem = test::random_problem(type(), n_rows, n_cols, n_stored);
    for (const bool planes : layouts()) {
      const std::string row = test::dequant_row(type(), planes, false);
      EXPECT_EQ(test::gpu_difference(*kernels_, row, problem, planes), "") << row;
    }
  }

  std::unique_ptr<KernelLibrary> kernels_;
};

TEST_P(GpuDequant, OfAFullShapeEqualsTheReference) {
  check(4096, 12288, 12288);
}

TEST_P(GpuDequant, OfAPartialLastBlockWritesItsColumnsAlone) {
  for (const int64_t n_rows : {1, 2, 33}) {
    for (const int64_t n_missing : {int64_t{1}, int64_t{5}, int64_t{8}, int64_t{13}, block() - 1}) {
      check(n_rows, 9 * block(), 9 * block() - n_missing);
    }
    check(n_rows, block(), 1);
    check(n_rows, 16 * block(), 16 * block() - 3);
  }
}

TEST_P(GpuDequant, OfManyRowsEqualsTheReference) {
  check(1, block(), block());
  check(2, block(), block());
  check(65537, block(), block());
  check(65537, block(), block() - 1);
}

TEST_P(GpuDequant, AsHalfIsTheNearestHalfOfTheScaledValue) {
  const test::DequantProblem problem =
      test::random_problem(type(), 67, 9 * block(), 9 * block() - 3);
  for (const bool planes : layouts()) {
    const std::string row = test::dequant_row(type(), planes, true);
    for (const float scale : {1.0F, 0x1p-9F, 0x1p11F}) {
      const auto output = test::run_gpu_dequant<uint16_t>(*kernels_, row, problem, planes, scale);
      const auto before = test::unwritten_output<uint16_t>(problem);
      const auto n_elems = static_cast<int64_t>(problem.expected.size());
      for (int64_t elem = -test::kGuardElems; elem < n_elems + test::kGuardElems; ++elem) {
        const auto at = static_cast<size_t>(elem + test::kGuardElems);
        const bool is_guard = elem < 0 || elem >= n_elems;
        const float wanted = is_guard ? 0.0F : problem.expected[static_cast<size_t>(elem)] * scale;
        ASSERT_EQ(output[at], is_guard ? before[at] : f16_bits(wanted))
            << row << " element " << elem << ": " << wanted;
      }
    }
  }
}

std::vector<const QuantType*> all_types() {
  std::vector<const QuantType*> types;
  for (const QuantType& type : quant_types()) {
    types.push_back(&type);
  }
  return types;
}

INSTANTIATE_TEST_SUITE_P(Type, GpuDequant, testing::ValuesIn(all_types()),
                         [](const auto& param) { return std::string(param.param->name); });

// i * 0.5 - 16, exact in half precision, as a matrix of 2 x 64.
TEST(GpuDequantF16, ReadsBackBitEqual) {
  APR_NEED_GPU();
  test::DequantProblem problem{find_quant_type("F16"), 2, 64, 64, {}, {}};
  std::vector<uint16_t> halves;
  for (int idx = 0; idx < 128; ++idx) {
    halves.push_back(f16_bits(static_cast<float>(idx) * 0.5F - 16.0F));
    problem.expected.push_back(static_cast<float>(idx) * 0.5F - 16.0F);
  }
  const auto bytes = std::as_bytes(std::span(halves));
  problem.raw.assign(bytes.begin(), bytes.end());
  const KernelLibrary kernels = load_rows({"dequant.F16.raw.f32", "dequant.F16.raw.f16"});
  EXPECT_EQ(test::gpu_difference(kernels, "dequant.F16.raw.f32", problem, false), "");
  const auto as_half =
      test::run_gpu_dequant<uint16_t>(kernels, "dequant.F16.raw.f16", problem, false);
  EXPECT_TRUE(std::equal(halves.begin(), halves.end(), as_half.begin() + test::kGuardElems));
}

class GpuDequantFixture : public testing::TestWithParam<std::string> {};

TEST_P(GpuDequantFixture, EveryTensorEqualsTheReference) {
  APR_NEED_GPU();
  const auto path = test::model_path(GetParam());
  if (!path) {
    GTEST_SKIP() << "SKIPPED: " << GetParam() << ".gguf is not here";
  }
  const GgufFile file = test::open_gguf(*path);
  std::set<std::string> names;
  for (const GgufTensor& tensor : file.tensors()) {
    const QuantType& type = *find_quant_type(tensor.type_id);
    names.insert(test::dequant_row(type, false, false));
    if (type.block_elems > 1) {
      names.insert(test::dequant_row(type, true, false));
    }
  }
  const KernelLibrary kernels = load_rows({names.begin(), names.end()});
  int n_checked = 0;
  for (const GgufTensor& tensor : file.tensors()) {
    const QuantType& type = *find_quant_type(tensor.type_id);
    const int64_t n_cols = tensor.shape.back();
    int64_t n_rows = 1;
    for (size_t axis = 0; axis + 1 < tensor.shape.size(); ++axis) {
      n_rows *= tensor.shape[axis];
    }
    test::DequantProblem problem{&type, n_rows, n_cols, n_cols, {}, {}};
    problem.raw.assign(tensor.data.begin(), tensor.data.end());
    if (type.block_elems == 1) {
      problem.raw.resize(problem.raw.size() + 64);  // the kernel reads whole eights
    }
    test::decode_expected(problem);
    for (const bool planes : {false, true}) {
      if (!planes || type.block_elems > 1) {
        EXPECT_EQ(
            test::gpu_difference(kernels, test::dequant_row(type, planes, false), problem, planes),
            "")
            << tensor.name;
        ++n_checked;
      }
    }
  }
  EXPECT_GT(n_checked, 20);
}

// As prefill has it: uploaded by DeviceWeights, decoded by Dequantizer.
TEST_P(GpuDequantFixture, EveryWeightEqualsTheReferenceAfterItsUpload) {
  APR_NEED_GPU();
  const auto path = test::model_path(GetParam());
  if (!path) {
    GTEST_SKIP() << "SKIPPED: " << GetParam() << ".gguf is not here";
  }
  const Model model(test::open_gguf(*path));
  std::set<std::string> names;
  for (const Weight& weight : model.weights()) {
    names.insert(test::dequant_row(*weight.type, cuda::has_planes(*weight.type), false));
  }
  const KernelLibrary kernels = load_rows({names.begin(), names.end()});
  const cuda::DeviceWeights weights(model.weights());
  const cuda::Stream stream = cuda::create_stream();
  cuda::Dequantizer dequantizer(kernels, stream, weights);
  for (const Weight& weight : model.weights()) {
    if (!weight.values.empty()) {
      continue;  // a vector is f32 already
    }
    const int64_t n_rows = weight.n_experts * weight.n_rows;
    test::DequantProblem problem{weight.type, n_rows, weight.n_cols, weight.n_cols, {}, {}};
    problem.raw.assign(weight.data, weight.data + weight.size_bytes);
    test::decode_expected(problem);
    const cuda::DeviceBuffer output = test::to_device<uint32_t>(
        std::span<const uint32_t>(test::unwritten_output<uint32_t>(problem)));
    dequantizer.to_f32(weight, {0, n_rows}, output.as<float>() + test::kGuardElems);
    APR_CUDA(cuda::api().cudaStreamSynchronize(stream.get()));
    EXPECT_EQ(test::difference(problem, test::to_host<uint32_t>(output)), "") << weight.name;
  }
  EXPECT_GT(dequantizer.launches().size(), 0U);
}

INSTANTIATE_TEST_SUITE_P(Model, GpuDequantFixture, testing::ValuesIn(test::fixture_names()),
                         [](const auto& param_info) { return test::param_name(param_info); });

}  // namespace
}  // namespace apr

// The way of weights to the device: the planes layout loses no bit, what is uploaded decodes to the
// reference's values, and a type without a kernel is named.
#include <gtest/gtest.h>

#include <cstdlib>

#include "cuda/dequantizer.h"
#include "support/cuda_double.h"
#include "support/fixtures.h"
#include "support/host_dequant.h"
#include "support/open_gguf.h"

namespace apr::cuda {
namespace {

// Where each byte of a block lies among the planes, by the kernels' own arithmetic.
template <class T, int kSegment = 0>
void add_places(const quant::PlanesBlock<T>& block, std::vector<const uint8_t*>& places) {
  if constexpr (kSegment < T::kSegments) {
    for (int byte = 0; byte < T::kSegmentBytes[kSegment]; ++byte) {
      places.push_back(block.template at<kSegment>(byte));
    }
    add_places<T, kSegment + 1>(block, places);
  }
}

template <class T>
void check_planes(const QuantType& type, int64_t n_rows, int64_t n_cols) {
  SCOPED_TRACE(fmt::format("{} {}x{}", type.name, n_rows, n_cols));
  if constexpr (T::kBlockElems == 1) {
    EXPECT_FALSE(has_planes(type));
  } else {
    ASSERT_TRUE(has_planes(type));
    const test::DequantProblem problem = test::random_problem(type, n_rows, n_cols, n_cols);
    const auto n_bytes = static_cast<size_t>(planes_bytes(type, n_rows, n_cols));
    std::vector<std::byte> planes(n_bytes, std::byte{0xa5});
    pack_planes(type, problem.raw.data(), n_rows, n_cols, planes.data());
    const auto* base = reinterpret_cast<const uint8_t*>(planes.data());
    std::vector<int> n_used(n_bytes);
    std::vector<std::byte> back;
    for (int64_t row = 0; row < n_rows; ++row) {
      for (int block = 0; block < n_cols / T::kBlockElems; ++block) {
        std::vector<const uint8_t*> places;
        add_places<T>(quant::planes_block<T>(base, n_cols, row, block), places);
        for (const uint8_t* place : places) {
          ASSERT_GE(place, base);
          ASSERT_LT(place, base + n_bytes);
          ++n_used[static_cast<size_t>(place - base)];
          back.push_back(std::byte{*place});
        }
      }
    }
    EXPECT_TRUE(back == problem.raw);  // the file's bytes again
    for (size_t at = 0; at < n_bytes; ++at) {
      ASSERT_LE(n_used[at], 1) << "two bytes of the file lie at " << at;
      if (n_used[at] == 0) {
        ASSERT_EQ(planes[at], std::byte{0}) << "padding at " << at;
      }
    }
  }
}

TEST(PackPlanes, KeepsEveryByteOfTheFileOnce) {
#define APR_QUANT_TYPE(type_id, name, Traits, file)                                               \
  for (const auto& [n_rows, n_blocks] : {std::pair{1, 1}, std::pair{1, 7}, std::pair{3, 5},       \
                                         std::pair{16, 8}, std::pair{17, 9}, std::pair{49, 1}}) { \
    check_planes<quant::Traits>(*find_quant_type(uint32_t{type_id}), n_rows,                      \
                                n_blocks * quant::Traits::kBlockElems);                           \
  }
#include "quant/type_rows.inc"
#undef APR_QUANT_TYPE
}

// The fakes with device memory on the host, so that what is uploaded can be read.
Api host_memory_api() {
  Api table = test::fake_api();
  table.cudaMalloc = [](void** data, size_t size_bytes) {
    *data = std::calloc(1, size_bytes);
    test::CudaDouble::current().adopt("device memory", *data);
    return cudaSuccess;
  };
  table.cudaFree = [](void* data) {
    test::CudaDouble::current().destroy("device memory", data);
    std::free(data);
    return cudaSuccess;
  };
  table.cudaMemcpyAsync = [](void* to, const void* from, size_t size_bytes, cudaMemcpyKind,
                             cudaStream_t) {
    std::memcpy(to, from, size_bytes);
    return cudaSuccess;
  };
  return table;
}

class Upload : public testing::TestWithParam<const char*> {};

TEST_P(Upload, OfEveryWeightDecodesToTheReferencesValues) {
  const Api table = host_memory_api();
  const test::CudaDouble cuda(&table);
  const Model model(test::open_gguf(test::model_fixture(GetParam())));
  const DeviceWeights weights(model.weights());
  std::vector<float> found, expected;
  for (const Weight& weight : model.weights()) {
    if (!weight.values.empty()) {
      EXPECT_EQ(std::memcmp(weights.vector(&weight), weight.values.data(),
                            weight.values.size() * sizeof(float)),
                0)
          << weight.name;
      continue;
    }
    const bool planes = has_planes(*weight.type);
    const test::DequantThread thread = test::host_dequant(*weight.type, planes, false);
    const int64_t n_rows = weight.n_experts * weight.n_rows;
    found.assign(static_cast<size_t>(n_rows * weight.n_cols), -1.0F);
    expected.assign(found.size(), 0.0F);
    weight.type->dequantize(weight.data, n_rows * weight.n_cols / weight.type->block_elems,
                            expected.data());
    DequantParams params{};
    params.w = weights.matrix(weight);
    EXPECT_EQ(params.w.n_rows, n_rows);
    params.out = found.data();
    params.n_cols = static_cast<int32_t>(weight.n_cols);
    for (int row = 0; row < n_rows; ++row) {
      for (int octet = 0; 8 * octet < weight.n_cols; ++octet) {
        thread(params, octet, row);
      }
    }
    EXPECT_EQ(test::difference(found, expected, weight.type->block_elems), "") << weight.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Model, Upload,
                         testing::Values("tiny-qwen2-legacy", "tiny-qwen3-iqmix", "tiny-qwen3-kmix",
                                         "tiny-qwen3moe-mix", "tiny-qwen35-UD-IQ2_XXS"),
                         [](const auto& param_info) { return test::param_name(param_info); });

TEST(MissingDequant, NamesTypeAndTensor) {
  const Model model(test::open_gguf(test::model_fixture("tiny-qwen3-kmix")));
  const auto whole = kernel_table();
  EXPECT_EQ(missing_dequant(model.weights(), whole), std::nullopt);
  int n_removed = 0;
  for (const Weight& weight : model.weights()) {
    for (const std::string form : {"f32", "f16"}) {
      const std::string removed = fmt::format("dequant.{}.{}.{}", weight.type->name,
                                              has_planes(*weight.type) ? "planes" : "raw", form);
      std::vector<KernelRow> rows;
      for (const KernelRow& row : whole) {
        if (row.name != removed) {
          rows.push_back(row);
        }
      }
      ASSERT_EQ(rows.size() + 1, whole.size()) << removed;
      const auto missing = missing_dequant({&weight, 1}, rows);
      if (weight.type->name == "F32" && form == "f32") {
        EXPECT_EQ(missing, std::nullopt);
        continue;
      }
      EXPECT_EQ(missing, fmt::format("no {} dequant kernel for {} ({})", form, weight.type->name,
                                     weight.name));
      ++n_removed;
    }
  }
  EXPECT_GT(n_removed, 20);
}

}  // namespace
}  // namespace apr::cuda

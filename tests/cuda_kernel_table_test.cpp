// Every row of the kernel table compiles for every architecture it names, without local memory.
#include "cuda/kernel_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>
#include <string>

#include "apr/error.h"
#include "cuda/api.h"
#include "support/ptxas_log.h"

namespace apr::cuda {
namespace {

class KernelTableOn : public testing::TestWithParam<std::string_view> {};

// With APR_ALL_KERNELS=1 every row is compiled for every architecture (about ten minutes on two
// cores); else for sm_90a, and elsewhere those of one type, another for each architecture: the
// types differ in arithmetic alone.
bool is_compiled_here(const KernelRow& row, std::string_view arch) {
  const char* all = std::getenv("APR_ALL_KERNELS");
  if (arch == "sm_90a" || (all != nullptr && std::string_view(all) == "1")) {
    return true;
  }
  if (row.quant_file.empty()) {
    return !row.name.starts_with("attention_decode.") || row.name.ends_with(".4");
  }
  static constexpr std::array<std::string_view, 5> kFiles{"/q4_k.cuh", "/q6_k.cuh", "/q8_0.cuh",
                                                          "/iq3_s.cuh", "/f16.cuh"};
  const auto architectures = tested_architectures();
  const auto rank = std::find(architectures.begin(), architectures.end(), arch);
  return row.quant_file.ends_with(
      kFiles[static_cast<size_t>(rank - architectures.begin()) % kFiles.size()]);
}

TEST_P(KernelTableOn, EveryRowCompilesWithoutLocalMemory) {
  if (!api().library(Library::kNvrtc).loaded) {
    GTEST_SKIP() << "SKIPPED: no kernel was compiled, for there is no NVRTC here: "
                 << api().library(Library::kNvrtc).reason;
  }
  std::vector<const KernelRow*> rows;
  std::vector<CompileRequest> requests;
  for (const KernelRow& row : kernel_table()) {
    if (runs_on(row, GetParam()) && is_compiled_here(row, GetParam())) {
      rows.push_back(&row);
      requests.push_back(compile_request(row, GetParam()));
    }
  }
  ASSERT_FALSE(rows.empty());
  KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
  const std::vector<CompiledKernel> kernels = compiler.compile_all(requests);
  for (size_t idx = 0; idx < rows.size(); ++idx) {
    EXPECT_EQ(test::local_memory_lines(kernels[idx].log), "") << rows[idx]->name;
    EXPECT_FALSE(kernels[idx].cubin.empty()) << rows[idx]->name;
    EXPECT_EQ(kernels[idx].lowered_names.size(), 1U) << rows[idx]->name;
  }
}

INSTANTIATE_TEST_SUITE_P(Architecture, KernelTableOn, testing::ValuesIn(tested_architectures()),
                         [](const auto& arch) { return std::string(arch.param); });

TEST(KernelTable, SpillCheckFindsLocalMemory) {
  if (!api().library(Library::kNvrtc).loaded) {
    GTEST_SKIP() << "SKIPPED: no NVRTC here: " << api().library(Library::kNvrtc).reason;
  }
  const KernelSource planted{"planted.cu",
                             "__global__ void planted(int* p) {\n"
                             "  int words[64];\n"
                             "  for (int i = 0; i < 64; ++i) words[p[i] & 63] = p[i + 64];\n"
                             "  for (int i = 0; i < 64; ++i) p[i] = words[p[i] & 63];\n"
                             "}\n"};
  KernelCompiler compiler({}, {&planted, 1});
  const CompiledKernel kernel = compiler.compile({"planted.cu", {"planted"}, {}, "sm_80"});
  EXPECT_NE(test::local_memory_lines(kernel.log), "");
}

TEST(KernelTable, NamesRowsOnceAndArchitecturesThatAreTested) {
  std::set<std::string_view> names;
  const auto tested = tested_architectures();
  for (const KernelRow& row : kernel_table()) {
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    for (const std::string_view arch : row.only) {
      EXPECT_NE(std::find(tested.begin(), tested.end(), arch), tested.end()) << row.name << arch;
    }
  }
}

TEST(KernelTable, ChoosesTheArchitectureOfADevice) {
  EXPECT_EQ(device_architecture(7, 5), "sm_75");
  EXPECT_EQ(device_architecture(8, 0), "sm_80");
  EXPECT_EQ(device_architecture(8, 7), "sm_86");
  EXPECT_EQ(device_architecture(8, 9), "sm_89");
  EXPECT_EQ(device_architecture(9, 0), "sm_90a");
  EXPECT_EQ(device_architecture(10, 3), "sm_100");
  EXPECT_EQ(device_architecture(11, 0), "sm_110");
  EXPECT_EQ(device_architecture(12, 0), "sm_120");
  EXPECT_EQ(device_architecture(12, 1), "sm_121");
}

TEST(KernelSources, AreAscii) {
  for (const KernelSource& source : embedded_sources()) {
    for (const char byte : source.text) {
      ASSERT_LT(static_cast<unsigned char>(byte), 128) << source.path;
    }
  }
}

// g++ looks beside the includer first, NVRTC's tree has no such rule: a name must mean one file.
TEST(KernelSources, IncludeByPathUnderKernels) {
  for (const KernelSource& source : embedded_sources()) {
    EXPECT_NO_THROW(with_includes(embedded_sources(), source.path)) << source.path;
  }
}

}  // namespace
}  // namespace apr::cuda

// Dequant kernels are free of loops: a thread's work is straight code, whose time does not depend
// on the weights.
#include <gtest/gtest.h>

#include <cstdlib>

#include "apr/error.h"
#include "apr/quant.h"
#include "cuda/kernel_table.h"
#include "support/ptx.h"

namespace apr::cuda {
namespace {

#define APR_NEED_NVRTC()                                                 \
  do {                                                                   \
    if (!api().library(Library::kNvrtc).loaded) {                        \
      GTEST_SKIP() << "SKIPPED: no kernel was compiled, no NVRTC here: " \
                   << api().library(Library::kNvrtc).reason;             \
    }                                                                    \
  } while (0)

class DequantPtx : public testing::TestWithParam<std::string> {};

TEST_P(DequantPtx, HasNoLoop) {
  APR_NEED_NVRTC();
  std::vector<std::string> names, e4m3;  // for every architecture; for sm_89 and later
  std::string quant_file;
  for (const KernelRow& row : kernel_table()) {
    if (row.name.starts_with("dequant.") && row.quant_type == GetParam()) {
      (row.name.ends_with(".e4m3") ? e4m3 : names).emplace_back(row.name_expression);
      quant_file = row.quant_file;
    }
  }
  const QuantType& type = *find_quant_type(std::string_view(GetParam()));
  ASSERT_EQ(names.size(), type.block_elems == 1 ? 2U : 4U);  // layouts x {f32, f16}
  ASSERT_EQ(e4m3.size(), 1U);
  for (const char* arch : {"compute_75", "compute_90a"}) {
    const std::string ptx =
        test::compile_to_ptx(embedded_sources(), "dequant.cu", quant_file, names, arch);
    EXPECT_EQ(test::repeating_instructions(ptx), "") << arch;
  }
  EXPECT_EQ(test::repeating_instructions(test::compile_to_ptx(embedded_sources(), "dequant.cu",
                                                              quant_file, e4m3, "compute_90a")),
            "");
}

std::vector<std::string> type_names() {
  std::vector<std::string> names;
  for (const QuantType& type : quant_types()) {
    names.emplace_back(type.name);
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Type, DequantPtx, testing::ValuesIn(type_names()),
                         [](const auto& param) { return param.param; });

std::string planted(const std::string& body) {
  const std::string text =
      "__device__ __noinline__ int twice(int x) { return x * x + 1; }\n"
      "__global__ void planted(int* p, int n) { " +
      body + " }\n";
  const KernelSource source{"planted.cu", text};
  return test::repeating_instructions(
      test::compile_to_ptx({&source, 1}, "planted.cu", {}, {"planted"}, "compute_90a"));
}

TEST(DequantPtxCheck, SeesLoopsAndCalls) {
  APR_NEED_NVRTC();
  EXPECT_EQ(planted("if (n > 3) p[n] = n / 3; else p[0] = p[n] + 2;"), "");
  EXPECT_EQ(planted("_Pragma(\"unroll\") for (int i = 0; i < 8; ++i) p[i] = p[i] * n;"), "");
  EXPECT_NE(planted("for (int i = 0; i < n; ++i) p[i] = p[i] * p[i + 1];"), "");
  EXPECT_NE(planted("_Pragma(\"unroll 1\") for (int i = 0; i < 8; ++i) p[i] = p[i] * n;"), "");
  EXPECT_NE(planted("do { n = p[n]; } while (n != 0); p[1] = n;"), "");
  EXPECT_NE(planted("p[n] = twice(p[n]);"), "");
  EXPECT_EQ(test::repeating_instructions("// nothing"), "no kernel");
}

}  // namespace
}  // namespace apr::cuda

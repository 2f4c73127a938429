// The fault matrix on the GPU: each kernel compiled with each fault planted must fail the check
// that it passes without. A cell where a fault does not apply must stay green.
#include <gtest/gtest.h>

#include <deque>

#include "support/fault_cells.h"
#include "support/gpu_dequant.h"

namespace apr {
namespace {

// Every type and layout without a fault and with each, compiled at once.
class PlantedKernels {
 public:
  PlantedKernels() {
    for (const QuantType& type : quant_types()) {
      for (const bool planes : {false, true}) {
        if (planes && type.block_elems == 1) {
          continue;
        }
        add(type, planes, {});
        for (const test::FaultColumn& column : test::kFaultColumns) {
          add(type, planes, column.name);
        }
      }
    }
    cuda::KernelCompiler compiler(APR_TEST_KERNEL_CACHE);
    kernels_ =
        std::make_unique<cuda::KernelLibrary>(compiler, rows_, cuda::use_device(0).architecture);
  }

  // What the check says; rows are ragged, so that a tail past them is a fault.
  std::string run(const QuantType& type, bool planes, std::string_view fault) const {
    const int64_t n_cols = 3 * std::max(type.block_elems, 32);
    const test::DequantProblem problem = test::random_problem(type, 37, n_cols, n_cols - 3);
    return test::gpu_difference(*kernels_, name(type, planes, fault), problem, planes);
  }

 private:
  static std::string name(const QuantType& type, bool planes, std::string_view fault) {
    return fmt::format("{}.{}", test::dequant_row(type, planes, false), fault);
  }

  void add(const QuantType& type, bool planes, std::string_view fault) {
    cuda::KernelRow row = cuda::kernel_row(test::dequant_row(type, planes, false));
    row.name = names_.emplace_back(name(type, planes, fault));
    if (!fault.empty()) {
      row.options.push_back(fmt::format("--define-macro=APR_FAULTS={}", fault));
    }
    rows_.push_back(row);
  }

  std::deque<std::string> names_;  // what the rows' views name
  std::vector<cuda::KernelRow> rows_;
  std::unique_ptr<cuda::KernelLibrary> kernels_;
};

TEST(GpuFaultMatrix, EveryCellIsRedAndTheRestoredKernelGreen) {
  APR_NEED_GPU();
  const PlantedKernels planted;
  int n_red = 0, n_empty = 0;
  for (const QuantType& type : quant_types()) {
    std::string line = fmt::format("{:8}", type.name);
    for (const bool planes : {false, true}) {
      if (planes && type.block_elems == 1) {
        continue;
      }
      EXPECT_EQ(planted.run(type, planes, {}), "");
      for (const test::FaultColumn& column : test::kFaultColumns) {
        const std::string_view reason = test::empty_cell(type, column.fault);
        const bool seen = !planted.run(type, planes, column.name).empty();
        EXPECT_EQ(seen, reason.empty()) << type.name << ", " << column.title
                                        << (planes ? ", planes" : ", raw") << " " << reason;
        n_red += seen ? 1 : 0;
        n_empty += reason.empty() ? 0 : 1;
        line += fmt::format(" {}{}",
                            seen             ? "red"
                            : reason.empty() ? "GREEN"
                                             : "-",
                            &column == &test::kFaultColumns.back() && !planes ? " |" : "");
      }
    }
    fmt::print("{}\n", line);
  }
  fmt::print("{} cells red, {} empty; columns: raw | planes, in the order of the host's matrix\n",
             n_red, n_empty);
  EXPECT_EQ(n_red, 2 * 116 - 6);  // plain types have two cells each and one layout
}

}  // namespace
}  // namespace apr

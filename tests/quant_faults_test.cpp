// The fault matrix on the host: the dequant kernel with each fault planted must fail the very check
// that it passes without. A cell where a fault does not apply must stay green.
#include <gtest/gtest.h>

#include "support/fault_cells.h"
#include "support/host_dequant.h"

namespace apr {
namespace {

// What the check says with `fault` planted; rows are ragged, so that a tail past them is a fault.
std::string run_with(const QuantType& type, quant::Fault fault, bool planes) {
  const int64_t n_cols = 3 * std::max(type.block_elems, 32);
  const test::DequantProblem problem = test::random_problem(type, 37, n_cols, n_cols - 3);
  quant::planted_fault = fault;
  const std::string found = test::host_difference(problem, planes);
  quant::planted_fault = quant::Fault::kNone;
  return found;
}

TEST(FaultMatrix, EveryCellIsRedAndTheRestoredKernelGreen) {
  std::string header = fmt::format("{:8}", "");
  for (const test::FaultColumn& column : test::kFaultColumns) {
    header += fmt::format(" {:>10}", column.title);
  }
  fmt::print("{}   restored\n", header);
  int n_red = 0, n_empty = 0;
  for (const QuantType& type : quant_types()) {
    std::string line = fmt::format("{:8}", type.name);
    for (const test::FaultColumn& column : test::kFaultColumns) {
      const std::string_view reason = test::empty_cell(type, column.fault);
      bool red = true, green = true;
      for (const bool planes : {false, true}) {
        if (planes && type.block_elems == 1) {
          continue;
        }
        const bool seen = !run_with(type, column.fault, planes).empty();
        red = red && seen;
        green = green && !seen;
        EXPECT_EQ(seen, reason.empty()) << type.name << ", " << column.title
                                        << (planes ? ", planes" : ", raw") << " " << reason;
      }
      n_red += red ? 1 : 0;
      n_empty += reason.empty() ? 0 : 1;
      line += fmt::format(" {:>10}", red ? "red" : green ? reason.empty() ? "GREEN" : "-" : "HALF");
    }
    EXPECT_EQ(run_with(type, quant::Fault::kNone, false), "");
    if (type.block_elems > 1) {
      EXPECT_EQ(run_with(type, quant::Fault::kNone, true), "");
    }
    fmt::print("{}   {}\n", line, HasFailure() ? "see above" : "green");
  }
  fmt::print("{} cells red, {} empty (-), of {}\n", n_red, n_empty,
             quant_types().size() * test::kFaultColumns.size());
  for (const test::EmptyCells& cells : test::kEmptyCells) {
    for (const test::FaultColumn& column : test::kFaultColumns) {
      if (column.fault == cells.fault) {
        fmt::print("  - {}:{}: {}\n", column.title, cells.types, cells.reason);
      }
    }
  }
}

TEST(FaultMatrix, EmptyCellsNameTypesOfTheTable) {
  for (const test::EmptyCells& cells : test::kEmptyCells) {
    std::istringstream words{std::string(cells.types)};
    for (std::string word; words >> word;) {
      EXPECT_NE(find_quant_type(word), nullptr) << word;
    }
  }
}

}  // namespace
}  // namespace apr

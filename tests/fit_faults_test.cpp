// The fault matrix of the fit: each term dropped, each rule bent, must fail the check that passes
// without; see tools/fault_matrix.sh.
#include <gtest/gtest.h>

#include "fit/fault_points.h"
#include "support/fit_checks.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

std::string all_differences() {
  const Model dense(test::open_gguf(test::model_fixture("tiny-qwen3-kmix")));
  const Model moe(test::open_gguf(test::model_fixture("tiny-qwen3moe-mix")));
  return test::walk_difference(dense) + test::walk_difference(moe) + test::need_difference() +
         test::boundary_difference();
}

TEST(FitFaultMatrix, EveryFaultIsRedAndTheRestoredFitGreen) {
  const std::pair<FitFault, const char*> rows[] = {
      {FitFault::kNoWeights, "weights dropped"}, {FitFault::kNoCache, "16-bit cache dropped"},
      {FitFault::kNoKv, "KV dropped"},           {FitFault::kNoReserve, "reserve dropped"},
      {FitFault::kNoHead, "head dropped"},       {FitFault::kOneExpert, "one expert of all"},
      {FitFault::kOneByteCache, "2 -> 1 byte"},  {FitFault::kAtLeast, "> -> >="},
  };
  for (const auto& [fault, name] : rows) {
    planted_fit_fault = fault;
    const std::string seen = all_differences();
    planted_fit_fault = FitFault::kNone;
    EXPECT_NE(seen, "") << name << " is not seen";
    EXPECT_EQ(all_differences(), "") << "after " << name;
    fmt::print("fit: {:22} {}\n", name, seen.empty() ? "GREEN" : "red");
  }
}

}  // namespace
}  // namespace apr

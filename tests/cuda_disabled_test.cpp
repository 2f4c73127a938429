// A build without CUDA: the same functions, and the line that would mend it.
#include <gtest/gtest.h>

#include "cuda/doctor.h"
#include "support/expect_error.h"

namespace apr::cuda {
namespace {

TEST(WithoutCuda, ReadinessSaysWhatWouldMendIt) {
  const Readiness readiness = check_readiness(0);
  EXPECT_FALSE(readiness.ready);
  EXPECT_EQ(readiness.code, ErrorCode::kFeatureDisabled);
  EXPECT_NE(readiness.remedy.find("tools/quickstart.sh"), std::string::npos);
}

TEST(WithoutCuda, EveryUseIsFeatureDisabled) {
  const std::string reason = "built without CUDA; bash tools/quickstart.sh";
  test::expect_error(ErrorCode::kFeatureDisabled, reason, [] { use_device(0); });
  test::expect_error(ErrorCode::kFeatureDisabled, reason, [] { list_devices(); });
  test::expect_error(ErrorCode::kFeatureDisabled, reason, [] { device_memory(); });
}

TEST(WithoutCuda, DoctorHasTheSameRow) {
  const DoctorReport report = examine(0);
  EXPECT_FALSE(report.compiled);
  ASSERT_EQ(report.rows.size(), 1U);
  EXPECT_FALSE(report.rows[0].good);
  EXPECT_FALSE(report.rows[0].remedy.empty());
}

}  // namespace
}  // namespace apr::cuda

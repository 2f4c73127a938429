#include "base/format.h"

#include <gtest/gtest.h>

#include <array>

namespace apr {
namespace {

TEST(Format, BytesUseDecimalUnits) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(999), "999 B");
  EXPECT_EQ(format_bytes(1000), "1.0 kB");
  EXPECT_EQ(format_bytes(491'400'064), "491.4 MB");
  EXPECT_EQ(format_bytes(UINT64_MAX), "18.4 EB");
}

TEST(Format, ShapeIsSlowestAxisFirst) {
  EXPECT_EQ(format_shape(std::array<int64_t, 2>{151936, 896}), "[151936, 896]");
  EXPECT_EQ(format_shape({}), "[]");
}

}  // namespace
}  // namespace apr

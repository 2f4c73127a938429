#include "apr/error.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace apr {
namespace {

TEST(ErrorCode, TableHasOneRowPerExitCodeAscending) {
  const std::set<int> expected = {1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 13, 14, 130};
  std::set<int> codes;
  std::set<std::string> names;
  int previous = 0;
  for (const ErrorCodeRow& row : error_code_table()) {
    const int code = static_cast<int>(row.code);
    EXPECT_GT(code, previous);
    previous = code;
    codes.insert(code);
    EXPECT_TRUE(names.insert(row.name).second) << row.name;
    EXPECT_STRNE(row.meaning, "");
    EXPECT_EQ(&error_code_row(row.code), &row);
    EXPECT_EQ(Error(row.code, "x").exit_code(), code);
  }
  EXPECT_EQ(codes, expected);
}

}  // namespace
}  // namespace apr

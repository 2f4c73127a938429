// Expects a call to throw apr::Error with a code and a piece of its message.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "apr/error.h"

namespace apr::test {

// The message of the apr::Error that `call` throws; a failure and "" where it throws none, or one
// of another code, or one whose message lacks `fragment`.
template <typename Call>
std::string expect_error(ErrorCode code, const std::string& fragment, Call call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error_code_row(error.code()).name, std::string(error_code_row(code).name))
        << error.what();
    EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos)
        << "message:  " << error.what() << "\nexpected: " << fragment;
    return error.what();
  }
  ADD_FAILURE() << "no error, expected: " << fragment;
  return "";
}

}  // namespace apr::test

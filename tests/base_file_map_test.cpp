#include "base/file_map.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "apr/error.h"

namespace apr {
namespace {

std::filesystem::path temp_path(const std::string& name) {
  return std::filesystem::path(::testing::TempDir()) / name;
}

ErrorCode code_of(const std::filesystem::path& path) {
  try {
    FileMap map(path);
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << path << " was mapped";
  return ErrorCode::kGeneric;
}

TEST(FileMap, MapsTheWholeFile) {
  const auto path = temp_path("apr_file_map");
  std::ofstream(path) << "hello";
  const FileMap map(path);
  ASSERT_EQ(map.bytes().size(), 5U);
  EXPECT_EQ(map.bytes()[4], std::byte{'o'});
  std::ofstream(path, std::ios::trunc).close();
  EXPECT_TRUE(FileMap(path).bytes().empty());
  std::filesystem::remove(path);
}

TEST(FileMap, RefusesWhatIsNoRegularFile) {
  EXPECT_EQ(code_of(temp_path("apr_no_such_file")), ErrorCode::kFileNotFound);
  EXPECT_EQ(code_of(::testing::TempDir()), ErrorCode::kFileNotFound);
  const auto fifo = temp_path("apr_fifo");
  std::filesystem::remove(fifo);
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  EXPECT_EQ(code_of(fifo), ErrorCode::kFileNotFound);  // at once, though nobody writes
  std::filesystem::remove(fifo);
}

}  // namespace
}  // namespace apr

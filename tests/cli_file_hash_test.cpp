// Hashes of files: what is remembered, and what makes a file another.
#include "cli/file_hash.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/sha256.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"

namespace apr::cli {
namespace {

constexpr const char* kOfAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

class FileHash : public testing::Test {
 protected:
  void SetUp() override { ::setenv("XDG_CACHE_HOME", (folder_ / "cache").c_str(), 1); }

  std::filesystem::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  std::vector<std::filesystem::path> entries() const {
    std::vector<std::filesystem::path> found;
    std::error_code error;
    for (const auto& entry :
         std::filesystem::directory_iterator(folder_ / "cache/apr/hashes", error)) {
      found.push_back(entry.path());
    }
    return found;
  }

  test::TempFolder folder_;
};

TEST_F(FileHash, IsOfTheWholeFile) {
  EXPECT_EQ(file_sha256(write("abc", "abc"), {}), kOfAbc);
  EXPECT_TRUE(entries().empty());  // too young to be known by its times
  const std::string large((size_t{9} << 20) + 5, 'x');
  Sha256 sha;
  sha.add(std::as_bytes(std::span(large)));
  uint64_t last = 0;
  EXPECT_EQ(file_sha256(write("large", large),
                        [&](uint64_t done, uint64_t total) {
                          EXPECT_GT(done, last);
                          EXPECT_EQ(total, large.size());
                          last = done;
                        }),
            sha.hex());
  EXPECT_EQ(last, large.size());
  test::expect_error(ErrorCode::kFileNotFound, "/no/such", [] { file_sha256("/no/such", {}); });
  test::expect_error(ErrorCode::kIo, "directory", [&] { file_sha256(folder_.path(), {}); });
}

TEST_F(FileHash, OfPartsDependsOnEachAndTheirOrder) {
  const std::string a = write("a", "abc"), b = write("b", "b");
  EXPECT_EQ(files_sha256(std::vector{a}, {}), kOfAbc);
  const std::string both = files_sha256(std::vector{a, b}, {});
  EXPECT_NE(both, files_sha256(std::vector{b, a}, {}));
  write("b", "c");
  EXPECT_NE(both, files_sha256(std::vector{a, b}, {}));
}

TEST_F(FileHash, IsRememberedUntilTheFileIsAnother) {
  const auto path = write("abc", "abc"), odd = write("not \xff UTF-8", "abc");
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(file_sha256(path, {}), kOfAbc);
  ASSERT_EQ(entries().size(), 1U);
  // A second call does not read: it answers what the entry says.
  std::ifstream in(entries()[0]);
  auto entry = nlohmann::ordered_json::parse(in);
  const std::string other(64, '0');
  entry["sha256"] = other;
  std::ofstream(entries()[0]) << entry;
  EXPECT_EQ(file_sha256(path, {}), other);
  // The same size and time of modification, another content.
  const auto time = std::filesystem::last_write_time(path);
  write("abc", "abd");
  std::filesystem::last_write_time(path, time);
  EXPECT_NE(file_sha256(path, {}), other);
  EXPECT_NE(file_sha256(path, {}), kOfAbc);
  for (const char* text : {"", "{}", "7", "{\"file\": {}, \"sha256\": 5}"}) {
    std::ofstream(entries()[0]) << text;
    EXPECT_NE(file_sha256(path, {}), other);
  }
  EXPECT_EQ(file_sha256(odd, {}), kOfAbc);
  EXPECT_EQ(entries().size(), 2U);
  for (const auto& found : entries()) {  // what is no hash is not believed, of any length
    std::ifstream entry_in(found);
    auto bad = nlohmann::ordered_json::parse(entry_in, nullptr, false);
    if (bad.is_object() && bad.contains("sha256")) {
      bad["sha256"] = std::string(64, '/');
      std::ofstream(found) << bad;
    }
  }
  EXPECT_EQ(file_sha256(odd, {}), kOfAbc);
}

// What lies where a hash should be remembered.
TEST_F(FileHash, IsComputedWhereTheEntryIsNoFile) {
  const auto path = write("abc", "abc");
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(file_sha256(path, {}), kOfAbc);
  ASSERT_EQ(entries().size(), 1U);
  const auto entry = entries()[0];
  std::filesystem::remove(entry);
  ASSERT_EQ(::mkfifo(entry.c_str(), 0600), 0);  // nobody writes to it
  EXPECT_EQ(file_sha256(path, {}), kOfAbc);
  std::filesystem::remove(entry);
  std::filesystem::create_symlink("/dev/zero", entry);
  EXPECT_EQ(file_sha256(path, {}), kOfAbc);
  std::filesystem::remove(entry);
  std::filesystem::create_symlink(entry, entry);
  EXPECT_EQ(file_sha256(path, {}), kOfAbc);
  std::filesystem::remove(entry);
  std::filesystem::create_directory(entry);
  EXPECT_EQ(file_sha256(path, {}), kOfAbc);
}

TEST_F(FileHash, OfTheProgramNamesTheBuild) {
  EXPECT_EQ(build_id().substr(0, 11), "exe-sha256:");
  EXPECT_EQ(build_id().size(), 11U + 64U);
  EXPECT_EQ(build_id(), build_id());
}

}  // namespace
}  // namespace apr::cli

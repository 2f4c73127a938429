// Cut, flipped and bloated files: named as such, and never dear in time or memory.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>

#include "gguf/parser.h"
#include "support/expect_error.h"
#include "support/gguf_images.h"
#include "support/gguf_writer.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

using test::ByteBuilder;
using test::GgufWriter;
using test::header;
using test::kF32;
using test::kQ8_0;
using test::one_key;
using test::put_tensor;

#ifdef APR_SANITIZED
constexpr double kSlowdown = 10.0;
#else
constexpr double kSlowdown = 1.0;
#endif

// --- Truncation: field report kind 33 ---

// Cuts `image` to n_bytes: refused as ending there, while something needs more.
void expect_truncated(std::span<const std::byte> image, size_t n_bytes) {
  const std::string fragment = fmt::format("file ends at byte {}, ", n_bytes);
  const std::string message = test::expect_error(
      ErrorCode::kInvalidFormat, fragment, [&] { test::open_gguf_image(image.first(n_bytes)); });
  const size_t needs = message.rfind(" needs ");
  ASSERT_NE(needs, std::string::npos) << message;
  EXPECT_GT(std::stoull(message.substr(needs + 7)), n_bytes) << message;
}

TEST(GgufTruncation, EveryCutIsNamed) {
  const std::vector<std::byte> image = test::read_file(test::model_fixture("tiny-qwen3-iqmix"));
  const GgufFile whole = test::open_gguf_image(image);
  const size_t data_byte = whole.tensors().front().file_offset_bytes;
  // Every byte where fields are dense (the first keys, the tensor table), every 37th of the
  // vocabulary between: each cut in it takes the same path.
  for (size_t n_bytes = 0; n_bytes < data_byte;
       n_bytes += n_bytes < 2048 || n_bytes + 6000 > data_byte ? 1 : 37) {
    expect_truncated(image, n_bytes);
  }
  for (const GgufTensor& tensor : whole.tensors()) {
    for (const size_t n_bytes :
         {tensor.file_offset_bytes - 1, tensor.file_offset_bytes, tensor.file_offset_bytes + 1,
          tensor.file_offset_bytes + tensor.data.size() - 1}) {
      expect_truncated(image, n_bytes);
    }
  }
}

TEST(GgufTruncation, NamesTheFirstTensorThatIsCut) {
  const std::vector<std::byte> image = test::read_file(test::model_fixture("tiny-qwen3moe-mix"));
  const GgufFile whole = test::open_gguf_image(image);
  for (const char* name : {"token_embd.weight", "blk.4.ffn_up_exps.weight"}) {
    const GgufTensor* tensor = whole.find_tensor(name);
    ASSERT_NE(tensor, nullptr);
    const uint64_t end_byte = tensor->file_offset_bytes + tensor->data.size();
    test::expect_error(ErrorCode::kInvalidFormat,
                       fmt::format("test.gguf: file ends at byte {}, tensor {} needs {}",
                                   end_byte - 1, name, end_byte),
                       [&] { test::open_gguf_image(std::span(image).first(end_byte - 1)); });
  }
}

TEST(GgufTruncation, ACutFileIsNamedWithItsPath) {
  const test::TempFolder folder;
  const std::vector<std::byte> image = test::read_file(test::model_fixture("tiny-qwen2-legacy"));
  for (const size_t n_bytes : {size_t{0}, size_t{4}, size_t{24}, size_t{1000}, image.size() / 2}) {
    test::write_file(folder / "cut.gguf", std::span(image).first(n_bytes));
    test::expect_error(
        ErrorCode::kInvalidFormat,
        fmt::format("{}: file ends at byte {}, ", (folder / "cut.gguf").string(), n_bytes),
        [&] { test::open_gguf(folder / "cut.gguf"); });
  }
}

// A flipped byte makes another file or a refusal, nothing else (with sanitizers: no bad access).
TEST(GgufTruncation, FlippedBytesNeverDoMoreThanThrow) {
  GgufWriter writer;
  writer.set_string("general.architecture", "none");
  writer.set<uint32_t>("general.alignment", 32);
  writer.set_string_array("tokens", {"a", "bb", "ccc"});
  writer.set_array<bool>("bools", {true, false});
  writer.add_tensor({"a", {3, 64}, kQ8_0, std::vector<std::byte>(3 * 2 * 34)});
  writer.add_tensor({"b", {5}, kF32, std::vector<std::byte>(20)});
  const std::vector<std::byte> image = writer.bytes();
  int n_refused = 0;
  for (size_t at = 0; at < image.size(); ++at) {
    for (const int mask : {0x01, 0x10, 0x80, 0xFF}) {
      std::vector<std::byte> flipped = image;
      flipped[at] ^= static_cast<std::byte>(mask);
      try {
        const GgufFile file = test::open_gguf_image(flipped);
        for (const GgufKeyValue& entry : file.metadata()) {
          (void)entry.value.as_string_array();
        }
      } catch (const Error& error) {
        EXPECT_TRUE(error.code() == ErrorCode::kInvalidFormat ||
                    error.code() == ErrorCode::kModelLoad);
        ++n_refused;
      }
    }
  }
  EXPECT_GT(n_refused, 200);
}

// --- Cost: below one second and 100 MB whatever the file claims or holds ---

struct Cost {
  double cpu_s;
  double peak_mb;  // above what a process costs that does nothing
};

long peak_kb_of(const std::function<void()>& work, double* cpu_s) {
  const pid_t child = ::fork();
  if (child == 0) {
    work();
    ::_exit(0);
  }
  int status = 0;
  rusage usage{};
  EXPECT_EQ(::wait4(child, &status, 0, &usage), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  *cpu_s = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  return usage.ru_maxrss;
}

// Opens `path` in a process of its own, whether it is refused or not.
Cost cost_of_opening(const std::filesystem::path& path) {
  double cpu_s = 0.0;
  const long idle_kb = peak_kb_of([] {}, &cpu_s);
  const long peak_kb = peak_kb_of(
      [&] {
        try {
          const GgufFile file = test::open_gguf(path);
        } catch (const Error&) {
        }
      },
      &cpu_s);
  return {cpu_s, static_cast<double>(peak_kb - idle_kb) / 1024.0};
}

void expect_cheap(const std::filesystem::path& path, const char* what) {
  const Cost cost = cost_of_opening(path);
  EXPECT_LT(cost.cpu_s, 1.0 * kSlowdown) << what;
  EXPECT_LT(cost.peak_mb, 100.0) << what;
  fmt::print("{}: {:.3f} s, {:.1f} MB\n", what, cost.cpu_s, cost.peak_mb);
}

// Writes `head` as a file that claims to be 1 TiB long: real bytes, all zero, no disk.
void write_sparse(const std::filesystem::path& path, const ByteBuilder& head) {
  test::write_file(path, head.bytes());
  std::filesystem::resize_file(path, 1ull << 40);
}

TEST(GgufLimits, ClaimsCostNothing) {
  const test::TempFolder folder;
  const auto array_head = [](GgufValueType type, uint64_t count) {
    return one_key(GgufValueType::kArray).put(static_cast<uint32_t>(type)).put(count);
  };
  const std::vector<std::pair<const char*, ByteBuilder>> cases = {
      {"2^60 tensors", header(1ull << 60, 0)},
      {"2^60 keys", header(0, 1ull << 60)},
      {"65536 tensors of zeros", header(65536, 0)},
      {"65536 keys of zeros", header(0, 65536)},
      {"2^40 strings", array_head(GgufValueType::kString, 1ull << 40)},
      {"2^22 empty strings", array_head(GgufValueType::kString, 1ull << 22)},
      {"2^62 u64", array_head(GgufValueType::kU64, 1ull << 62)},
      {"2^22 u64", array_head(GgufValueType::kU64, 1ull << 22)},
      {"a string of 2^39 bytes", one_key(GgufValueType::kString).put(1ull << 39)},
      {"an array of strings of 1 GiB",
       array_head(GgufValueType::kString, 1ull << 22).put<uint64_t>(1ull << 30)},
  };
  for (const auto& [what, head] : cases) {
    write_sparse(folder / "claims.gguf", head);
    expect_cheap(folder / "claims.gguf", what);
  }
}

TEST(GgufLimits, AHeadOfTinyElementsIsCheap) {
  const test::TempFolder folder;
  {
    ByteBuilder image = header(kMaxTensors, kMaxKeyValues);
    for (uint64_t idx = 0; idx < kMaxKeyValues; ++idx) {
      image.put_string(fmt::format("{:x}", idx)).put<uint32_t>(0).put<uint8_t>(0);
    }
    for (uint64_t idx = 0; idx < kMaxTensors; ++idx) {
      put_tensor(image, fmt::format("{:x}", idx), {1, 1, 1, 1}, kF32, (kMaxTensors - 1 - idx) * 32);
    }
    image.pad_to(32).put_bytes(std::vector<std::byte>(kMaxTensors * 32));
    test::write_file(folder / "tiny.gguf", image.bytes());
    EXPECT_EQ(test::open_gguf(folder / "tiny.gguf").tensors().size(), kMaxTensors);
    expect_cheap(folder / "tiny.gguf", "65536 tensors and keys");
  }
  {
    // Keys with one long common prefix are the worst case of sorting.
    ByteBuilder image = header(0, 1000);
    for (uint64_t idx = 0; idx < 1000; ++idx) {
      image.put_string(std::string(60000, 'k') + fmt::format("{:x}", idx))
          .put<uint32_t>(0)
          .put<uint8_t>(0);
    }
    test::write_file(folder / "long_keys.gguf", image.bytes());
    EXPECT_EQ(test::open_gguf(folder / "long_keys.gguf").metadata().size(), 1000u);
    expect_cheap(folder / "long_keys.gguf", "1000 keys of 60 kB");
  }
  {
    // Array after array of empty strings, past the bound of the head.
    ByteBuilder image = header(0, 10);
    for (uint64_t idx = 0; idx < 10; ++idx) {
      image.put_string(fmt::format("{:x}", idx)).put(static_cast<uint32_t>(GgufValueType::kArray));
      image.put(static_cast<uint32_t>(GgufValueType::kString)).put<uint64_t>(1 << 21);
      image.put_bytes(std::vector<std::byte>(8 << 21));
    }
    test::write_file(folder / "strings.gguf", image.bytes());
    test::expect_error(ErrorCode::kInvalidFormat,
                       "expected metadata and tensor table within the first 67108864 bytes",
                       [&] { test::open_gguf(folder / "strings.gguf"); });
    expect_cheap(folder / "strings.gguf", "21 million empty strings");
  }
}

}  // namespace
}  // namespace apr

// Broken and hostile files: each is refused with what, where, expected and found.
#include <fmt/format.h>
#include <gtest/gtest.h>

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
using test::one_tensor;
using test::put_tensor;

// The image is refused as no proper GGUF file; returns the message.
std::string expect_refused(const std::vector<std::byte>& image, const std::string& fragment) {
  return test::expect_error(ErrorCode::kInvalidFormat, fragment,
                            [&] { test::open_gguf_image(image); });
}

std::string expect_refused(const ByteBuilder& image, const std::string& fragment) {
  return expect_refused(image.bytes(), fragment);
}

// --- Header ---

TEST(GgufHostile, NamesAShortHeader) {
  const std::vector<std::byte> image = GgufWriter().bytes();
  for (size_t n_bytes = 0; n_bytes < 24; ++n_bytes) {
    expect_refused({image.begin(), image.begin() + static_cast<int64_t>(n_bytes)},
                   fmt::format("test.gguf: file ends at byte {}, the header needs 24", n_bytes));
  }
}

TEST(GgufHostile, RefusesAWrongMagic) {
  ByteBuilder image;
  image.put_text("GGML").put<uint32_t>(3).put<uint64_t>(0).put<uint64_t>(0);
  expect_refused(image, "not a GGUF file: expected \"GGUF\" at byte 0, found \"GGML\"");
  expect_refused(ByteBuilder().put_text("\x1b[2"), "found \"\\x1b[2\"");
}

TEST(GgufHostile, RefusesOtherVersions) {
  for (const uint32_t version : {0u, 1u, 4u, 0xFFFFFFFFu}) {
    ByteBuilder image;
    image.put_text("GGUF").put(version).put<uint64_t>(0).put<uint64_t>(0);
    expect_refused(
        image,
        fmt::format("the header at byte 4: expected GGUF version 2 or 3, found {}", version));
  }
}

TEST(GgufHostile, NamesBigEndianFiles) {
  for (const uint32_t version : {0x02000000u, 0x03000000u}) {
    ByteBuilder image;
    image.put_text("GGUF").put(version).put<uint64_t>(0).put<uint64_t>(0);
    expect_refused(image, "at byte 4: big-endian GGUF");
  }
}

TEST(GgufHostile, RefusesClaimsOfTooManyEntries) {
  expect_refused(header(1ull << 60, 0),
                 "at byte 8: expected at most 65536 tensors, found a count of 1152921504606846976");
  expect_refused(
      header(0, 1ull << 60),
      "at byte 16: expected at most 65536 metadata keys, found a count of 1152921504606846976");
  expect_refused(header(65536, 0), "file ends at byte 24, tensor 1 of 65536 needs 32");
  expect_refused(header(0, 65536), "file ends at byte 24, metadata key 1 of 65536 needs 32");
}

// --- Metadata ---

TEST(GgufHostile, RefusesBadKeys) {
  expect_refused(header(0, 1).put_string("").put<uint32_t>(0).put<uint8_t>(0),
                 "metadata key 1 of 1 at byte 24: expected a key of 1 to 65535 bytes, found 0");
  expect_refused(header(0, 1).put_string(std::string(65536, 'k')).put<uint32_t>(0).put<uint8_t>(0),
                 "expected a key of 1 to 65535 bytes, found 65536");
  expect_refused(header(0, 1).put_string("a\xFF").put<uint32_t>(0).put<uint8_t>(0),
                 "metadata key 1 of 1 at byte 32: expected a key in UTF-8, found \"a\\xff\"");
  expect_refused(header(0, 1).put<uint64_t>(1ull << 63).put_text("k"), "found 9223372036854775808");
  const ByteBuilder longest =
      header(0, 1).put_string(std::string(65535, 'k')).put<uint32_t>(0).put<uint8_t>(0);
  EXPECT_EQ(test::open_gguf_image(longest.bytes()).metadata().size(), 1u);
}

TEST(GgufHostile, RefusesADuplicateKey) {
  ByteBuilder image = header(0, 3);
  for (const char* key : {"one", "two", "one"}) {
    image.put_string(key).put<uint32_t>(0).put<uint8_t>(0);
  }
  expect_refused(image,
                 "metadata key one at byte 56: expected each key once, found it before at byte 24");
}

TEST(GgufHostile, RefusesUnknownValueTypes) {
  for (const uint32_t type_id : {13u, 255u, 0xFFFFFFFFu}) {
    expect_refused(
        header(0, 1).put_string("k").put(type_id).put<uint64_t>(0),
        fmt::format("metadata key k at byte 33: expected a value type of 0 to 12, found {}",
                    type_id));
    expect_refused(
        one_key(GgufValueType::kArray).put(type_id).put<uint64_t>(0),
        fmt::format("metadata key k at byte 37: expected a value type of 0 to 12, found {}",
                    type_id));
  }
}

TEST(GgufHostile, RefusesArraysOfArrays) {
  expect_refused(
      one_key(GgufValueType::kArray)
          .put(static_cast<uint32_t>(GgufValueType::kArray))
          .put<uint64_t>(0),
      "metadata key k at byte 37: expected an array of single values, found an array of arrays");
}

TEST(GgufHostile, RefusesBoolsOtherThan0And1) {
  expect_refused(one_key(GgufValueType::kBool).put<uint8_t>(2),
                 "metadata key k at byte 37: expected a bool of 0 or 1, found 2");
  expect_refused(one_key(GgufValueType::kArray)
                     .put(static_cast<uint32_t>(GgufValueType::kBool))
                     .put<uint64_t>(3)
                     .put<uint8_t>(1)
                     .put<uint8_t>(255)
                     .put<uint8_t>(0),
                 "metadata key k at byte 50: expected a bool of 0 or 1, found 255");
}

TEST(GgufHostile, NamesTheKeyThatIsCutShort) {
  expect_refused(one_key(GgufValueType::kU64).put<uint32_t>(1),
                 "file ends at byte 41, metadata key k needs 45");
  expect_refused(one_key(GgufValueType::kString).put<uint64_t>(10).put_text("abc"),
                 "file ends at byte 48, metadata key k needs 55");
  expect_refused(one_key(GgufValueType::kString).put(~0ull),
                 "file ends at byte 45, metadata key k needs 18446744073709551615");
  expect_refused(one_key(GgufValueType::kArray)
                     .put(static_cast<uint32_t>(GgufValueType::kU64))
                     .put<uint64_t>(5),
                 "file ends at byte 49, metadata key k needs 89");
  expect_refused(one_key(GgufValueType::kArray)
                     .put(static_cast<uint32_t>(GgufValueType::kString))
                     .put<uint64_t>(2)
                     .put_string("abc")
                     .put<uint64_t>(1ull << 62),
                 "file ends at byte 68, metadata key k needs 4611686018427387972");
  expect_refused(header(0, 2).put_string("k").put<uint32_t>(0).put<uint8_t>(0).put<uint32_t>(1),
                 "file ends at byte 42, metadata key 2 of 2 needs 46");
}

TEST(GgufHostile, RefusesArraysOfTooManyElements) {
  for (const GgufValueType type :
       {GgufValueType::kString, GgufValueType::kU8, GgufValueType::kF64}) {
    expect_refused(
        one_key(GgufValueType::kArray).put(static_cast<uint32_t>(type)).put<uint64_t>(1ull << 40),
        "metadata key k at byte 41: expected an array of at most 4194304 elements, found "
        "1099511627776");
  }
}

TEST(GgufHostile, RefusesAlignmentsThatAreNone) {
  for (const uint32_t alignment_bytes : {0u, 1u, 2u, 4u, 12u, 24u, 33u, 0xFFFFFFFFu}) {
    GgufWriter writer;
    writer.set<uint32_t>("general.alignment", alignment_bytes);
    expect_refused(
        writer.bytes(),
        fmt::format("metadata key general.alignment at byte 53: expected a power of two that "
                    "is a multiple of 8, found {}",
                    alignment_bytes));
  }
  GgufWriter writer;
  writer.set<uint64_t>("general.alignment", 32);
  expect_refused(writer.bytes(),
                 "metadata key general.alignment at byte 53: expected u32, found u64");
  writer.set_array<uint32_t>("general.alignment", {});
  expect_refused(writer.bytes(), "expected u32, found array of u32");
}

// --- Tensor table ---

TEST(GgufHostile, RefusesBadTensorNames) {
  const auto named = [](const std::string& name) {
    GgufWriter writer;
    writer.add_tensor({name, {1}, kF32, std::vector<std::byte>(4)});
    return writer.bytes();
  };
  expect_refused(named(""),
                 "tensor 1 of 1 at byte 24: expected a tensor name of 1 to 64 bytes, found 0");
  expect_refused(named(std::string(65, 't')), "expected a tensor name of 1 to 64 bytes, found 65");
  expect_refused(named("\xC3("),
                 "tensor 1 of 1 at byte 32: expected a tensor name in UTF-8, found \"\\xc3(\"");
  const std::vector<std::byte> longest = named(std::string(64, 't'));
  EXPECT_EQ(test::open_gguf_image(longest).tensors().size(), 1u);
}

TEST(GgufHostile, RefusesADuplicateTensorName) {
  GgufWriter writer;
  for (const char* name : {"a", "b", "a"}) {
    writer.add_tensor({name, {1}, kF32, std::vector<std::byte>(4)});
  }
  expect_refused(writer.bytes(),
                 "tensor a at byte 90: expected each tensor name once, found it before at byte 24");
}

TEST(GgufHostile, RefusesBadNumbersOfDimensions) {
  expect_refused(one_tensor({}, kF32, 0, 64),
                 "tensor t at byte 33: expected 1 to 4 dimensions, found 0");
  expect_refused(one_tensor({1, 1, 1, 1, 1}, kF32, 0, 64),
                 "tensor t at byte 33: expected 1 to 4 dimensions, found 5");
  ByteBuilder image = header(1, 0);
  image.put_string("t").put<uint32_t>(0xFFFFFFFF);
  expect_refused(image, "expected 1 to 4 dimensions, found 4294967295");
}

TEST(GgufHostile, RefusesBadAxes) {
  expect_refused(one_tensor({0}, kF32, 0, 64),
                 "tensor t at byte 37: expected an axis of 1 to 2^63-1 elements, found 0");
  expect_refused(one_tensor({4, 0}, kF32, 0, 64),
                 "tensor t at byte 45: expected an axis of 1 to 2^63-1 elements, found 0");
  expect_refused(one_tensor({1ull << 63}, kF32, 0, 64),
                 "expected an axis of 1 to 2^63-1 elements, found 9223372036854775808");
  expect_refused(one_tensor({1ull << 32, 1ull << 31}, kF32, 0, 64),
                 "tensor t at byte 45: expected at most 2^63-1 elements");
  // 2^62 elements fit 63 bits, their 2^64 bytes do not fit 64.
  expect_refused(one_tensor({1ull << 31, 1ull << 31}, kF32, 0, 64),
                 "tensor t at byte 24: expected less than 2^64 bytes");
}

TEST(GgufHostile, RefusesRowsThatAreNoWholeBlocks) {
  expect_refused(one_tensor({33, 2}, kQ8_0, 0, 128),
                 "tensor t at byte 24: expected rows of whole blocks of 32 elements for type 8 "
                 "(Q8_0), found shape [2, 33]");
  // 64 elements are two blocks, but each row of 16 is half a one.
  expect_refused(one_tensor({16, 4}, kQ8_0, 0, 128), "found shape [4, 16]");
}

TEST(GgufHostile, RefusesBadOffsets) {
  expect_refused(one_tensor({8}, kF32, 16, 64),
                 "tensor t at byte 49: expected a data offset that is a multiple of 32, found 16");
  expect_refused(
      one_tensor({8}, kF32, ~31ull, 64),
      "expected data that ends below byte 2^64, found offset 18446744073709551584 and 32 bytes");
  expect_refused(one_tensor({8}, kF32, 1ull << 40, 64),
                 "file ends at byte 128, tensor t needs 1099511627872");
}

TEST(GgufHostile, RefusesOverlappingTensors) {
  const auto two = [](uint64_t first_offset_bytes, uint64_t second_offset_bytes) {
    ByteBuilder image = header(2, 0);
    put_tensor(image, "a", {16}, kF32, first_offset_bytes);
    put_tensor(image, "b", {16}, kF32, second_offset_bytes);
    image.pad_to(32).put_bytes(std::vector<std::byte>(256));
    return image.bytes();
  };
  expect_refused(two(0, 32), "tensors a and b overlap: bytes 96 to 160 and 128 to 192");
  expect_refused(two(64, 32), "tensors b and a overlap");
  expect_refused(two(0, 0), "overlap");
  const std::vector<std::byte> apart = two(128, 0);  // a gap, and not in table order: both are fine
  EXPECT_EQ(test::open_gguf_image(apart).find_tensor("a")->file_offset_bytes, 96u + 128u);
}

// Field report kind 35: every id is run, or refused with tensor, number and name.
TEST(GgufHostile, EveryTypeIdIsSupportedOrRefusedByName) {
  std::vector<uint32_t> ids;
  for (uint32_t id = 0; id <= 42; ++id) ids.push_back(id);
  for (uint32_t id = 96; id <= 260; ++id) ids.push_back(id);
  for (uint32_t id = 300; id <= 400; ++id) ids.push_back(id);
  ids.insert(ids.end(), {999u, 0x7FFFFFFFu, 0xFFFFFFFFu});
  int n_supported = 0;
  for (const uint32_t id : ids) {
    GgufWriter writer;
    const std::optional<TypeLayout> layout = quant_type_layout(id);
    const int64_t n_bytes = layout ? 2 * 256 / layout->block_elems * layout->block_bytes : 2048;
    writer.add_tensor({"blk.0.ffn_down.weight",
                       {2, 256},
                       id,
                       std::vector<std::byte>(static_cast<size_t>(n_bytes))});
    const std::vector<std::byte> image = writer.bytes();
    if (layout) {
      EXPECT_EQ(static_cast<int64_t>(test::open_gguf_image(image).tensors()[0].data.size()),
                n_bytes)
          << id;
      ++n_supported;
      continue;
    }
    const std::string message =
        test::expect_error(ErrorCode::kModelLoad,
                           fmt::format("test.gguf: tensor blk.0.ffn_down.weight uses type {}", id),
                           [&] { test::open_gguf_image(image); });
    EXPECT_TRUE(message.ends_with(", not supported")) << message;
  }
  EXPECT_GE(n_supported, 26);  // F32, F16, BF16 and the 23 block types of the goldens
}

TEST(GgufHostile, NamesTheForkOfAForeignType) {
  const std::vector<std::byte> image = one_tensor({256}, 138, 0, 256).bytes();
  EXPECT_EQ(test::expect_error(ErrorCode::kModelLoad, "", [&] { test::open_gguf_image(image); }),
            "test.gguf: tensor t uses type 138 (ik_llama.cpp IQ3_K), not supported");
}

TEST(GgufHostile, EscapesNamesInMessages) {
  GgufWriter writer;
  writer.add_tensor({"\x1b[31mred\n", {256}, 138, std::vector<std::byte>(256)});
  const std::vector<std::byte> image = writer.bytes();
  test::expect_error(ErrorCode::kModelLoad, "tensor \\x1b[31mred\\x0a uses",
                     [&] { test::open_gguf_image(image); });
}

}  // namespace
}  // namespace apr

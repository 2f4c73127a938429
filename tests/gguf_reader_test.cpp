// Good files: what the reader says about them is what is in them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "gguf/text.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

using test::GgufWriter;

std::vector<std::byte> f32_bytes(size_t n_elems, float value) {
  test::ByteBuilder out;
  for (size_t idx = 0; idx < n_elems; ++idx) {
    out.put(value);
  }
  return out.bytes();
}

// A small model-less file: two keys, two tensors.
GgufWriter small_writer() {
  GgufWriter writer;
  writer.set_string("general.architecture", "none");
  writer.set<uint32_t>("none.block_count", 7);
  writer.add_tensor({"a", {2, 3}, 0, f32_bytes(6, 1.5f)});
  writer.add_tensor({"b", {4}, 0, f32_bytes(4, -2.0f)});
  return writer;
}

float first_f32(const GgufTensor& tensor) {
  float value = 0.0f;
  std::memcpy(&value, tensor.data.data(), sizeof(value));
  return value;
}

TEST(GgufReader, ReadsAFixture) {
  const std::filesystem::path path = test::model_fixture("tiny-qwen35-Q4_K_M");
  const GgufFile file = test::open_gguf(path);
  EXPECT_EQ(file.name(), path.string());
  EXPECT_EQ(file.part_names(), std::vector<std::string>{path.string()});
  EXPECT_EQ(file.version(), 3u);
  EXPECT_EQ(file.total_bytes(), 7134816u);
  EXPECT_EQ(file.metadata().size(), 39u);
  EXPECT_EQ(file.tensors().size(), 108u);
  EXPECT_EQ(file.get_string("general.architecture"), "qwen35");
  EXPECT_EQ(file.get_u64("qwen35.block_count"), 8u);
  EXPECT_EQ(file.get_f64("qwen35.rope.freq_base"), 1e7);
  EXPECT_EQ(file.get_f64("qwen35.attention.layer_norm_rms_epsilon"), static_cast<double>(1e-6f));
  EXPECT_EQ(file.get_i64_array("qwen35.rope.dimension_sections"),
            (std::vector<int64_t>{11, 11, 10, 0}));
  EXPECT_EQ(file.get_i64_array("qwen35.attention.recurrent_layers"),
            (std::vector<int64_t>{1, 1, 1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(file.get_bool("tokenizer.ggml.add_bos_token"), false);
  const auto tokens = file.get_string_array("tokenizer.ggml.tokens");
  ASSERT_TRUE(tokens);
  EXPECT_EQ(tokens->size(), 4096u);
  EXPECT_EQ(tokens->at(3), "<think>");
  EXPECT_EQ(file.find("general.nothing"), nullptr);
  EXPECT_EQ(file.get_u64("general.nothing"), std::nullopt);
  EXPECT_EQ(file.find_tensor("output.weight"), nullptr);
}

TEST(GgufReader, GivesShapesSlowestAxisFirstAndDataInPlace) {
  const GgufFile file = test::open_gguf(test::model_fixture("tiny-qwen3moe-mix"));
  const GgufTensor* embedding = file.find_tensor("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<int64_t>{4096, 256}));
  EXPECT_EQ(embedding->type_id, 12u);
  EXPECT_EQ(embedding->data.size(), 4096u * 144u);
  EXPECT_EQ(embedding->part_idx, 0);
  const GgufTensor* router = file.find_tensor("blk.0.ffn_gate_inp.weight");
  ASSERT_NE(router, nullptr);
  EXPECT_EQ(router->shape, (std::vector<int64_t>{8, 256}));

  const std::vector<std::byte> image = test::read_file(test::model_fixture("tiny-qwen3moe-mix"));
  for (const GgufTensor& tensor : file.tensors()) {
    ASSERT_LE(tensor.file_offset_bytes + tensor.data.size(), image.size());
    EXPECT_TRUE(std::equal(tensor.data.begin(), tensor.data.end(),
                           image.begin() + static_cast<int64_t>(tensor.file_offset_bytes)))
        << tensor.name;
  }
}

// gguf-py and llama.cpp wrote the fixtures: a byte for byte equal copy shows that nothing was lost
// or moved in reading or in writing.
TEST(GgufReader, CopiesOfFixturesAreBitwiseEqual) {
  for (const auto& entry :
       std::filesystem::directory_iterator(std::filesystem::path(APR_TEST_DATA) / "models")) {
    const std::vector<std::byte> image = test::read_file(entry.path());
    EXPECT_EQ(GgufWriter::copy_of(test::open_gguf_image(image)).bytes(), image) << entry.path();
  }
}

TEST(GgufReader, ReadsVersions2And3Alike) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter writer = small_writer();
    writer.set_version(version);
    const std::vector<std::byte> image = writer.bytes();
    const GgufFile file = test::open_gguf_image(image);
    EXPECT_EQ(file.version(), version);
    EXPECT_EQ(file.get_u64("none.block_count"), 7u);
    EXPECT_EQ(first_f32(*file.find_tensor("b")), -2.0f);
  }
}

TEST(GgufReader, HonoursTheAlignmentOfTheFile) {
  for (const uint32_t alignment_bytes : {8u, 16u, 32u, 64u, 4096u, 65536u}) {
    GgufWriter writer = small_writer();
    writer.set_alignment(alignment_bytes);
    const std::vector<std::byte> image = writer.bytes();
    const GgufFile file = test::open_gguf_image(image);
    EXPECT_EQ(first_f32(*file.find_tensor("a")), 1.5f) << alignment_bytes;
    EXPECT_EQ(first_f32(*file.find_tensor("b")), -2.0f) << alignment_bytes;
    EXPECT_EQ(file.find_tensor("b")->file_offset_bytes % alignment_bytes, 0u);
  }
}

TEST(GgufReader, AcceptsAVocabularyWithoutTensors) {
  GgufWriter writer;
  writer.set_string("general.architecture", "none");
  const std::vector<std::byte> image = writer.bytes();
  EXPECT_TRUE(test::open_gguf_image(image).tensors().empty());
}

TEST(GgufReader, AcceptsAFileWithNothingInIt) {
  const std::vector<std::byte> image = GgufWriter().bytes();
  const GgufFile file = test::open_gguf_image(image);
  EXPECT_TRUE(file.metadata().empty());
  EXPECT_TRUE(file.tensors().empty());
}

TEST(GgufReader, KeepsFourAxes) {
  GgufWriter writer;
  writer.add_tensor({"t", {5, 4, 3, 2}, 0, f32_bytes(120, 0.0f)});
  const std::vector<std::byte> image = writer.bytes();
  EXPECT_EQ(test::open_gguf_image(image).find_tensor("t")->shape,
            (std::vector<int64_t>{5, 4, 3, 2}));
}

TEST(GgufReader, ViewsOutliveAMoveOfTheFile) {
  const std::vector<std::byte> image = small_writer().bytes();
  GgufFile file = test::open_gguf_image(image);
  const GgufTensor* tensor = file.find_tensor("a");
  const GgufFile moved = std::move(file);
  EXPECT_EQ(moved.find_tensor("a"), tensor);
  EXPECT_EQ(tensor->name, "a");
}

TEST(GgufReader, RefusesWhatIsNoFile) {
  const test::TempFolder folder;
  test::expect_error(ErrorCode::kFileNotFound, "none.gguf",
                     [&] { test::open_gguf(folder / "none.gguf"); });
  test::expect_error(ErrorCode::kFileNotFound, "not a regular file",
                     [&] { test::open_gguf(folder.path()); });
}

// A file with one value of every type and the largest and smallest of each integer type.
GgufWriter value_writer() {
  GgufWriter writer;
  writer.set<uint8_t>("u8", 255);
  writer.set<int8_t>("i8", -128);
  writer.set<uint16_t>("u16", 65535);
  writer.set<int16_t>("i16", -32768);
  writer.set<uint32_t>("u32", 4294967295u);
  writer.set<int32_t>("i32", std::numeric_limits<int32_t>::min());
  writer.set<float>("f32", 0.5f);
  writer.set<bool>("bool", true);
  writer.set_string("string", "text");
  writer.set<uint64_t>("u64", std::numeric_limits<uint64_t>::max());
  writer.set<int64_t>("i64", std::numeric_limits<int64_t>::min());
  writer.set<double>("f64", 1e300);
  writer.set_array<int16_t>("array", {-1, 0, 1});
  writer.set_string("empty", "");
  writer.set_string_array("empty_array", {});
  return writer;
}

TEST(GgufValue, ConvertsWithoutLossOrNotAtAll) {
  const std::vector<std::byte> image = value_writer().bytes();
  const GgufFile file = test::open_gguf_image(image);
  const auto value = [&](const char* key) -> const GgufValue& { return *file.find(key); };

  EXPECT_EQ(value("u8").as_u64(), 255u);
  EXPECT_EQ(value("u16").as_i64(), 65535);
  EXPECT_EQ(value("u32").as_u64(), 4294967295u);
  EXPECT_EQ(value("u32").as_i64(), 4294967295);
  EXPECT_EQ(value("u64").as_u64(), std::numeric_limits<uint64_t>::max());
  EXPECT_EQ(value("u64").as_i64(), std::nullopt);  // above 2^63-1
  EXPECT_EQ(value("i8").as_i64(), -128);
  EXPECT_EQ(value("i8").as_u64(), std::nullopt);  // negative
  EXPECT_EQ(value("i16").as_i64(), -32768);
  EXPECT_EQ(value("i32").as_i64(), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(value("i64").as_i64(), std::numeric_limits<int64_t>::min());

  EXPECT_EQ(value("f32").as_f64(), 0.5);
  EXPECT_EQ(value("f64").as_f64(), 1e300);
  EXPECT_EQ(value("i16").as_f64(), -32768.0);
  EXPECT_EQ(value("i64").as_f64(), -0x1p63);       // one significant bit
  EXPECT_EQ(value("u64").as_f64(), std::nullopt);  // 64 significant bits
  EXPECT_EQ(value("f32").as_u64(), std::nullopt);
  EXPECT_EQ(value("f32").as_i64(), std::nullopt);

  EXPECT_EQ(value("bool").as_bool(), true);
  EXPECT_EQ(value("bool").as_u64(), std::nullopt);
  EXPECT_EQ(value("bool").as_f64(), std::nullopt);
  EXPECT_EQ(value("u8").as_bool(), std::nullopt);
  EXPECT_EQ(value("string").as_string(), "text");
  EXPECT_EQ(value("string").as_u64(), std::nullopt);
  EXPECT_EQ(value("string").as_f64(), std::nullopt);
  EXPECT_EQ(value("empty").as_string(), "");
  EXPECT_EQ(value("empty").as_u64(), std::nullopt);
  EXPECT_EQ(value("u8").as_string(), std::nullopt);
  EXPECT_EQ(value("array").as_u64(), std::nullopt);
  EXPECT_EQ(value("array").as_string(), std::nullopt);
  EXPECT_EQ(GgufValue().as_u64(), std::nullopt);
}

TEST(GgufValue, IntegersConvertToDoubleWhereExact) {
  constexpr uint64_t kTwo53 = 1ull << 53;
  GgufWriter writer;
  writer.set<uint64_t>("exact", kTwo53);
  writer.set<uint64_t>("even_above", kTwo53 + 2);
  writer.set<uint64_t>("odd_above", kTwo53 + 1);
  writer.set<int64_t>("negative", -static_cast<int64_t>(kTwo53));
  writer.set<int64_t>("negative_odd", -static_cast<int64_t>(kTwo53) - 1);
  writer.set<int64_t>("zero", 0);
  const std::vector<std::byte> image = writer.bytes();
  const GgufFile file = test::open_gguf_image(image);
  EXPECT_EQ(file.find("exact")->as_f64(), 0x1p53);
  EXPECT_EQ(file.find("even_above")->as_f64(), 0x1p53 + 2.0);
  EXPECT_EQ(file.find("odd_above")->as_f64(), std::nullopt);
  EXPECT_EQ(file.find("negative")->as_f64(), -0x1p53);
  EXPECT_EQ(file.find("negative_odd")->as_f64(), std::nullopt);
  EXPECT_EQ(file.find("zero")->as_f64(), 0.0);
}

TEST(GgufValue, ArraysConvertElementByElement) {
  GgufWriter writer = value_writer();
  writer.set_array<bool>("bools", {true, false});
  writer.set_array<uint64_t>("u64s", {1, std::numeric_limits<uint64_t>::max()});
  writer.set_array<float>("f32s", {0.25f, std::numeric_limits<float>::infinity()});
  writer.set_array<double>("f64s", {1e-300});
  writer.set_array<uint8_t>("u8s", {0, 255});
  writer.set_string_array("strings", {"", "a", "\xC3\xA9"});
  const std::vector<std::byte> image = writer.bytes();
  const GgufFile file = test::open_gguf_image(image);
  using Ints = std::vector<int64_t>;
  using Doubles = std::vector<double>;
  using Texts = std::vector<std::string_view>;
  EXPECT_EQ(file.find("array")->as_i64_array(), (Ints{-1, 0, 1}));
  EXPECT_EQ(file.find("array")->as_f64_array(), (Doubles{-1.0, 0.0, 1.0}));
  EXPECT_EQ(file.find("array")->as_string_array(), std::nullopt);
  EXPECT_EQ(file.find("bools")->as_i64_array(), (Ints{1, 0}));
  EXPECT_EQ(file.find("bools")->as_f64_array(), std::nullopt);
  EXPECT_EQ(file.find("u64s")->as_i64_array(), std::nullopt);  // one is above 2^63-1
  EXPECT_EQ(file.find("u64s")->as_f64_array(), std::nullopt);  // one is not exact
  EXPECT_EQ(file.find("u8s")->as_i64_array(), (Ints{0, 255}));
  EXPECT_EQ(file.find("f32s")->as_f64_array(),
            (Doubles{0.25, std::numeric_limits<double>::infinity()}));
  EXPECT_EQ(file.find("f32s")->as_i64_array(), std::nullopt);
  EXPECT_EQ(file.find("f64s")->as_f64_array(), (Doubles{1e-300}));
  EXPECT_EQ(file.find("strings")->as_string_array(), (Texts{"", "a", "\xC3\xA9"}));
  EXPECT_EQ(file.find("strings")->as_i64_array(), std::nullopt);
  EXPECT_EQ(file.find("strings")->as_f64_array(), std::nullopt);
  EXPECT_EQ(file.find("empty_array")->as_string_array(), Texts{});
  EXPECT_EQ(file.find("u8")->as_i64_array(), std::nullopt);
  EXPECT_EQ(file.find("string")->as_string_array(), std::nullopt);
}

TEST(GgufValue, NamesItsType) {
  const std::vector<std::byte> image = value_writer().bytes();
  const GgufFile file = test::open_gguf_image(image);
  for (const char* key :
       {"u8", "i8", "u16", "i16", "u32", "i32", "f32", "bool", "string", "u64", "i64", "f64"}) {
    EXPECT_EQ(file.find(key)->type_name(), key);
    EXPECT_EQ(file.find(key)->count(), 1u);
  }
  EXPECT_EQ(file.find("array")->type_name(), "array of i16");
  EXPECT_EQ(file.find("array")->count(), 3u);
  EXPECT_EQ(file.find("empty_array")->type_name(), "array of string");
}

TEST(GgufFile, GettersNameKeyExpectedAndFoundType) {
  const std::vector<std::byte> image = value_writer().bytes();
  const GgufFile file = test::open_gguf_image(image);
  const auto expect = [](const char* message, auto call) {
    EXPECT_EQ(test::expect_error(ErrorCode::kInvalidFormat, "", call), message);
  };
  expect("test.gguf: metadata key string: expected an integer of at least 0, found string",
         [&] { file.get_u64("string"); });
  expect("test.gguf: metadata key i8: expected an integer of at least 0, found i8 -128",
         [&] { file.get_u64("i8"); });
  expect("test.gguf: metadata key bool: expected a number, found bool",
         [&] { file.get_f64("bool"); });
  expect("test.gguf: metadata key u8: expected bool, found u8 255", [&] { file.get_bool("u8"); });
  expect("test.gguf: metadata key array: expected string, found array of i16",
         [&] { file.get_string("array"); });
  expect("test.gguf: metadata key array: expected array of string, found array of i16",
         [&] { file.get_string_array("array"); });
  expect("test.gguf: metadata key f32: expected array of integers below 2^63, found f32",
         [&] { file.get_i64_array("f32"); });
  expect("test.gguf: metadata key empty_array: expected array of numbers, found array of string",
         [&] { file.get_f64_array("empty_array"); });
}

TEST(GgufText, JudgesUtf8) {
  for (const char* good : {"", "abc", "\xC2\x80", "\xDF\xBF", "\xE0\xA0\x80", "\xED\x9F\xBF",
                           "\xEF\xBF\xBF", "\xF0\x90\x80\x80", "\xF4\x8F\xBF\xBF"}) {
    EXPECT_TRUE(is_utf8(good)) << printable(good);
  }
  for (const char* bad :
       {"\x80", "\xC0\x80", "\xC1\xBF", "\xC3", "\xC3(", "\xE0\x9F\xBF", "\xED\xA0\x80", "\xE2\x82",
        "\xF0\x8F\xBF\xBF", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\xFF"}) {
    EXPECT_FALSE(is_utf8(bad)) << printable(bad);
  }
}

TEST(GgufText, ShowsNothingATerminalWouldObey) {
  EXPECT_EQ(printable("blk.0 \xC3\xA9"), "blk.0 \xC3\xA9");
  EXPECT_EQ(printable("\x1b[2J\n"), "\\x1b[2J\\x0a");
  EXPECT_EQ(printable("\xC2\x9B"), "\\xc2\\x9b");  // C1 control: CSI
  EXPECT_EQ(printable("a\xFF"), "a\\xff");
  EXPECT_EQ(printable(std::string(300, 'x')), std::string(121, 'x') + "...");
}

}  // namespace
}  // namespace apr

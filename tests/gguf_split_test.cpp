// Split files: opened as one from any part; parts that do not belong together are refused.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "gguf/split.h"
#include "support/expect_error.h"
#include "support/gguf_writer.h"
#include "support/open_gguf.h"

namespace apr {
namespace {

using test::GgufWriter;

// Six tensors t0..t5 of one element each, holding 0..5.
GgufWriter six_tensors() {
  GgufWriter writer;
  writer.set_string("general.architecture", "none");
  for (int idx = 0; idx < 6; ++idx) {
    test::ByteBuilder data;
    data.put(static_cast<float>(idx));
    writer.add_tensor({fmt::format("t{}", idx), {1}, 0, data.bytes()});
  }
  return writer;
}

class GgufSplit : public testing::Test {
 protected:
  std::filesystem::path part(int part_no, int n_parts = 3) const {
    return folder_ / fmt::format("m-{:05}-of-{:05}.gguf", part_no, n_parts);
  }

  // Rewrites a part of six_tensors() in three with changes.
  template <typename Change>
  void rewrite(int part_no, Change change) {
    GgufWriter writer = six_tensors().split(3)[static_cast<size_t>(part_no - 1)];
    change(writer);
    writer.write(part(part_no));
  }

  void expect_refused(int part_no, const std::string& fragment,
                      ErrorCode code = ErrorCode::kInvalidFormat) {
    test::expect_error(code, fragment, [&] { test::open_gguf(part(part_no)); });
  }

  const test::TempFolder folder_;
};

TEST_F(GgufSplit, OpensAsOneFromAnyPart) {
  six_tensors().write_split(folder_.path(), "m", 3);
  for (int part_no = 1; part_no <= 3; ++part_no) {
    const GgufFile file = test::open_gguf(part(part_no));
    EXPECT_EQ(file.name(), part(1).string());
    EXPECT_EQ(file.part_names(), (std::vector<std::string>{part(1), part(2), part(3)}));
    EXPECT_EQ(file.get_string("general.architecture"), "none");
    ASSERT_EQ(file.tensors().size(), 6u);
    uint64_t total_bytes = 0;
    for (int idx = 0; idx < 6; ++idx) {
      const GgufTensor& tensor = file.tensors()[static_cast<size_t>(idx)];
      float value = -1.0f;
      std::memcpy(&value, tensor.data.data(), sizeof(value));
      EXPECT_EQ(tensor.name, fmt::format("t{}", idx));
      EXPECT_EQ(value, static_cast<float>(idx));
      EXPECT_EQ(tensor.part_idx, idx / 2);
      EXPECT_EQ(file.find_tensor(tensor.name), &tensor);
    }
    for (int no = 1; no <= 3; ++no) {
      total_bytes += std::filesystem::file_size(part(no));
    }
    EXPECT_EQ(file.total_bytes(), total_bytes);
  }
}

TEST_F(GgufSplit, OpensAVocabularyOnlyFirstPart) {
  six_tensors().write_split(folder_.path(), "m", 3, true);
  const GgufFile file = test::open_gguf(part(1));
  ASSERT_EQ(file.tensors().size(), 6u);
  EXPECT_EQ(file.tensors().front().part_idx, 1);
}

TEST_F(GgufSplit, OpensThroughARelativePath) {
  six_tensors().write_split(folder_.path(), "m", 3);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_.path());
  EXPECT_EQ(test::open_gguf("m-00002-of-00003.gguf").tensors().size(), 6u);
  std::filesystem::current_path(before);
}

TEST_F(GgufSplit, AFixtureInThreePartsEqualsTheWhole) {
  const GgufFile whole = test::open_gguf(test::model_fixture("tiny-qwen3-iqmix"));
  GgufWriter::copy_of(whole).write_split(folder_.path(), "m", 3);
  const GgufFile split = test::open_gguf(part(2));
  EXPECT_EQ(GgufWriter::copy_of(split).bytes(), GgufWriter::copy_of(whole).bytes());
}

TEST_F(GgufSplit, NamesAMissingPart) {
  six_tensors().write_split(folder_.path(), "m", 3);
  std::filesystem::remove(part(2));
  for (const int part_no : {1, 3}) {
    expect_refused(part_no,
                   fmt::format("part 2 of 3 is missing: {} (needed by {})", part(2).string(),
                               part(part_no).string()),
                   ErrorCode::kFileNotFound);
  }
  expect_refused(2, "No such file", ErrorCode::kFileNotFound);
}

TEST_F(GgufSplit, NamesATruncatedPart) {
  six_tensors().write_split(folder_.path(), "m", 3);
  std::filesystem::resize_file(part(3), 100);
  expect_refused(1, part(3).string() + ": file ends at byte 100, ");
}

TEST_F(GgufSplit, RefusesSwappedParts) {
  six_tensors().write_split(folder_.path(), "m", 3);
  std::filesystem::rename(part(2), folder_ / "held");
  std::filesystem::rename(part(3), part(2));
  std::filesystem::rename(folder_ / "held", part(3));
  expect_refused(1, part(2).string() +
                        ": metadata key split.no: expected 1 for part 2 of the file name, found 2");
  expect_refused(3, part(3).string() +
                        ": metadata key split.no: expected 2 for part 3 of the file name, found 1");
}

TEST_F(GgufSplit, RefusesACountThatTheNamesDeny) {
  six_tensors().write_split(folder_.path(), "m", 3);
  rewrite(2, [](GgufWriter& writer) { writer.set<uint16_t>("split.count", 4); });
  expect_refused(
      1, part(2).string() + ": metadata key split.count: expected 3 as in the file name, found 4");
  std::filesystem::rename(part(1), part(1, 4));
  test::expect_error(ErrorCode::kInvalidFormat,
                     "metadata key split.count: expected 4 as in the file name, found 3",
                     [&] { test::open_gguf(part(1, 4)); });
}

TEST_F(GgufSplit, RefusesPartsWithoutKeys) {
  six_tensors().write_split(folder_.path(), "m", 3);
  rewrite(2, [](GgufWriter& writer) { writer.remove("split.no"); });
  expect_refused(
      1, part(2).string() +
             ": metadata key split.no: expected the number of one of 3 parts, found no such key");
  rewrite(2, [](GgufWriter& writer) { writer.remove("split.count"); });
  expect_refused(
      1, part(2).string() +
             ": metadata key split.count: expected 3 as in the file name, found no such key");
}

TEST_F(GgufSplit, RefusesKeysThatMakeNoSense) {
  six_tensors().write_split(folder_.path(), "m", 3);
  rewrite(1, [](GgufWriter& writer) { writer.set<uint16_t>("split.no", 3); });
  expect_refused(1, "metadata key split.no: expected less than split.count, 3, found 3");
  rewrite(1, [](GgufWriter& writer) { writer.set<int32_t>("split.no", -1); });
  expect_refused(1, "metadata key split.no: expected an integer of at least 0, found i32");
  rewrite(1, [](GgufWriter& writer) { writer.set_string("split.count", "three"); });
  expect_refused(1, "metadata key split.count: expected an integer of at least 0, found string");
  rewrite(1, [](GgufWriter& writer) { writer.set<uint64_t>("split.count", 1ull << 40); });
  expect_refused(1, "metadata key split.count: expected at most 1024 parts, found 1099511627776");
}

TEST_F(GgufSplit, RefusesAWrongNumberOfTensors) {
  six_tensors().write_split(folder_.path(), "m", 3);
  rewrite(3, [](GgufWriter& writer) { writer.remove_tensor("t5"); });
  expect_refused(1,
                 "metadata key split.tensors.count: expected 5 as in the tensor tables of the 3 "
                 "parts, found 6");
  rewrite(3, [](GgufWriter& writer) { writer.set<int32_t>("split.tensors.count", 5); });
  expect_refused(
      1, part(3).string() +
             ": metadata key split.tensors.count: expected 6 as in the first part, found 5");
}

TEST_F(GgufSplit, RefusesATensorInTwoParts) {
  six_tensors().write_split(folder_.path(), "m", 3);
  rewrite(3, [](GgufWriter& writer) { writer.rename_tensor("t4", "t0"); });
  expect_refused(
      2, fmt::format("tensor t0 is in {} and again in {}", part(1).string(), part(3).string()));
}

TEST_F(GgufSplit, NamesThePartOfAnUnsupportedTensor) {
  six_tensors().write_split(folder_.path(), "m", 3);
  rewrite(2, [](GgufWriter& writer) { writer.tensor("t3").type_id = 138; });
  expect_refused(1,
                 part(2).string() + ": tensor t3 uses type 138 (ik_llama.cpp IQ3_K), not supported",
                 ErrorCode::kModelLoad);
}

TEST_F(GgufSplit, NeedsNamesToFindTheOtherParts) {
  six_tensors().write_split(folder_.path(), "m", 3);
  std::filesystem::rename(part(2), folder_ / "renamed.gguf");
  test::expect_error(ErrorCode::kInvalidFormat,
                     "split.count is 3, expected a file name that ends in -00002-of-00003.gguf",
                     [&] { test::open_gguf(folder_ / "renamed.gguf"); });
}

TEST_F(GgufSplit, RefusesAPartInMemory) {
  six_tensors().write_split(folder_.path(), "m", 3);
  const std::vector<std::byte> image = test::read_file(part(2));
  test::expect_error(ErrorCode::kInvalidFormat, "expected a whole model, found part 2 of 3",
                     [&] { test::open_gguf_image(image); });
}

TEST_F(GgufSplit, AWholeFileMayHaveOneOfOneOrBeMerged) {
  GgufWriter writer = six_tensors();
  writer.write(part(1, 1));
  EXPECT_EQ(test::open_gguf(part(1, 1)).tensors().size(), 6u);
  writer.write_split(folder_.path(), "m", 1);
  EXPECT_EQ(test::open_gguf(part(1, 1)).tensors().size(), 6u);
  writer.set<uint16_t>("split.count", 0);  // as gguf-split --merge leaves it
  writer.write(part(2));
  EXPECT_EQ(test::open_gguf(part(2)).tensors().front().part_idx, 0);
}

TEST_F(GgufSplit, AWholeFileNamedAsAPartIsRefusedWithTheRemedy) {
  six_tensors().write(part(1));
  expect_refused(1,
                 "metadata key split.count: expected 3 as in the file name, found no such key; "
                 "rename the file if it is whole");
}

TEST(SplitName, TakesNamesApart) {
  const auto name = parse_split_name("Qwen3-00002-of-00013.gguf");
  ASSERT_TRUE(name);
  EXPECT_EQ(name->prefix, "Qwen3");
  EXPECT_EQ(name->part_idx, 1u);
  EXPECT_EQ(name->n_parts, 13u);
  EXPECT_EQ(split_part_path("d/Qwen3-00002-of-00013.gguf", *name, 12),
            "d/Qwen3-00013-of-00013.gguf");
  for (const char* other :
       {"", "m.gguf", "-00001-of-00002.gguf", "m-00000-of-00002.gguf", "m-00003-of-00002.gguf",
        "m-0001-of-00002.gguf", "m-00001-of-00002.bin", "m-0000a-of-00002.gguf",
        "m_00001-of-00002.gguf", "m-00001-OF-00002.gguf", "m-00001-of-000020.gguf"}) {
    EXPECT_FALSE(parse_split_name(other)) << other;
  }
}

}  // namespace
}  // namespace apr

// Vocabularies that contradict themselves are refused with a message that names the place.
#include <gtest/gtest.h>

#include <functional>

#include "apr/error.h"
#include "support/tokenizer_files.h"

namespace apr {
namespace {

using test::GgufWriter;
using test::Ids;
using test::SmallVocab;
using test::VocabFile;

struct BadVocab {
  const char* name;
  std::function<void(SmallVocab&)> change;
  const char* message;  // a part of it
};

TEST(HostileVocab, IsRefusedWithItsPlace) {
  const std::vector<BadVocab> table = {
      {"no tokens", [](SmallVocab& v) { v.tokens.clear(), v.types.clear(); },
       "tokenizer.ggml.tokens is empty"},
      {"types too short", [](SmallVocab& v) { v.types.pop_back(); },
       "tokenizer.ggml.token_type has 258 entries, tokenizer.ggml.tokens has 259"},
      {"types too long", [](SmallVocab& v) { v.types.push_back(1); }, "has 260 entries"},
      {"type 0", [](SmallVocab& v) { v.types[7] = 0; }, "token_type[7] is 0, expected 1 to 6"},
      {"type 7", [](SmallVocab& v) { v.types[258] = 7; }, "token_type[258] is 7"},
      {"negative type", [](SmallVocab& v) { v.types[1] = -1; }, "token_type[1] is -1"},
      {"a byte without token", [](SmallVocab& v) { v.tokens[0x41] = "AA"; },
       "no token for the byte 0x41"},
      {"a byte that is special", [](SmallVocab& v) { v.types[0x20] = 3; },
       "no token for the byte 0x20"},
      {"a byte that is unused", [](SmallVocab& v) { v.types[0xFF] = 5; },
       "no token for the byte 0xff"},
      {"long special", [](SmallVocab& v) { v.add(std::string(1025, 'x'), 4); },
       "tokens[259], a special token, has 1025 bytes, at most 1024 are supported"},
      {"merge without space", [](SmallVocab& v) { v.merges = {"ab"}; },
       "tokenizer.ggml.merges[0] \"ab\": expected two tokens with one space"},
      {"empty merge", [](SmallVocab& v) { v.merges = {""}; },
       "merges[0] \"\": expected two tokens"},
      {"merge without left", [](SmallVocab& v) { v.merges = {" b"}; }, "expected two tokens"},
      {"merge without right", [](SmallVocab& v) { v.merges = {"a "}; }, "expected two tokens"},
      {"merge of three", [](SmallVocab& v) { v.merges = {"a b c"}; },
       "a character is outside of the byte alphabet"},
      {"merge outside of the alphabet", [](SmallVocab& v) { v.merges = {"a \xE4\xBD\xA0"}; },
       "a character is outside of the byte alphabet"},
      {"merge that is no text", [](SmallVocab& v) { v.merges = {"a \xFF"}; },
       "\"a \\xff\": a character is outside"},
      {"unknown left part", [](SmallVocab& v) { v.merges = {"ab c"}; },
       "the left part \"ab\" is not in the vocabulary"},
      {"unknown right part", [](SmallVocab& v) { v.merges = {"a bc"}; },
       "the right part \"bc\" is not in the vocabulary"},
      {"unknown result",
       [](SmallVocab& v) {
         v.add_merge("a", "b");
         v.merges.push_back("ab c");
       },
       "merges[1] \"ab c\": the result \"abc\" is not in the vocabulary"},
      {"unused result",
       [](SmallVocab& v) {
         v.add_merge("a", "b");
         v.types.back() = 5;
       },
       "the result \"ab\" is not in the vocabulary"},
  };
  for (const BadVocab& row : table) {
    SCOPED_TRACE(row.name);
    SmallVocab vocab;
    row.change(vocab);
    try {
      const VocabFile file(vocab);
      file.tokenizer();
      ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFormat);
      EXPECT_NE(std::string(error.what()).find(row.message), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).rfind("vocab.gguf: ", 0), 0u) << error.what();
    }
  }
}

TEST(HostileVocab, MissingListsAreNamed) {
  for (const char* key :
       {"tokenizer.ggml.tokens", "tokenizer.ggml.token_type", "tokenizer.ggml.merges"}) {
    GgufWriter writer = SmallVocab().writer();
    writer.remove(key);
    try {
      VocabFile(writer).tokenizer();
      ADD_FAILURE() << key;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFormat);
      EXPECT_NE(std::string(error.what()).find(std::string(key) + " is missing"),
                std::string::npos);
    }
  }
}

TEST(HostileVocab, WrongTypesOfValuesAreRefused) {
  const std::vector<std::function<void(GgufWriter&)>> changes = {
      [](GgufWriter& w) { w.set("tokenizer.ggml.model", uint32_t{2}); },
      [](GgufWriter& w) { w.set("tokenizer.ggml.pre", uint32_t{2}); },
      [](GgufWriter& w) { w.set_string("tokenizer.ggml.tokens", "a"); },
      [](GgufWriter& w) { w.set_array("tokenizer.ggml.tokens", std::vector<int32_t>{1}); },
      [](GgufWriter& w) { w.set_array("tokenizer.ggml.token_type", std::vector<float>(259, 1)); },
      [](GgufWriter& w) { w.set("tokenizer.ggml.merges", true); },
      [](GgufWriter& w) { w.set_string("tokenizer.ggml.eos_token_id", "1"); },
      [](GgufWriter& w) { w.set("tokenizer.ggml.add_bos_token", uint32_t{1}); },
  };
  for (size_t idx = 0; idx < changes.size(); ++idx) {
    GgufWriter writer = SmallVocab().writer();
    changes[idx](writer);
    try {
      VocabFile(writer).tokenizer();
      ADD_FAILURE() << idx;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidFormat) << idx << error.what();
    }
  }
}

TEST(HostileVocab, IdsOutOfRangeAreRefused) {
  for (const char* name : {"bos", "eos", "eot", "eom", "padding"}) {
    for (const int64_t id : {int64_t{259}, int64_t{-1}, int64_t{UINT32_MAX}, INT64_MAX}) {
      GgufWriter writer = SmallVocab().writer();
      writer.set("tokenizer.ggml." + std::string(name) + "_token_id", id);
      try {
        VocabFile(writer).tokenizer();
        ADD_FAILURE() << name << " " << id;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInvalidFormat);
        EXPECT_NE(std::string(error.what()).find(name), std::string::npos) << error.what();
      }
    }
  }
  GgufWriter writer = SmallVocab().writer();
  writer.set("tokenizer.ggml.add_bos_token", true);
  EXPECT_THROW(VocabFile(writer).tokenizer(), Error);  // and no BOS id
}

TEST(HostileVocab, LowestIdOfADuplicateIsUsed) {
  SmallVocab vocab;
  const TokenId ab = vocab.add_merge("a", "b");
  const TokenId copy = vocab.add("ab", 1);
  vocab.add("A", 1);
  const TokenId second_end = vocab.add("<|im_end|>", 3);
  const VocabFile file(vocab);
  const Tokenizer tokenizer = file.tokenizer();
  EXPECT_EQ(tokenizer.encode("abA", true), (Ids{ab, 'A'}));
  EXPECT_EQ(tokenizer.encode("<|im_end|>", true), Ids{258});
  EXPECT_EQ(tokenizer.decode(Ids{copy, second_end}), "ab<|im_end|>");
}

TEST(HostileVocab, FirstRankOfADuplicateMergeIsUsed) {
  SmallVocab vocab;
  const TokenId ab = vocab.add_merge("a", "b");
  vocab.add_merge("b", "c");
  vocab.merges.push_back("a b");
  const VocabFile file(vocab);
  EXPECT_EQ(file.tokenizer().encode("abc", false), (Ids{ab, 'c'}));
}

// A merge must not turn what a person typed into a control token.
TEST(HostileVocab, MergesNeverMakeSpecialTokens) {
  SmallVocab vocab;
  const TokenId en = vocab.add_merge("e", "n");
  vocab.merges.push_back("en d");
  const TokenId control = vocab.add("end", 3);
  const VocabFile file(vocab);
  const Tokenizer tokenizer = file.tokenizer();
  EXPECT_EQ(tokenizer.encode("end", false), (Ids{en, 'd'}));
  EXPECT_EQ(tokenizer.encode("end", true), Ids{control});
}

TEST(HostileVocab, EmptyTextsAreNeverMatched) {
  SmallVocab vocab;
  vocab.add("", 3);
  vocab.add("", 1);
  vocab.add("", 4);
  const VocabFile file(vocab);
  EXPECT_EQ(file.tokenizer().encode("ab", true), (Ids{'a', 'b'}));
}

TEST(HostileVocab, TokensOutsideOfTheAlphabetStandForThemselves) {
  SmallVocab vocab;
  const TokenId id = vocab.add("\xE4\xBD\xA0 x", 1);
  const VocabFile file(vocab);
  EXPECT_EQ(file.tokenizer().token_bytes(id), "\xE4\xBD\xA0 x");
}

}  // namespace
}  // namespace apr

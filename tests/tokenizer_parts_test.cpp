// The tokenizer's parts: fast against reference, exact; and long runs, which must be neither
// quadratic nor run out of stack.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <chrono>
#include <random>

#include "support/tokenizer_files.h"
#include "tokenizer/bpe.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/nfc.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab.h"

namespace apr {
namespace {

using test::Ids;

std::vector<std::string> pieces_of(const PreTokenizer& pre_tokenizer, std::string_view text) {
  PieceSplitter splitter(pre_tokenizer);
  std::vector<std::string> pieces;
  while (!text.empty()) {
    const size_t n_bytes = splitter.first_piece_bytes(text);
    pieces.emplace_back(text.substr(0, n_bytes));
    text.remove_prefix(n_bytes);
  }
  return pieces;
}

std::vector<std::string> pieces_of(const char* preset, std::string_view text) {
  return pieces_of(PreTokenizer(*find_pre_tokenizer(preset)), text);
}

using Pieces = std::vector<std::string>;

TEST(PreTokenizer, SplitsAsPublished) {
  for (const char* preset : {"qwen2", "qwen35"}) {
    EXPECT_EQ(
        pieces_of(preset, "I'm HE'LL 12 x_y!?\n\n  z \n"),
        (Pieces{"I", "'m", " HE", "'LL", " ", "1", "2", " x", "_y", "!?\n\n", " ", " z", " \n"}));
    EXPECT_EQ(pieces_of(preset, "a  b\t\tc   "), (Pieces{"a", " ", " b", "\t", "\tc", "   "}));
    EXPECT_EQ(pieces_of(preset,
                        "'\xC5\xBF"
                        "a"),
              (Pieces{"'\xC5\xBF", "a"}));  // long s folds to s
    // White_Space: U+0085, U+00A0, U+3000 are; U+180E and U+200B are not.
    EXPECT_EQ(pieces_of(preset, "\xC2\x85\xC2\xA0\xE3\x80\x80"),
              (Pieces{"\xC2\x85\xC2\xA0\xE3\x80\x80"}));
    EXPECT_EQ(pieces_of(preset, "!\xE1\xA0\x8E\xE2\x80\x8B"),
              (Pieces{"!\xE1\xA0\x8E\xE2\x80\x8B"}));
  }
}

TEST(PreTokenizer, MarksBelongToWordsInQwen35Only) {
  const std::string text =
      "\xE0\xA4\xA8\xE0\xA5\x87"
      "a";  // a letter, a mark, a letter
  EXPECT_EQ(pieces_of("qwen2", text), (Pieces{"\xE0\xA4\xA8",
                                              "\xE0\xA5\x87"
                                              "a"}));
  EXPECT_EQ(pieces_of("qwen35", text), (Pieces{text}));
}

TEST(PreTokenizer, InterpreterAndJitAgree) {
  std::mt19937 engine(5);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  for (const char* preset : {"qwen2", "qwen35"}) {
    const PreTokenizer fast(*find_pre_tokenizer(preset));
    const PreTokenizer reference(*find_pre_tokenizer(preset), /*allow_jit=*/false);
    EXPECT_FALSE(reference.uses_jit());
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (int n = 0; n < 30; ++n) {
        static constexpr std::string_view kAscii = " \n\r\t'sStTrReEvVmMlLdD1.,!";
        const uint32_t kind = random() % 4;
        char32_t c = static_cast<char32_t>(random() % 0x30000);
        if (kind < 2) c = static_cast<char32_t>(kAscii[random() % kAscii.size()]);
        if (kind == 2) c = static_cast<char32_t>(random() % 0x1000);
        if (c < 0xD800 || c > 0xDFFF) append_utf8(c, text);
      }
      ASSERT_EQ(pieces_of(fast, text), pieces_of(reference, text)) << preset << " " << text;
    }
  }
}

TEST(PreTokenizer, LongRunsAreOnePieceInterpretedToo) {
  constexpr size_t kRunBytes = 1'000'000;
  for (const bool allow_jit : {true, false}) {
    for (const char* preset : {"qwen2", "qwen35"}) {
      const PreTokenizer pre_tokenizer(*find_pre_tokenizer(preset), allow_jit);
      for (const char c : {' ', '\n', 'a', '!'}) {
        const Pieces pieces = pieces_of(pre_tokenizer, std::string(kRunBytes, c));
        EXPECT_EQ(pieces.size(), 1u) << preset << " " << c;
      }
      EXPECT_EQ(pieces_of(pre_tokenizer, std::string(kRunBytes, ' ') + "x").size(), 2u);
      EXPECT_EQ(pieces_of(pre_tokenizer, std::string(kRunBytes / 10, '7')).size(), kRunBytes / 10);
    }
  }
}

TEST(Bpe, HeapEqualsReference) {
  const GgufFile file = test::open_committed("tiny-qwen3-kmix");
  const Vocab vocab(file);
  const MergeTable merges = load_merges(file, vocab);
  std::mt19937 engine(7);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  const std::string prose =
      "The quick brown fox remembers these codes, repeats the answer and counts";
  for (int round = 0; round < 4000; ++round) {
    Ids ids(random() % 120);
    const uint32_t kind = random() % 3;
    const size_t start = random() % prose.size();
    for (size_t n = 0; n < ids.size(); ++n) {
      const uint32_t byte = kind == 0   ? random() % 256
                            : kind == 1 ? 'a' + random() % 2
                                        : static_cast<uint8_t>(prose[(start + n) % prose.size()]);
      ids[n] = vocab.byte_token(static_cast<uint8_t>(byte));
    }
    Ids by_reference = ids, by_heap = ids;
    by_reference.resize(merge_bpe_reference(merges, by_reference));
    by_heap.resize(merge_bpe_heap(merges, by_heap));
    ASSERT_EQ(by_heap, by_reference) << "round " << round;
  }
}

TEST(Bpe, LowestRankFirstThenLeftmost) {
  test::SmallVocab vocab;
  const TokenId bc = vocab.add_merge("b", "c");
  const TokenId ab = vocab.add_merge("a", "b");
  const TokenId aa = vocab.add_merge("a", "a");
  const TokenId aaaa = vocab.add_merge("aa", "aa");
  const test::VocabFile file(vocab);
  const Tokenizer tokenizer = file.tokenizer();
  const auto ids = [&](const char* text) { return tokenizer.encode(text, false); };
  EXPECT_EQ(ids("abc"), (Ids{'a', bc}));
  EXPECT_EQ(ids("ab"), Ids{ab});
  EXPECT_EQ(ids("aaa"), (Ids{aa, 'a'}));
  EXPECT_EQ(ids("aaaaaaa"), (Ids{aaaa, aa, 'a'}));
}

// The word cache, the heap and the splitter together against plain passes over each piece.
TEST(Tokenizer, EncodesAsThePlainLoop) {
  const GgufFile file = test::open_committed("tiny-qwen3-kmix");
  const Tokenizer tokenizer(file);
  const Vocab vocab(file);
  const MergeTable merges = load_merges(file, vocab);
  const auto refs = test::read_json(APR_TEST_DATA "/refs/tokenizer-tiny-qwen3.json");
  std::string text;
  for (const auto& ref : refs["cases"]) text += ref["text"].get<std::string>();
  std::string buffer;
  const std::string normalized(normalize_nfc(text, buffer));
  Ids expected;
  for (const std::string& piece : pieces_of("qwen2", normalized)) {
    Ids ids;
    for (const char c : piece) ids.push_back(vocab.byte_token(static_cast<uint8_t>(c)));
    ids.resize(merge_bpe_reference(merges, ids));
    expected.insert(expected.end(), ids.begin(), ids.end());
  }
  EXPECT_GT(text.size(), 15000u);
  EXPECT_EQ(tokenizer.encode(text, false), expected);
}

TEST(Tokenizer, LongWordsAreNotQuadratic) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen3-kmix");
  std::mt19937 engine(9);
  const auto random = [&] { return static_cast<uint32_t>(engine()); };
  constexpr size_t kBytes = 1'000'000;
  std::string letters, marks = "a";
  for (size_t n = 0; n < kBytes; ++n) letters += static_cast<char>('a' + random() % 26);
  for (size_t n = 0; n < kBytes / 4; ++n) marks += "\xCC\x81\xCC\xA3";
  for (const std::string& text :
       {std::string(kBytes, 'a'), letters, std::string(kBytes, ' '), std::string(kBytes, '\n'),
        std::string(kBytes, '7'), std::string(kBytes, '<'), std::string(kBytes, '\xFF'), marks}) {
    const auto start = std::chrono::steady_clock::now();
    const Ids ids = tokenizer.encode(text, true);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    // About 0.4 s in a plain build; quadratic would take an hour.
    EXPECT_LT(seconds.count(), 60) << text.substr(0, 4);
    EXPECT_EQ(tokenizer.decode(ids).size(), text.size());  // NFC of `marks` is as long
  }
}

TEST(Nfc, EqualsUtf8procOnEveryCharacterAlone) {
  std::string text, buffer;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    text.clear();
    append_utf8(c, text);
    utf8proc_uint8_t* expected = nullptr;
    const auto n = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                static_cast<utf8proc_ssize_t>(text.size()), &expected,
                                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    ASSERT_GT(n, 0);
    ASSERT_EQ(normalize_nfc(text, buffer),
              std::string_view(reinterpret_cast<const char*>(expected), static_cast<size_t>(n)));
    std::free(expected);
  }
}

// A segment may begin where NFC changes nothing and joins nothing to what stands before: class 0,
// its own NFC, and never the second part of a canonical composition.
TEST(Nfc, SegmentsBeginWhereNothingJoins) {
  std::string text, buffer;
  for (char32_t c = 0; c < 0x110000; ++c) {
    if (c >= 0xD800 && c <= 0xDFFF) continue;
    const auto* property = utf8proc_get_property(static_cast<utf8proc_int32_t>(c));
    if (starts_nfc_segment(c)) {
      text.clear();
      append_utf8(c, text);
      ASSERT_EQ(property->combining_class, 0) << std::hex << static_cast<uint32_t>(c);
      ASSERT_EQ(normalize_nfc(text, buffer), text) << std::hex << static_cast<uint32_t>(c);
    }
    std::array<utf8proc_int32_t, 32> parts;
    int boundary = 0;
    const auto n_parts = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), parts.data(),
                                                 parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    for (utf8proc_ssize_t n = 1; n < n_parts; ++n) {
      ASSERT_FALSE(starts_nfc_segment(static_cast<char32_t>(parts[static_cast<size_t>(n)])))
          << std::hex << static_cast<uint32_t>(c);
    }
  }
}

TEST(Nfc, KeepsWhatUtf8procDrops) {
  std::string buffer;
  const std::string text = "\xEA\xB0\x80\xE1\x86\xA7";  // a Hangul syllable, U+11A7
  EXPECT_EQ(normalize_nfc(text, buffer), text);
  EXPECT_EQ(normalize_nfc("\xEA\xB0\x80\xE1\x86\xA8", buffer), "\xEA\xB0\x81");
}

TEST(ByteAlphabet, IsABijection) {
  for (int byte = 0; byte < 256; ++byte) {
    std::string bytes = "x";
    ASSERT_TRUE(append_alphabet_bytes(test::alphabet_char(byte), bytes));
    ASSERT_EQ(bytes, std::string("x") + static_cast<char>(byte));
  }
  for (const char* outside : {" ", "\n", "a\xC5\x84", "\xE4\xBD\xA0", "\xFF", "\xC4", "\xC2\xAD"}) {
    std::string bytes = "x";
    EXPECT_FALSE(append_alphabet_bytes(outside, bytes)) << outside;
    EXPECT_EQ(bytes, "x");
  }
}

}  // namespace
}  // namespace apr

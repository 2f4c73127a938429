// No byte is lost: encoding any bytes and decoding gives them back, but for NFC of valid text.
#include <gtest/gtest.h>
#include <utf8proc.h>

#include <cstdlib>
#include <random>
#include <thread>

#include "support/tokenizer_files.h"
#include "tokenizer/utf8.h"

namespace apr {
namespace {

using test::Ids;

// What decoding gives back: NFC (by utf8proc as a whole) of each stretch that is valid UTF-8.
std::string expected_bytes(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const size_t n_valid = valid_utf8_prefix_bytes(text);
    utf8proc_uint8_t* nfc = nullptr;
    const auto n_nfc =
        utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                     static_cast<utf8proc_ssize_t>(n_valid), &nfc,
                     static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    EXPECT_GE(n_nfc, 0);
    out.append(reinterpret_cast<const char*>(nfc), static_cast<size_t>(n_nfc));
    std::free(nfc);
    if (n_valid < text.size()) out += text[n_valid];
    text.remove_prefix(std::min(text.size(), n_valid + 1));
  }
  return out;
}

class RandomText {
 public:
  explicit RandomText(uint32_t seed) : random_(seed) {}

  std::string next() {
    std::string text;
    for (uint32_t n = below(12); n > 0; --n) add_part(text);
    return text;
  }
  uint32_t below(uint32_t limit) { return static_cast<uint32_t>(random_() % limit); }

 private:
  void add_part(std::string& text) {
    static const std::vector<std::string> kParts = {"<|im_end|>",
                                                    "<|im_end|",
                                                    "<think>",
                                                    "'s",
                                                    "'RE",
                                                    " \n\n ",
                                                    "\r\n",
                                                    std::string(1, '\0'),
                                                    "\xC0\x80",
                                                    "\xED\xA0\x80",
                                                    "\xED\xBF\xBF",
                                                    "\xF4\x90\x80\x80",
                                                    "\xE0\x80\xAF",
                                                    "\xFF",
                                                    "\xF0\x9F\x98",
                                                    "\xF0\x9F\x98\x80",
                                                    "e\xCC\x81",
                                                    "\xCC\x81",
                                                    "\xE1\x84\x80\xE1\x85\xA1",
                                                    "\xE2\x84\xAB",
                                                    "\xC3\xA9",
                                                    "12345",
                                                    "   ",
                                                    "hello",
                                                    " world",
                                                    "\xE4\xBD\xA0\xE5\xA5\xBD"};
    const uint32_t kind = below(4);
    if (kind == 0) {
      for (uint32_t n = below(6); n > 0; --n) text += static_cast<char>(below(256));
    } else if (kind == 1) {
      const char32_t c = below(0x110000);
      // utf8proc 2.8 drops U+11A7 after a syllable; here it is the reference.
      if ((c < 0xD800 || c > 0xDFFF) && c != 0x11A7) append_utf8(c, text);
    } else {
      text += kParts[below(static_cast<uint32_t>(kParts.size()))];
    }
  }
  std::mt19937 random_;
};

TEST(Bytes, RandomTextsComeBack) {
  for (const char* name : {"tiny-qwen3-kmix", "tiny-qwen35-Q4_K_M"}) {
    const Tokenizer tokenizer = test::committed_tokenizer(name);
    constexpr uint32_t kSeed = 20260514;
    RandomText random(kSeed);
    for (int round = 0; round < 10000; ++round) {
      const std::string text = random.next();
      const std::string expected = expected_bytes(text);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, false)), expected)
          << "seed " << kSeed << " round " << round;
      // Normalisation stops at special tokens, so it may differ from that of the whole.
      const Ids parsed = tokenizer.encode(text, true);
      if (text.find('<') == std::string::npos) {
        ASSERT_EQ(tokenizer.decode(parsed), expected) << "seed " << kSeed << " round " << round;
      }
    }
  }
}

TEST(Bytes, EveryByteAndPairComesBack) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen3-kmix");
  for (int first = 0; first < 256; ++first) {
    for (int second = -1; second < 256; ++second) {
      std::string text(1, static_cast<char>(first));
      if (second >= 0) text += static_cast<char>(second);
      ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, true)), expected_bytes(text))
          << first << " " << second;
    }
  }
}

TEST(Bytes, InvalidUtf8IsOneTokenAByte) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen3-kmix");
  for (const std::string text : {"\xC0\x80", "\xED\xA0\x80", "\xF0\x9F\x98", "\xFE\xFF", "\x80"}) {
    const Ids ids = tokenizer.encode(text, true);
    ASSERT_EQ(ids.size(), text.size());
    EXPECT_EQ(tokenizer.decode(ids), text);
  }
}

TEST(Bytes, CanonicallyEqualTextsHaveEqualIds) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen3-kmix");
  const auto ids = [&](std::string_view text) { return tokenizer.encode(text, false); };
  EXPECT_EQ(ids("cafe\xCC\x81"), ids("caf\xC3\xA9"));
  EXPECT_EQ(ids("q\xCC\xA3\xCC\x87"), ids("q\xCC\x87\xCC\xA3"));
  EXPECT_EQ(ids("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB"), ids("\xED\x95\x9C"));
  EXPECT_EQ(ids("\xE2\x84\xAB"), ids("\xC3\x85"));  // angstrom sign
  // An invalid byte in between keeps them apart.
  EXPECT_NE(ids("e\xFF\xCC\x81"), ids("\xC3\xA9"));
  EXPECT_EQ(tokenizer.decode(ids("e\xFF\xCC\x81")), "e\xFF\xCC\x81");
}

TEST(Bytes, TokensOutOfRangeAreEmpty) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen3-kmix");
  for (const TokenId id : {-1, 4096, INT32_MAX, INT32_MIN}) {
    EXPECT_EQ(tokenizer.token_bytes(id), "");
    EXPECT_FALSE(tokenizer.is_special(id));
  }
  EXPECT_EQ(tokenizer.decode(Ids{-5, 4096}), "");
  EXPECT_FALSE(tokenizer.find_token("no such token").has_value());
  EXPECT_FALSE(tokenizer.find_token("").has_value());
}

TEST(Tokenizer, ServesThreadsSideBySide) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen35-Q4_K_M");
  std::vector<std::string> texts;
  RandomText random(3);
  for (int n = 0; n < 300; ++n) texts.push_back(random.next() + " and the code of zebra is 4711");
  std::vector<Ids> expected;
  for (const std::string& text : texts) expected.push_back(tokenizer.encode(text, true));
  std::vector<std::vector<Ids>> found(4);
  {
    std::vector<std::jthread> threads;
    for (std::vector<Ids>& mine : found) {
      threads.emplace_back([&] {
        for (const std::string& text : texts) mine.push_back(tokenizer.encode(text, true));
      });
    }
  }
  for (const std::vector<Ids>& mine : found) EXPECT_EQ(mine, expected);
}

// Emoji cut by the token budget: each cut shows once, as one U+FFFD.
TEST(StreamDecoder, HoldsBackACutCharacter) {
  const test::VocabFile file{test::SmallVocab()};  // ids below 256 are bytes
  const Tokenizer tokenizer = file.tokenizer();
  const std::string emoji = "\xF0\x9F\x98\x80";
  for (size_t n_bytes = 1; n_bytes <= 4; ++n_bytes) {
    StreamDecoder decoder(tokenizer);
    std::string shown = decoder.push('a');
    for (size_t n = 0; n < n_bytes; ++n) {
      shown += decoder.push(static_cast<uint8_t>(emoji[n]));
      EXPECT_EQ(shown, n < 3 ? "a" : "a" + emoji);
    }
    EXPECT_EQ(decoder.flush(), n_bytes < 4 ? "\xEF\xBF\xBD" : "");
    EXPECT_EQ(decoder.flush(), "");
    EXPECT_EQ(decoder.push('b'), "b");
  }
}

TEST(StreamDecoder, ShowsOneReplacementForEachMaximalPart) {
  const test::VocabFile file{test::SmallVocab()};
  const Tokenizer tokenizer = file.tokenizer();
  const auto shown = [&](std::string_view bytes) {
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const char byte : bytes) text += decoder.push(static_cast<uint8_t>(byte));
    return text + decoder.flush();
  };
  const std::string r = "\xEF\xBF\xBD";
  EXPECT_EQ(shown("\xF0\x9F\x98"
                  "a"),
            r + "a");
  EXPECT_EQ(shown("\xF0\x9F\xF0\x9F\x98\x80"), r + "\xF0\x9F\x98\x80");
  EXPECT_EQ(shown("\x80\xFF"), r + r);
  EXPECT_EQ(shown("\xED\xA0\x80"), r + r + r);
  EXPECT_EQ(shown("\xE0\x80"), r + r);
  EXPECT_EQ(shown("\xC3\xA9\xC3"), "\xC3\xA9" + r);
  EXPECT_EQ(shown(std::string_view("\0x", 2)), std::string("\0x", 2));
}

TEST(StreamDecoder, GivesValidTextWhateverTheCuts) {
  const Tokenizer tokenizer = test::committed_tokenizer("tiny-qwen35-Q4_K_M");
  RandomText random(11);
  for (int round = 0; round < 2000; ++round) {
    const Ids ids = tokenizer.encode(random.next(), true);
    StreamDecoder decoder(tokenizer);
    std::string text;
    for (const TokenId id : ids) {
      const std::string part = decoder.push(id);
      ASSERT_EQ(valid_utf8_prefix_bytes(part), part.size());  // each part is whole characters
      text += part;
    }
    text += decoder.flush();
    const std::string whole = tokenizer.decode(ids);
    if (valid_utf8_prefix_bytes(whole) == whole.size()) {
      ASSERT_EQ(text, whole);
    }
  }
}

}  // namespace
}  // namespace apr

#include "tokenizer/vocab.h"

#include <fmt/format.h>

#include "apr/error.h"
#include "base/log.h"
#include "gguf/text.h"
#include "tokenizer/byte_alphabet.h"

namespace apr {
namespace {

constexpr char kTokensKey[] = "tokenizer.ggml.tokens";
constexpr char kTypesKey[] = "tokenizer.ggml.token_type";
constexpr char kMergesKey[] = "tokenizer.ggml.merges";
constexpr size_t kMaxSpecialBytes = 1024;  // looking for one costs at most this at each place

[[noreturn]] void fail(const GgufFile& file, const std::string& message) {
  throw Error(ErrorCode::kInvalidFormat, fmt::format("{}: {}", file.name(), message));
}

// The reader bounds arrays at 2^22 elements, so every index is a TokenId.
std::vector<std::string_view> string_list(const GgufFile& file, const char* key) {
  auto list = file.get_string_array(key);
  if (!list) fail(file, fmt::format("{} is missing: the file has no complete vocabulary", key));
  return *std::move(list);
}

std::vector<TokenKind> token_kinds(const GgufFile& file, size_t n_tokens) {
  const auto types = file.get_i64_array(kTypesKey);
  if (!types) fail(file, fmt::format("{} is missing: special tokens are not known", kTypesKey));
  if (types->size() != n_tokens) {
    fail(file, fmt::format("{} has {} entries, {} has {}", kTypesKey, types->size(), kTokensKey,
                           n_tokens));
  }
  std::vector<TokenKind> kinds;
  kinds.reserve(n_tokens);
  for (const int64_t type : *types) {
    if (type < 1 || type > 6) {
      fail(file, fmt::format("{}[{}] is {}, expected 1 to 6", kTypesKey, kinds.size(), type));
    }
    kinds.push_back(static_cast<TokenKind>(type));
  }
  return kinds;
}

}  // namespace

Vocab::Vocab(const GgufFile& file) {
  const std::vector<std::string_view> texts = string_list(file, kTokensKey);
  if (texts.empty()) fail(file, fmt::format("{} is empty", kTokensKey));
  kinds_ = token_kinds(file, texts.size());

  size_t n_special = 0;
  ends_.reserve(texts.size() + 1);
  ends_.push_back(0);
  for (TokenId id = 0; id < size(); ++id) {
    const std::string_view text = texts[static_cast<size_t>(id)];
    if (is_special(id)) {
      if (text.size() > kMaxSpecialBytes) {
        fail(file, fmt::format("{}[{}], a special token, has {} bytes, at most {} are supported",
                               kTokensKey, id, text.size(), kMaxSpecialBytes));
      }
      bytes_ += text;
      ++n_special;
    } else if (kind(id) != TokenKind::kUnused && !append_alphabet_bytes(text, bytes_)) {
      bytes_ += text;  // not written in the alphabet: stands for itself
    }
    ends_.push_back(bytes_.size());
  }

  const auto text_of = [this](TokenId id) { return bytes(id); };
  special_ = TokenIndex(n_special);
  ordinary_ = TokenIndex(texts.size() - n_special);
  for (TokenId id = 0; id < size(); ++id) {
    if (kind(id) != TokenKind::kUnused) (is_special(id) ? special_ : ordinary_).insert(id, text_of);
  }
  for (size_t byte = 0; byte < byte_tokens_.size(); ++byte) {
    const char text = static_cast<char>(byte);
    const auto id = find_ordinary({&text, 1});
    if (!id) {
      fail(file, fmt::format("{} has no token for the byte 0x{:02x}: not a byte-level vocabulary",
                             kTokensKey, byte));
    }
    byte_tokens_[byte] = *id;
  }
}

std::optional<TokenId> Vocab::find_special(std::string_view text) const {
  const TokenId id = special_.find(text, [this](TokenId at) { return bytes(at); });
  return id == TokenIndex::kNotFound ? std::nullopt : std::optional(id);
}

std::optional<TokenId> Vocab::find_ordinary(std::string_view text) const {
  const TokenId id = ordinary_.find(text, [this](TokenId at) { return bytes(at); });
  return id == TokenIndex::kNotFound ? std::nullopt : std::optional(id);
}

SpecialMatcher Vocab::special_matcher() const {
  std::vector<std::pair<std::string_view, TokenId>> texts;
  for (TokenId id = 0; id < size(); ++id) {
    if (is_special(id)) texts.emplace_back(bytes(id), id);
  }
  return SpecialMatcher(std::move(texts));
}

MergeTable load_merges(const GgufFile& file, const Vocab& vocab) {
  const std::vector<std::string_view> lines = string_list(file, kMergesKey);
  MergeTable merges(lines.size());
  size_t n_left_out = 0;
  std::string joined;
  for (size_t idx = 0; idx < lines.size(); ++idx) {
    const std::string_view line = lines[idx];
    const auto reject = [&](const std::string& why) {
      fail(file, fmt::format("{}[{}] \"{}\": {}", kMergesKey, idx, printable(line), why));
    };
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size()) {
      reject("expected two tokens with one space between them");
    }
    joined.clear();
    const bool left_known = append_alphabet_bytes(line.substr(0, space), joined);
    const size_t n_left_bytes = joined.size();
    if (!left_known || !append_alphabet_bytes(line.substr(space + 1), joined)) {
      reject("a character is outside of the byte alphabet");
    }
    const std::string_view text = joined;
    const auto find = [&](std::string_view part, const char* what) -> std::optional<TokenId> {
      const auto id = vocab.find_ordinary(part);
      if (!id && !vocab.find_special(part)) {
        reject(fmt::format("{} \"{}\" is not in the vocabulary", what, printable(part)));
      }
      return id;
    };
    const auto left = find(text.substr(0, n_left_bytes), "the left part");
    const auto right = find(text.substr(n_left_bytes), "the right part");
    const auto result = find(text, "the result");
    if (!left || !right || !result) {
      ++n_left_out;
      continue;
    }
    merges.insert(*left, *right, {static_cast<uint32_t>(idx), *result});
  }
  if (n_left_out > 0) {
    log_note(
        fmt::format("{}: {} merges of special tokens are left out: plain text never becomes "
                    "a special token",
                    file.name(), n_left_out));
  }
  return merges;
}

}  // namespace apr

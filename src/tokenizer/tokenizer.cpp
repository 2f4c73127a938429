#include "apr/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>

#include "apr/error.h"
#include "tokenizer/bpe.h"
#include "tokenizer/nfc.h"
#include "tokenizer/preset.h"
#include "tokenizer/pretokenize.h"
#include "tokenizer/special_matcher.h"
#include "tokenizer/utf8.h"
#include "tokenizer/vocab.h"
#include "tokenizer/word_cache.h"

namespace apr {
namespace {

constexpr size_t kMaxTextBytes = INT32_MAX;

// A stretch of text in which special tokens are recognised: [begin, end) in bytes.
struct Span {
  size_t begin, end;
};

std::optional<TokenId> token_id_of_key(const GgufFile& file, const Vocab& vocab, const char* key) {
  const auto value = file.get_u64(key);
  if (!value) return std::nullopt;
  if (*value >= static_cast<uint64_t>(vocab.size())) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("{}: {} is {}, the vocabulary has ids 0 to {}", file.name(), key,
                            *value, vocab.size() - 1));
  }
  return static_cast<TokenId>(*value);
}

// One encoding: what a call needs besides the tokenizer, so that calls may run side by side.
class Encoder {
 public:
  Encoder(const Vocab& vocab, const MergeTable& merges, const PreTokenizer& pre_tokenizer,
          size_t text_bytes)
      : vocab_(vocab), merges_(merges), splitter_(pre_tokenizer), cache_(text_bytes) {
    ids_.reserve(text_bytes / 4 + 8);
  }

  void add_id(TokenId id) { ids_.push_back(id); }

  // Ordinary text: normalised and split where it is valid UTF-8, byte by byte where it is not.
  void add_text(std::string_view text) {
    while (!text.empty()) {
      const size_t n_valid = valid_utf8_prefix_bytes(text);
      add_valid_text(normalize_nfc(text.substr(0, n_valid), normalized_));
      if (n_valid == text.size()) return;
      add_id(vocab_.byte_token(static_cast<uint8_t>(text[n_valid])));
      text.remove_prefix(n_valid + 1);
    }
  }

  std::vector<TokenId> take() { return std::move(ids_); }

 private:
  void add_valid_text(std::string_view text) {
    while (!text.empty()) {
      const size_t n_bytes = splitter_.first_piece_bytes(text);
      const std::string_view piece = text.substr(0, n_bytes);
      if (n_bytes > WordCache::kMaxWordBytes) {
        merge_piece(piece);
      } else {
        const WordCache::Key key = WordCache::key_of(piece, text);
        const auto known = cache_.find(key);
        if (known.empty()) {
          cache_.insert(key, merge_piece(piece));
        } else {
          ids_.insert(ids_.end(), known.begin(), known.end());
        }
      }
      text.remove_prefix(n_bytes);
    }
  }

  // Appends the ids of one piece; returns them, valid until the next call.
  std::span<const TokenId> merge_piece(std::string_view piece) {
    const size_t begin = ids_.size();
    for (const char c : piece) ids_.push_back(vocab_.byte_token(static_cast<uint8_t>(c)));
    ids_.resize(begin + merge_bpe(merges_, std::span(ids_).subspan(begin)));
    return std::span(ids_).subspan(begin);
  }

  const Vocab& vocab_;
  const MergeTable& merges_;
  PieceSplitter splitter_;
  WordCache cache_;
  std::string normalized_;
  std::vector<TokenId> ids_;
};

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(const GgufFile& file)
      : named(named_preset(file)),
        vocab(file),
        preset(named != nullptr ? *named : default_preset(file, vocab)),
        merges(load_merges(file, vocab)),
        specials(vocab.special_matcher()),
        pre_tokenizer(preset),
        bos(token_id_of_key(file, vocab, "tokenizer.ggml.bos_token_id")),
        eos(token_id_of_key(file, vocab, "tokenizer.ggml.eos_token_id")),
        pad(token_id_of_key(file, vocab, "tokenizer.ggml.padding_token_id")),
        add_bos(file.get_bool("tokenizer.ggml.add_bos_token").value_or(false)) {
    if (add_bos && !bos) {
      throw Error(ErrorCode::kInvalidFormat,
                  fmt::format("{}: tokenizer.ggml.add_bos_token is true, but "
                              "tokenizer.ggml.bos_token_id is missing",
                              file.name()));
    }
    for (const auto id : {eos, token_id_of_key(file, vocab, "tokenizer.ggml.eot_token_id"),
                          token_id_of_key(file, vocab, "tokenizer.ggml.eom_token_id"),
                          vocab.find_special("<|im_end|>"), vocab.find_special("<|endoftext|>")}) {
      if (id && std::find(stops.begin(), stops.end(), *id) == stops.end()) stops.push_back(*id);
    }
  }

  // The ids of `text`; special tokens are recognised inside of the spans, in ascending order.
  std::vector<TokenId> encode(std::string_view text, std::span<const Span> parsed) const;

  const PreTokenizerPreset* named;  // null: the file names none
  Vocab vocab;
  const PreTokenizerPreset& preset;
  MergeTable merges;
  SpecialMatcher specials;
  PreTokenizer pre_tokenizer;
  std::optional<TokenId> bos, eos, pad;
  bool add_bos;
  std::vector<TokenId> stops;
};

std::vector<TokenId> Tokenizer::Impl::encode(std::string_view text,
                                             std::span<const Span> parsed) const {
  if (text.size() > kMaxTextBytes) {
    throw Error(ErrorCode::kInvalidFormat,
                fmt::format("the text has {} bytes, at most {} can be encoded", text.size(),
                            kMaxTextBytes));
  }
  Encoder encoder(vocab, merges, pre_tokenizer, text.size());
  size_t text_begin = 0;
  const auto add_text_until = [&](size_t end) {
    encoder.add_text(text.substr(text_begin, end - text_begin));
  };
  for (const Span& span : parsed) {
    size_t pos = span.begin;
    while (const auto match = specials.find(text.substr(0, span.end), pos)) {
      add_text_until(match->pos);
      encoder.add_id(match->id);
      text_begin = pos = match->pos + match->n_bytes;
    }
  }
  add_text_until(text.size());

  std::vector<TokenId> ids = encoder.take();
  // A template may write BOS itself: there is never a second one.
  if (add_bos && (ids.empty() || ids.front() != *bos)) ids.insert(ids.begin(), *bos);
  return ids;
}

Tokenizer::Tokenizer(const GgufFile& file) : impl_(std::make_unique<Impl>(file)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

int64_t Tokenizer::vocab_size() const {
  return impl_->vocab.size();
}

std::vector<TokenId> Tokenizer::encode(std::string_view text, bool parse_special) const {
  const Span whole{0, text.size()};
  return impl_->encode(text, {&whole, parse_special ? size_t{1} : size_t{0}});
}

std::vector<TokenId> Tokenizer::encode(std::span<const TextPiece> pieces) const {
  std::string text;
  std::vector<Span> parsed;
  for (const TextPiece& piece : pieces) {
    const size_t begin = text.size();
    text += piece.text;
    if (!piece.parse_special) continue;
    if (!parsed.empty() && parsed.back().end == begin) {
      parsed.back().end = text.size();
    } else {
      parsed.push_back({begin, text.size()});
    }
  }
  return impl_->encode(text, parsed);
}

std::string_view Tokenizer::token_bytes(TokenId id) const {
  return impl_->vocab.contains(id) ? impl_->vocab.bytes(id) : std::string_view();
}

bool Tokenizer::is_special(TokenId id) const {
  return impl_->vocab.contains(id) && impl_->vocab.is_special(id);
}

std::string Tokenizer::decode(std::span<const TokenId> ids) const {
  std::string text;
  for (const TokenId id : ids) text += token_bytes(id);
  return text;
}

std::optional<TokenId> Tokenizer::find_token(std::string_view text) const {
  const auto special = impl_->vocab.find_special(text);
  return special ? special : impl_->vocab.find_ordinary(text);
}

std::optional<TokenId> Tokenizer::bos_id() const {
  return impl_->bos;
}
std::optional<TokenId> Tokenizer::eos_id() const {
  return impl_->eos;
}
std::optional<TokenId> Tokenizer::pad_id() const {
  return impl_->pad;
}
bool Tokenizer::add_bos() const {
  return impl_->add_bos;
}
const std::vector<TokenId>& Tokenizer::stop_ids() const {
  return impl_->stops;
}
std::string_view Tokenizer::pre_tokenizer_name() const {
  return impl_->preset.name;
}

}  // namespace apr

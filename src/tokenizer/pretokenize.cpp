#include "tokenizer/pretokenize.h"

#include <fmt/format.h>

#include <array>
#include <cstdint>

#include "apr/error.h"

// The published patterns say \s for Unicode's White_Space; PCRE2's \s also takes U+180E, so the
// property is spelled out, for use inside of a class.
#define APR_SPACE "\\p{Z}\\t-\\r\\x{85}"

namespace apr {
namespace {

// tokenizer.json of Qwen2.5 / Qwen3: pre_tokenizer.pretokenizers[0].pattern.Regex.
constexpr PreTokenizerPreset kQwen2 = {
    "qwen2",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}"
    "| ?[^" APR_SPACE "\\p{L}\\p{N}]+[\\r\\n]*|[" APR_SPACE
    "]*[\\r\\n]+"
    "|[" APR_SPACE "]+(?![^" APR_SPACE "])|[" APR_SPACE "]+"};

// tokenizer.json of Qwen3.5: combining marks belong to words.
constexpr PreTokenizerPreset kQwen35 = {
    "qwen35",
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
    "| ?[^" APR_SPACE "\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|[" APR_SPACE
    "]*[\\r\\n]+"
    "|[" APR_SPACE "]+(?![^" APR_SPACE "])|[" APR_SPACE "]+"};

struct PresetName {
  std::string_view name;
  const PreTokenizerPreset* preset;
};

constexpr std::array<PresetName, 3> kPresetNames = {{
    {"qwen2", &kQwen2},
    {"qwen35", &kQwen35},
    {"deepseek-r1-qwen", &kQwen2},
}};

std::string pcre2_message(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

}  // namespace

const PreTokenizerPreset* find_pre_tokenizer(std::string_view name) {
  for (const PresetName& row : kPresetNames) {
    if (row.name == name) return row.preset;
  }
  return nullptr;
}

std::string supported_pre_tokenizers() {
  std::string list;
  for (const PresetName& row : kPresetNames) {
    if (!list.empty()) list += ", ";
    list += row.name;
    if (row.name != row.preset->name) list += fmt::format(" (as {})", row.preset->name);
  }
  return list;
}

PreTokenizer::PreTokenizer(const PreTokenizerPreset& preset, bool allow_jit) {
  int error = 0;
  PCRE2_SIZE error_offset = 0;
  code_.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(preset.pattern), PCRE2_ZERO_TERMINATED,
                            PCRE2_UTF | PCRE2_UCP | PCRE2_ANCHORED, &error, &error_offset,
                            nullptr));
  if (code_ == nullptr) {
    throw Error(ErrorCode::kGeneric,
                fmt::format("this PCRE2 does not compile the pre-tokenizer pattern {} (at {}): {}; "
                            "it must be built with Unicode support",
                            preset.name, error_offset, pcre2_message(error)));
  }
  // Where the system forbids executable memory the pattern is interpreted: slower, same pieces.
  uses_jit_ = allow_jit && pcre2_jit_compile(code_.get(), PCRE2_JIT_COMPLETE) == 0;
}

PieceSplitter::PieceSplitter(const PreTokenizer& pre_tokenizer)
    : pre_tokenizer_(&pre_tokenizer),
      match_data_(pcre2_match_data_create(1, nullptr)),
      context_(pcre2_match_context_create(nullptr)) {
  if (match_data_ == nullptr || context_ == nullptr) throw std::bad_alloc();
  // The limits guard against exponential patterns; these are linear in a piece, which may be long.
  pcre2_set_match_limit(context_.get(), UINT32_MAX);
  pcre2_set_heap_limit(context_.get(), UINT32_MAX);
  pcre2_set_depth_limit(context_.get(), UINT32_MAX);
}

size_t PieceSplitter::first_piece_bytes(std::string_view text) {
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const pcre2_code* code = pre_tokenizer_->code_.get();
  int result = PCRE2_ERROR_JIT_STACKLIMIT;
  if (pre_tokenizer_->uses_jit_) {
    result = pcre2_jit_match(code, subject, text.size(), 0, 0, match_data_.get(), context_.get());
  }
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(code, subject, text.size(), 0, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                         match_data_.get(), context_.get());
  }
  if (result == PCRE2_ERROR_NOMATCH) return text.size();
  if (result < 0) {
    throw Error(ErrorCode::kGeneric, fmt::format("splitting {} bytes of text into words failed: {}",
                                                 text.size(), pcre2_message(result)));
  }
  const PCRE2_SIZE end = pcre2_get_ovector_pointer(match_data_.get())[1];
  APR_CHECK(end > 0, "no pattern matches nothing");
  return end;
}

}  // namespace apr

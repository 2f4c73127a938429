// Pre-tokenizers: the published pattern that cuts text into the pieces within which BPE merges.
#pragma once

#include <pcre2.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace apr {

struct PreTokenizerPreset {
  const char* name;     // as in tokenizer.ggml.pre
  const char* pattern;  // for PCRE2 with UTF and UCP
};

// The preset of a value of tokenizer.ggml.pre, aliases included; null where there is none.
const PreTokenizerPreset* find_pre_tokenizer(std::string_view name);

// "qwen2, qwen35, deepseek-r1-qwen (as qwen2)": for messages.
std::string supported_pre_tokenizers();

// A compiled pattern; shared by all threads.
class PreTokenizer {
 public:
  explicit PreTokenizer(const PreTokenizerPreset& preset, bool allow_jit = true);
  bool uses_jit() const { return uses_jit_; }

 private:
  friend class PieceSplitter;
  struct CodeDelete {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
  };
  std::unique_ptr<pcre2_code, CodeDelete> code_;
  bool uses_jit_ = false;
};

// The state one thread needs to split text; the pre-tokenizer must outlive it.
class PieceSplitter {
 public:
  explicit PieceSplitter(const PreTokenizer& pre_tokenizer);

  // Length of the first piece of `text`, valid UTF-8 that is not empty; at least 1. Throws kGeneric
  // where PCRE2 gives up (out of memory).
  size_t first_piece_bytes(std::string_view text);

 private:
  struct Delete {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
  };
  const PreTokenizer* pre_tokenizer_;
  std::unique_ptr<pcre2_match_data, Delete> match_data_;
  std::unique_ptr<pcre2_match_context, Delete> context_;
};

}  // namespace apr

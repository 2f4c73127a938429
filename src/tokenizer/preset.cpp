#include "tokenizer/preset.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "apr/error.h"
#include "base/log.h"
#include "gguf/text.h"

namespace apr {
namespace {

constexpr char kModelKey[] = "tokenizer.ggml.model";
constexpr char kPreKey[] = "tokenizer.ggml.pre";
constexpr TokenId kMaxQwen2Tokens = 152064;

[[noreturn]] void refuse(const GgufFile& file, const std::string& message) {
  throw Error(ErrorCode::kModelLoad,
              fmt::format("{}: {}; apr {} supports the pre-tokenizers {}", file.name(), message,
                          APR_VERSION, supported_pre_tokenizers()));
}

// Why the vocabulary is not qwen2's; empty where it may be.
std::string why_not_qwen2(const Vocab& vocab) {
  for (const char* text : {"<|endoftext|>", "<|im_start|>", "<|im_end|>"}) {
    if (!vocab.find_special(text)) return fmt::format("it has no special token {}", text);
  }
  if (vocab.size() > kMaxQwen2Tokens) {
    return fmt::format("it has {} tokens, more than {}", vocab.size(), kMaxQwen2Tokens);
  }
  const auto both_digits = [](char a, char b) {
    return a >= '0' && a <= '9' && b >= '0' && b <= '9';
  };
  for (TokenId id = 0; id < vocab.size(); ++id) {
    const std::string_view text = vocab.bytes(id);
    if (!vocab.is_special(id) &&
        std::adjacent_find(text.begin(), text.end(), both_digits) != text.end()) {
      return fmt::format("token {} holds two digits in a row", id);
    }
  }
  return {};
}

}  // namespace

const PreTokenizerPreset* named_preset(const GgufFile& file) {
  const auto model = file.get_string(kModelKey);
  if (!model) refuse(file, fmt::format("{} is missing, expected gpt2 (byte-level BPE)", kModelKey));
  if (*model != "gpt2") {
    refuse(file, fmt::format("{} is \"{}\", expected gpt2 (byte-level BPE)", kModelKey,
                             printable(*model)));
  }
  const auto name = file.get_string(kPreKey);
  if (!name || *name == "default") return nullptr;
  const PreTokenizerPreset* preset = find_pre_tokenizer(*name);
  if (preset == nullptr) refuse(file, fmt::format("unknown {} \"{}\"", kPreKey, printable(*name)));
  return preset;
}

const PreTokenizerPreset& default_preset(const GgufFile& file, const Vocab& vocab) {
  const std::string state = file.find(kPreKey) != nullptr ? "is \"default\"" : "is missing";
  const std::string reason = why_not_qwen2(vocab);
  if (!reason.empty()) {
    refuse(file, fmt::format("{} {} and the vocabulary is not that of qwen2: {}", kPreKey, state,
                             reason));
  }
  log_note(
      fmt::format("{}: {} {}; the vocabulary looks like that of qwen2, so its pre-tokenizer "
                  "is used",
                  file.name(), kPreKey, state));
  return *find_pre_tokenizer("qwen2");
}

}  // namespace apr

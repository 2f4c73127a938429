// Vocabularies for the tokenizer's tests: those of the fixtures and small ones made here.
#pragma once

#include <cstdint>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "apr/gguf.h"
#include "apr/quant.h"
#include "apr/tokenizer.h"
#include "support/gguf_writer.h"

namespace apr::test {

inline GgufFile open_model(const std::string& path) {
  return GgufFile::open(path, quant_type_layout, quant_type_label);
}

// "tiny-qwen3-kmix": a model of tests/data/models.
inline GgufFile open_committed(const std::string& name) {
  return open_model(APR_TEST_DATA "/models/" + name + ".gguf");
}

inline Tokenizer committed_tokenizer(const std::string& name) {
  return Tokenizer(open_committed(name));
}

inline nlohmann::json read_json(const std::string& path) {
  std::ifstream in(path);
  return nlohmann::json::parse(in);
}

// How a byte is written in the vocabulary; by the definition, apart from the code under test.
inline std::string alphabet_char(int byte) {
  const auto is_printed = [](int b) {
    return (b >= '!' && b <= '~') || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
  };
  int code_point = byte;
  if (!is_printed(byte)) {
    code_point = 256;
    for (int b = 0; b < byte; ++b) code_point += is_printed(b) ? 0 : 1;
  }
  if (code_point < 0x80) return std::string(1, static_cast<char>(code_point));
  return {static_cast<char>(0xC0 | (code_point >> 6)), static_cast<char>(0x80 | (code_point & 63))};
}

// A vocabulary that can be made wrong: 256 bytes (ids 0 to 255), then what is added.
struct SmallVocab {
  SmallVocab() {
    for (int byte = 0; byte < 256; ++byte) add(alphabet_char(byte), 1);
    add("<|endoftext|>", 3);
    add("<|im_start|>", 3);
    add("<|im_end|>", 3);
  }

  TokenId add(const std::string& text, int32_t type) {
    tokens.push_back(text);
    types.push_back(type);
    return static_cast<TokenId>(tokens.size() - 1);
  }
  // A merge and its result.
  TokenId add_merge(const std::string& left, const std::string& right) {
    merges.push_back(left + " " + right);
    return add(left + right, 1);
  }

  GgufWriter writer() const {
    GgufWriter out;
    out.set_string("general.architecture", "none");
    out.set_string("tokenizer.ggml.model", "gpt2");
    out.set_string("tokenizer.ggml.pre", "qwen2");
    out.set_string_array("tokenizer.ggml.tokens", tokens);
    out.set_array("tokenizer.ggml.token_type", types);
    out.set_string_array("tokenizer.ggml.merges", merges);
    return out;
  }

  std::vector<std::string> tokens;
  std::vector<int32_t> types;
  std::vector<std::string> merges;
};

// A file in memory; it has no tensor.
class VocabFile {
 public:
  explicit VocabFile(const GgufWriter& writer)
      : bytes_(writer.bytes()),
        file_(GgufFile::from_memory(bytes_, "vocab.gguf", quant_type_layout, quant_type_label)) {}
  explicit VocabFile(const SmallVocab& vocab) : VocabFile(vocab.writer()) {}

  const GgufFile& file() const { return file_; }
  Tokenizer tokenizer() const { return Tokenizer(file_); }

 private:
  std::vector<std::byte> bytes_;
  GgufFile file_;
};

using Ids = std::vector<TokenId>;

}  // namespace apr::test

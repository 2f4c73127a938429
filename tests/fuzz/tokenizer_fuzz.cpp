// libFuzzer target of the tokenizer: any bytes come back, and a typed text never holds a special
// token. The first byte picks the vocabulary (bit 0) and how the rest is cut into pieces.
#include <array>
#include <cstdint>

#include "apr/error.h"
#include "apr/quant.h"
#include "apr/tokenizer.h"
#include "tokenizer/nfc.h"
#include "tokenizer/utf8.h"

namespace apr {
namespace {

Tokenizer load(const char* name) {
  return Tokenizer(GgufFile::open(std::string(APR_TEST_DATA "/models/") + name, quant_type_layout,
                                  quant_type_label));
}

// NFC of each valid stretch: two texts that agree in it differ only by normalisation.
std::string normalized(std::string_view text) {
  std::string out, buffer;
  while (!text.empty()) {
    const size_t n_valid = valid_utf8_prefix_bytes(text);
    out += normalize_nfc(text.substr(0, n_valid), buffer);
    if (n_valid < text.size()) out += text[n_valid];
    text.remove_prefix(std::min(text.size(), n_valid + 1));
  }
  return out;
}

void check_comes_back(const Tokenizer& tokenizer, std::span<const TokenId> ids,
                      std::string_view text) {
  const std::string whole = tokenizer.decode(ids);
  APR_CHECK(normalized(whole) == normalized(text), "no byte is lost");
  StreamDecoder decoder(tokenizer);
  std::string shown;
  for (const TokenId id : ids) shown += decoder.push(id);
  shown += decoder.flush();
  APR_CHECK(valid_utf8_prefix_bytes(shown) == shown.size(), "what is shown is text");
  if (valid_utf8_prefix_bytes(whole) == whole.size()) {
    APR_CHECK(shown == whole, "valid text is shown as it is");
  }
}

}  // namespace
}  // namespace apr

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace apr;
  static const std::array<Tokenizer, 2> tokenizers = {load("tiny-qwen3-kmix.gguf"),
                                                      load("tiny-qwen35-Q4_K_M.gguf")};
  if (size == 0) return 0;
  const Tokenizer& tokenizer = tokenizers[data[0] & 1];
  const std::string_view text(reinterpret_cast<const char*>(data + 1), size - 1);

  const std::vector<TokenId> plain = tokenizer.encode(text, false);
  check_comes_back(tokenizer, plain, text);
  for (const TokenId id : plain) {
    APR_CHECK(!tokenizer.is_special(id), "plain text makes no special token");
  }
  check_comes_back(tokenizer, tokenizer.encode(text, true), text);

  // Every third of the text typed or not, by a bit each.
  std::vector<TextPiece> pieces;
  for (size_t n = 0; n < 3; ++n) {
    const size_t begin = text.size() * n / 3, end = text.size() * (n + 1) / 3;
    pieces.push_back(
        {std::string(text.substr(begin, end - begin)), ((data[0] >> (n + 1)) & 1) != 0});
  }
  check_comes_back(tokenizer, tokenizer.encode(pieces), text);
  return 0;
}

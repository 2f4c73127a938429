// The alphabet in which GPT-2 style vocabularies write bytes: printable Latin-1 characters stand
// for themselves, the other 68 bytes for U+0100 and up, in order.
#pragma once

#include <string>
#include <string_view>

namespace apr {

// Appends the bytes that `text`, a token as the vocabulary writes it, stands for. False, with `out`
// as it was, where a character is outside of the alphabet.
bool append_alphabet_bytes(std::string_view text, std::string& out);

}  // namespace apr

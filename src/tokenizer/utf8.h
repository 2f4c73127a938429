// UTF-8 by the Unicode standard's table 3-7: no overlong forms, no surrogates, at most U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace apr {

enum class Utf8Status {
  kValid,      // one whole character
  kInvalid,    // bytes that no continuation could make a character
  kTruncated,  // the text ends inside of what may still become a character
};

// What stands at one position: kValid gives the character's length; the others the length of the
// longest start of a character there, at least 1 (one U+FFFD when shown).
struct Utf8Step {
  size_t n_bytes;
  Utf8Status status;
};

// Classifies what starts at `pos`, which lies inside of `text`.
Utf8Step utf8_step(std::string_view text, size_t pos);

// Length of the longest start of `text` that is valid UTF-8.
size_t valid_utf8_prefix_bytes(std::string_view text);

// The code point of the character of `n_bytes` at `pos`, which utf8_step found valid.
char32_t decode_utf8(std::string_view text, size_t pos, size_t n_bytes);

// Appends the UTF-8 form of a scalar value.
void append_utf8(char32_t code_point, std::string& out);

// Length of the run of ASCII bytes at `pos`.
size_t ascii_run_bytes(std::string_view text, size_t pos);

}  // namespace apr

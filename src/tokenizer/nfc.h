// Unicode normalisation form C of the text between special tokens.
#pragma once

#include <string>
#include <string_view>

namespace apr {

// NFC of valid UTF-8. Returns `text` itself where nothing changes, else a view of `buffer`. Time is
// linear but for runs of combining marks (n log n); ASCII costs a scan.
std::string_view normalize_nfc(std::string_view text, std::string& buffer);

// Whether a code point is left as it is by NFC and never joins what stands before it (combining
// class 0, NFC_Quick_Check = Yes): text may be normalised in parts that begin at such a character.
// Answers true only for the ranges that are common in text.
bool starts_nfc_segment(char32_t code_point);

}  // namespace apr

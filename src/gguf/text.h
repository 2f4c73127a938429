// Names out of a file: are they UTF-8, and how they are shown in a message.
#pragma once

#include <string>
#include <string_view>

namespace apr {

// Whether `text` is well-formed UTF-8 (no overlong forms, no surrogates, at most U+10FFFF).
bool is_utf8(std::string_view text);

// `text` as it may be shown on a terminal: control characters and bytes that are no UTF-8 become
// \xNN, and what is longer than 120 bytes is cut with "...".
std::string printable(std::string_view text);

}  // namespace apr

// Python's notions of characters and of case, on utf8proc.
#include <utf8proc.h>

#include <algorithm>

#include "tokenizer/jinja/text.h"

namespace apr::jinja {

namespace {

utf8proc_category_t category(int32_t code) {
  return code < 0 ? UTF8PROC_CATEGORY_CN : utf8proc_category(code);
}

bool in(int32_t code, int32_t first, int32_t last) {
  return code >= first && code <= last;
}

struct SpecialCase {
  int32_t code;
  std::string_view upper;
  std::string_view title;
};
constexpr SpecialCase kSpecialCases[] = {
#include "tokenizer/jinja/unicode_case.inc"
};

const SpecialCase* find_special_case(int32_t code) {
  const auto* it = std::lower_bound(std::begin(kSpecialCases), std::end(kSpecialCases), code,
                                    [](const SpecialCase& row, int32_t c) { return row.code < c; });
  return it != std::end(kSpecialCases) && it->code == code ? it : nullptr;
}

bool is_case_ignorable(int32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019;
  }
}

constexpr int32_t kSigma = 0x3A3;
constexpr int32_t kFinalSigma = 0x3C2;
constexpr int32_t kDottedI = 0x130;

// Whether the capital sigma at `sigma` ends a word: a cased letter before it and none after.
bool is_final_sigma(std::string_view text, const Char& sigma) {
  size_t pos = sigma.begin_bytes;
  Char c;
  do {
    if (pos == 0) return false;
    c = char_at(text, previous_char(text, pos));
    pos = c.begin_bytes;
  } while (is_case_ignorable(c.code));
  if (!is_cased(c.code)) return false;
  pos = sigma.begin_bytes + sigma.size_bytes;
  while (pos < text.size()) {
    c = char_at(text, pos);
    if (!is_case_ignorable(c.code)) return !is_cased(c.code);
    pos += c.size_bytes;
  }
  return true;
}

}  // namespace

bool is_space(int32_t code) {
  if (code < 0x80) return in(code, 9, 13) || in(code, 0x1C, 0x20);
  return code == 0x85 || code == 0xA0 || code == 0x1680 || in(code, 0x2000, 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_line_break(int32_t code) {
  return in(code, 10, 13) || in(code, 0x1C, 0x1E) || code == 0x85 || code == 0x2028 ||
         code == 0x2029;
}

bool is_alpha(int32_t code) {
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_ND;
}

bool is_digit(int32_t code) {
  return is_decimal(code) || code == 0xB2 || code == 0xB3 || code == 0xB9 || code == 0x2070 ||
         in(code, 0x2074, 0x2079) || in(code, 0x2080, 0x2089) || in(code, 0x2460, 0x2468) ||
         in(code, 0x2474, 0x247C) || in(code, 0x2488, 0x2490);
}

bool is_numeric(int32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_word(int32_t code) {
  return code == '_' || is_alpha(code) || is_numeric(code);
}

bool is_upper(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LL || code == 0xAA || code == 0xBA;
}
bool is_title(int32_t code) {
  return category(code) == UTF8PROC_CATEGORY_LT;
}
bool is_cased(int32_t code) {
  return is_upper(code) || is_lower(code) || is_title(code);
}

bool is_printable(int32_t code) {
  if (code == ' ') return true;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

const Str& change_case(Runtime& rt, const Str& str, Case to) {
  TextBuilder out(rt);
  rt.step_bytes(str.text.size() * 4);
  bool word_starts = true;
  Char c;
  for (CharReader reader(str); reader.next(c);) {
    Case how = to;
    if (to == Case::kCapitalize || to == Case::kTitle) {
      how = word_starts ? Case::kTitle : Case::kLower;
      word_starts = to == Case::kTitle && !is_cased(c.code);
    }
    const SpecialCase* special = how == Case::kLower ? nullptr : find_special_case(c.code);
    if (c.code < 0) {
      out.add(str.text.substr(c.begin_bytes, c.size_bytes), c.from_template);
    } else if (special != nullptr) {
      out.add(how == Case::kUpper ? special->upper : special->title, c.from_template);
    } else if (how == Case::kUpper) {
      out.add(encode_utf8(utf8proc_toupper(c.code)), c.from_template);
    } else if (how == Case::kTitle) {
      out.add(encode_utf8(utf8proc_totitle(c.code)), c.from_template);
    } else if (c.code == kDottedI) {
      out.add("i\xCC\x87", c.from_template);
    } else if (c.code == kSigma && is_final_sigma(str.text, c)) {
      out.add(encode_utf8(kFinalSigma), c.from_template);
    } else {
      out.add(encode_utf8(utf8proc_tolower(c.code)), c.from_template);
    }
  }
  return out.finish();
}

}  // namespace apr::jinja
